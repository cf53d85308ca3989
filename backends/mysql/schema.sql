-- schema.sql - what dlock keeps in a database of MySQL or MariaDB.  Version 3.
--
--	dlock help mysql-schema | mysql DATABASE         creates it, and what a newer version adds
--	GRANT EXECUTE ON DATABASE.* TO 'user'@'host'     is all that a user needs to use it
--
-- The procedures run with the rights of their maker, so that nobody else needs any right on the
-- tables.  They are those of pg/schema.sql, with the same arguments and columns.  A procedure's
-- name ends with the version of the schema (in mysql/driver.c, too): whoever changes one, its
-- arguments or its body, gives all of them the next.  (One that is only added needs none: the maker
-- of the others makes it when a client misses it, anybody else says who can, and all go on without;
-- one before that did the same may call it.)  Those of several versions work side by side
-- on the same tables, for what stands there keeps its meaning; so an upgrade takes nothing away
-- from those who hold or wait.
--
-- An owner is the first half of the SHA-256 of a secret.  Everybody who sees the processlist may
-- read what stands in a statement.  So only a release has the secret in it, which then is of no
-- more use.
--
-- Mode lease.  Every procedure that grants, joins or gives back has locked the row of the key in
-- dlock_keys, and decides by what is true from then on.  What holds between two transactions:
--  1. One exclusive hold is there of a key, or any number of shared ones, or up to `room`
--     of a limit.  (Two exclusive ones, or two of one slot, are also refused by an index.)
--  2. A hold counts until its row is gone, whatever `ends` says: a renewal locks only the
--     row of the hold, and DELETE looks at the newest version of it.
--  3. Where a living waiter fits, it has been granted: there is no free lock with a queue.
--     (But one that has lost its session keeps its place for some seconds, and is passed over
--     until it asks again.)
--  4. A freeze is a hold of nobody's with token 0, beside those who hold: while it is
--     there, nobody is granted.
--  5. last is no less than any token and ticket of the key; both are also no less than the
--     time of the server, so that they grow though the row be lost.
--
-- A statement may reach the server, or get the row of its key, when its sender has long given up
-- (a server that hung, a cut connection): so p_by says until when what takes or queues may be
-- decided.  And a user who may write on a read-only server all the same changes nothing there.
--
-- Times are microseconds since 1970 by the server's clock.  SYSDATE is read after the row
-- of the key has been locked: NOW would be when the statement began, which may have waited.
--
-- A wake-up lock is a GET_LOCK of the session of a claim, called dlock: and a hash of its owner,
-- as the columns `bell` have it: while it is held its waiter lives.  A waiter sleeps in GET_LOCK on
-- that of somebody before it; a release gives its own back after COMMIT.  It only wakes; what is
-- true stands in the tables.  A server takes a chain of more than 32 who sleep so for a deadlock:
-- so only the first 16 sleep on who is next before them, those behind on who is 16 places before
-- them, and from the 240th on everybody asks now and then.
-- An exclusive claim keeps its wake-up lock as long as it holds.  The others give it back when
-- they know that they have been granted, for others may fit beside them, and take another
-- one (with an h behind it), for who waits for the end of their hold.
DELIMITER //
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
//
CREATE TABLE IF NOT EXISTS dlock_keys (
	k VARBINARY(512) NOT NULL PRIMARY KEY,
	last BIGINT NOT NULL
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS dlock_holds (
	k VARBINARY(512) NOT NULL,
	token BIGINT NOT NULL COMMENT '0: a freeze',
	owner VARBINARY(32) NOT NULL,
	kind VARBINARY(9) NOT NULL COMMENT 'exclusive, shared, limit or freeze',
	room INT NOT NULL COMMENT 'the limit, else 0',
	slot INT NULL COMMENT 'of a limit; -1: exclusive',
	bell VARBINARY(33) NULL,
	since BIGINT NOT NULL,
	ends BIGINT NOT NULL,
	record VARBINARY(1023) NOT NULL,
	wanted_by VARBINARY(1023) NULL COMMENT 'who asks the holder to give it up',
	PRIMARY KEY (k, token),
	UNIQUE KEY slots (k, slot),
	KEY owners (k, owner)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS dlock_waiters (
	k VARBINARY(512) NOT NULL,
	ticket BIGINT NOT NULL COMMENT 'served in this order',
	owner VARBINARY(32) NOT NULL,
	kind VARBINARY(9) NOT NULL,
	room INT NOT NULL,
	lease BIGINT NOT NULL,
	bell VARBINARY(33) NULL COMMENT 'lives while this is held',
	alive BIGINT NULL COMMENT 'counts as dead after this; NULL: not known to be away',
	since BIGINT NOT NULL,
	record VARBINARY(1023) NOT NULL,
	PRIMARY KEY (k, ticket),
	UNIQUE KEY owners (k, owner)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS dlock_runs (
	k VARBINARY(512) NOT NULL,
	ended BIGINT NOT NULL,
	token BIGINT NOT NULL,
	id VARBINARY(200) NULL COMMENT 'of --once',
	began BIGINT NOT NULL,
	status INT NOT NULL,
	record VARBINARY(1023) NOT NULL,
	PRIMARY KEY (k, ended, token),
	KEY ids (k, id, status),
	KEY begun (k, status, began),
	KEY ended (ended)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS dlock_ended (
	k VARBINARY(512) NOT NULL,
	id VARBINARY(200) NOT NULL COMMENT 'of --once --no-retry, ended otherwise than with 0; empty: of --remember',
	ended BIGINT NOT NULL,
	token BIGINT NOT NULL,
	began BIGINT NOT NULL,
	status INT NOT NULL,
	record VARBINARY(1023) NOT NULL,
	PRIMARY KEY (k, id),
	KEY ended (ended)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS dlock_broken (
	k VARBINARY(512) NOT NULL,
	token BIGINT NOT NULL,
	at BIGINT NOT NULL,
	record VARBINARY(1023) NOT NULL COMMENT 'of who took it away by force',
	PRIMARY KEY (k, token),
	KEY times (at)
) ENGINE = InnoDB
//
-- Mode row: a row for each key, which its holder has locked.
CREATE TABLE IF NOT EXISTS dlock_rows (
	k VARBINARY(512) NOT NULL PRIMARY KEY
) ENGINE = InnoDB
//
-- Modes row and named: who holds and who waits.  What is written here is never committed: it
-- is gone when its session is, and others read it uncommitted.  Users need SELECT, INSERT and
-- DELETE on these two.
CREATE TABLE IF NOT EXISTS dlock_grants (
	n BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'the token',
	mode VARBINARY(5) NOT NULL,
	k VARBINARY(512) NOT NULL,
	waits TINYINT NOT NULL,
	shared TINYINT NOT NULL,
	session BIGINT NOT NULL,
	since BIGINT NOT NULL,
	record VARBINARY(1023) NOT NULL,
	KEY claims (mode, k, waits, n)
) ENGINE = InnoDB
//
-- Nobody is excluded by tables without transactions.  Once for each database that a session comes
-- to (a proxy may lend it to several): each table is named by itself, so that only that one is
-- opened.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_must_lock_3()
BEGIN
	IF NOT @dlock_locks <=> CAST(DATABASE() AS BINARY) THEN
		IF EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'dlock_keys'
					AND engine <> 'InnoDB')
				OR EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'dlock_holds'
					AND engine <> 'InnoDB')
				OR EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'dlock_waiters'
					AND engine <> 'InnoDB') THEN
			SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1286,
				MESSAGE_TEXT = 'dlock_keys, dlock_holds or dlock_waiters is not in InnoDB: ALTER TABLE ... ENGINE = InnoDB';
		END IF;
		SET @dlock_locks = CAST(DATABASE() AS BINARY);
	END IF;
END
//
-- Takes the wake-up lock of a claim for the session: of an exclusive one, and of a waiter's; of
-- another hold its second one, in place of the first.  p_has: the session has it.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_take_own_3(p_me VARBINARY(32), p_kind VARBINARY(9), OUT p_has INT)
BEGIN
	DECLARE v_lock VARBINARY(39) DEFAULT CONCAT('dlock:', LEFT(SHA2(p_me, 256), 32));
	IF p_kind <> 'exclusive' THEN
		DO RELEASE_LOCK(v_lock);
		SET v_lock = CONCAT(v_lock, 'h');
	END IF;
	SET p_has = COALESCE(IS_USED_LOCK(v_lock), 0) = CONNECTION_ID();
	IF NOT p_has THEN
		SET p_has = GET_LOCK(v_lock, 0) <=> 1;
	END IF;
END
//
-- On a server that is read-only nothing is taken and nothing changed, whoever has made the
-- procedures and whatever he may: it may be a replica, and would have data of its own.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_must_write_3()
BEGIN
	IF @@global.read_only NOT IN ('0', 'OFF') THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	END IF;
END
//
-- Begins a transaction, locks the key, and tells the time.  (A procedure that each waiter's session
-- keeps in memory, and so it calls no other one.)
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_lock_key_3(p_k VARBINARY(512), p_by BIGINT, OUT p_now BIGINT)
BEGIN
	IF @@global.read_only IN ('0', 'OFF') THEN
		START TRANSACTION;
		INSERT INTO dlock_keys (k, last) VALUES (p_k, 0) ON DUPLICATE KEY UPDATE last = last;
		SET p_now = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
		IF p_now > p_by THEN
			SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 3024, MESSAGE_TEXT = 'too late for who has asked';
		END IF;
	END IF;
	IF @@global.read_only NOT IN ('0', 'OFF') THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	END IF;
END
//
-- Drops the holds that have run out, and grants to those who wait, in order, as long as they fit;
-- passes over those away.  A waiter that is granted so has p_first, and 10 ms more for each who runs
-- at the same time, to ask again, by which it takes up its lease; p_me is asking.  The caller has
-- locked the key.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_serve_3(p_k VARBINARY(512), p_me VARBINARY(32), p_now BIGINT, p_first BIGINT)
BEGIN
	DECLARE v_held, v_room, v_slot, w_room INT;
	DECLARE v_kind, w_kind VARBINARY(9);
	DECLARE v_token, v_stop BIGINT DEFAULT 0;
	DECLARE v_after BIGINT DEFAULT -9223372036854775807;
	DECLARE w_ticket, w_lease, w_alive BIGINT;
	DECLARE w_owner VARBINARY(32);
	DECLARE w_bell VARBINARY(33);
	DECLARE w_record VARBINARY(1023);
	-- Somebody may have deleted the row.
	INSERT INTO dlock_keys (k, last) VALUES (p_k, 0) ON DUPLICATE KEY UPDATE last = last;
	DELETE FROM dlock_holds WHERE k = p_k AND ends <= p_now;
	SELECT COUNT(*), MIN(kind), MAX(room) INTO v_held, v_kind, v_room FROM dlock_holds WHERE k = p_k;
	serving: LOOP
		SET w_ticket = NULL;
		SELECT ticket, owner, kind, room, lease, bell, alive, record
			INTO w_ticket, w_owner, w_kind, w_room, w_lease, w_bell, w_alive, w_record
			FROM dlock_waiters WHERE k = p_k AND ticket > v_after ORDER BY ticket LIMIT 1;
		IF w_ticket IS NULL OR (v_held > 0 AND (w_kind = 'exclusive' OR w_kind <> v_kind OR w_room <> v_room
				OR (w_kind = 'limit' AND v_held >= w_room))) THEN
			LEAVE serving;
		END IF;
		SET v_after = w_ticket;
		IF NOT (w_owner <=> p_me) AND NOT (CASE WHEN w_bell IS NULL THEN w_alive > p_now
				ELSE IS_FREE_LOCK(CONCAT('dlock:', w_bell)) = 0 END) THEN
			IF w_alive <= p_now THEN
				DELETE FROM dlock_waiters WHERE k = p_k AND ticket = w_ticket;
			ELSEIF w_alive IS NULL THEN
				UPDATE dlock_waiters SET alive = p_now + 15000000 WHERE k = p_k AND ticket = w_ticket;
			END IF;
			ITERATE serving;
		END IF;
		-- Readers are granted together up to the next that waits for something else, for they may be hundreds.
		IF w_kind = 'shared' THEN
			SELECT COALESCE(MIN(ticket) - 1, 9223372036854775807) INTO v_stop FROM dlock_waiters
				WHERE k = p_k AND ticket > w_ticket AND kind <> 'shared';
			SELECT GREATEST(last, p_now - 1) INTO v_token FROM dlock_keys WHERE k = p_k;
			INSERT INTO dlock_holds (k, token, owner, kind, room, bell, since, ends, record)
				SELECT p_k, v_token + ROW_NUMBER() OVER (ORDER BY w.ticket), w.owner, 'shared', 0, CONCAT(w.bell, 'h'), p_now,
					p_now + CASE WHEN w.owner <=> p_me THEN w.lease ELSE LEAST(w.lease, p_first
						+ (v_held + COUNT(*) OVER ()) * 10000) END, w.record
				FROM dlock_waiters w WHERE w.k = p_k AND w.ticket >= w_ticket AND w.ticket <= v_stop AND (w.ticket = w_ticket
					OR w.owner <=> p_me OR CASE WHEN w.bell IS NULL THEN w.alive > p_now
						ELSE IS_FREE_LOCK(CONCAT('dlock:', w.bell)) = 0 END);
			DELETE w FROM dlock_waiters w JOIN dlock_holds h ON h.k = w.k AND h.owner = w.owner WHERE w.k = p_k;
			DELETE FROM dlock_waiters WHERE k = p_k AND ticket > w_ticket AND ticket <= v_stop AND alive <= p_now;
			UPDATE dlock_waiters SET alive = p_now + 15000000
				WHERE k = p_k AND ticket > w_ticket AND ticket <= v_stop AND alive IS NULL;
			SELECT COUNT(*), MAX(token), 'shared', 0 INTO v_held, v_token, v_kind, v_room FROM dlock_holds WHERE k = p_k;
			UPDATE dlock_keys SET last = GREATEST(last, v_token) WHERE k = p_k;
			SET v_after = v_stop;
			ITERATE serving;
		END IF;
		SET v_slot = CASE w_kind WHEN 'exclusive' THEN -1 WHEN 'limit' THEN 0 END;
		IF w_kind = 'limit' AND v_held > 0 THEN
			SELECT MIN(f.s) INTO v_slot FROM (SELECT 0 AS s UNION ALL SELECT slot + 1 FROM dlock_holds WHERE k = p_k) f
				WHERE NOT EXISTS (SELECT 1 FROM dlock_holds h WHERE h.k = p_k AND h.slot = f.s);
		END IF;
		UPDATE dlock_keys SET last = GREATEST(last + 1, p_now) WHERE k = p_k;
		SELECT last INTO v_token FROM dlock_keys WHERE k = p_k;
		DELETE FROM dlock_waiters WHERE k = p_k AND ticket = w_ticket;
		INSERT INTO dlock_holds (k, token, owner, kind, room, slot, bell, since, ends, record) VALUES (p_k, v_token, w_owner, w_kind,
			w_room, v_slot, CASE WHEN w_kind = 'exclusive' THEN w_bell ELSE CONCAT(w_bell, 'h') END, p_now,
			p_now + CASE WHEN w_owner <=> p_me THEN w_lease ELSE LEAST(w_lease, p_first + v_held * 10000) END, w_record);
		SET v_held = v_held + 1, v_kind = w_kind, v_room = w_room;
		IF w_kind = 'exclusive' THEN
			LEAVE serving;
		END IF;
	END LOOP;
END
//
-- ---- mode=lease ----
--
-- What arguments and columns mean, pg/schema.sql says.  p_session: nothing is kept in a session
-- behind a proxy.

-- Takes, exclusively, what nobody holds or waits for.  token NULL: there is somebody.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_take_3(p_k VARBINARY(512), p_me VARBINARY(32), p_record VARBINARY(1023), p_lease_ms BIGINT,
	p_session BIGINT, p_by BIGINT)
BEGIN
	DECLARE t, v_token BIGINT;
	DECLARE v_direct, v_has_own INT DEFAULT p_session = CONNECTION_ID() % 4294967296;
	DECLARE v_bell VARBINARY(33) DEFAULT CASE WHEN v_direct THEN LEFT(SHA2(p_me, 256), 32) END;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_lock_3();
	IF v_direct AND COALESCE(IS_USED_LOCK(CONCAT('dlock:', v_bell)), 0) <> CONNECTION_ID() THEN
		SET v_has_own = GET_LOCK(CONCAT('dlock:', v_bell), 0) <=> 1;
	END IF;
	START TRANSACTION;
	INSERT INTO dlock_keys (k, last) VALUES (p_k, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))
		ON DUPLICATE KEY UPDATE last = GREATEST(last + 1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED));
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	IF t > p_by THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 3024, MESSAGE_TEXT = 'too late for who has asked';
	ELSEIF @@global.read_only NOT IN ('0', 'OFF') THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	ELSEIF EXISTS (SELECT 1 FROM dlock_holds WHERE k = p_k) OR EXISTS (SELECT 1 FROM dlock_waiters WHERE k = p_k) THEN
		ROLLBACK;
	ELSE
		SELECT last INTO v_token FROM dlock_keys WHERE k = p_k;
		INSERT INTO dlock_holds (k, token, owner, kind, room, slot, bell, since, ends, record)
			VALUES (p_k, v_token, p_me, 'exclusive', 0, -1, v_bell, t, t + p_lease_ms * 1000, p_record);
		COMMIT;
	END IF;
	SELECT v_token AS token, v_direct AS direct, v_has_own AS has_own;
END
//
-- Asks for the lock, or for one's place in the queue; the same for an owner who asks again.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_enter_3(p_k VARBINARY(512), p_me VARBINARY(32), p_record VARBINARY(1023), p_lease_ms BIGINT,
	p_patience_ms BIGINT, p_kind VARBINARY(9), p_room INT, p_once VARBINARY(200), p_cooldown_ms BIGINT,
	p_session BIGINT, p_had_own INT, p_by BIGINT)
BEGIN
	DECLARE t, v_token, v_ticket, v_last, v_began, v_left, v_since, v_exclusive, w_ticket, w_alive, v_dead BIGINT;
	DECLARE v_slot, v_place, v_holders, v_held_room, v_next, v_together, v_tries, v_step INT;
	DECLARE v_code INT DEFAULT 0;
	DECLARE v_direct INT DEFAULT p_session = CONNECTION_ID() % 4294967296;
	DECLARE v_has_own INT DEFAULT p_had_own;
	DECLARE v_kind, v_held_kind VARBINARY(9);
	DECLARE v_done_by VARBINARY(8);
	DECLARE v_bell, w_bell, v_ahead, v_holds_bell VARBINARY(33);
	DECLARE v_holder, v_record VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

	CALL dlock_must_lock_3();
	IF v_direct AND p_patience_ms > 0 THEN
		-- A sleep that was broken off as it ended has left its session with the lock of another.
		IF @dlock_ahead IS NOT NULL THEN
			DO RELEASE_LOCK(CONCAT('dlock:', @dlock_ahead));
			SET @dlock_ahead = NULL;
		END IF;
		SET v_bell = LEFT(SHA2(p_me, 256), 32);
		-- A grant that is not exclusive, and came to nothing, has left the lock of a holder instead.
		IF NOT p_had_own OR p_kind <> 'exclusive' THEN
			CALL dlock_take_own_3(p_me, 'exclusive', v_has_own);
		END IF;
	END IF;
	CALL dlock_lock_key_3(p_k, p_by, t);
	SET v_dead = CASE WHEN v_bell IS NULL THEN t + GREATEST(p_patience_ms, 1) * 1000 END;
	DELETE FROM dlock_holds WHERE k = p_k AND ends <= t;
	SELECT token INTO v_token FROM dlock_holds WHERE k = p_k AND owner = p_me;
	SELECT ticket INTO v_ticket FROM dlock_waiters WHERE k = p_k AND owner = p_me;

	IF p_once IS NOT NULL OR p_cooldown_ms > 0 THEN
		SELECT began, record INTO v_began, v_record FROM dlock_runs
			WHERE k = p_k AND id = p_once AND status = 0 LIMIT 1;
		IF v_began IS NOT NULL THEN
			SET v_done_by = 'once';
		ELSEIF p_cooldown_ms > 0 THEN
			SELECT began, record INTO v_began, v_record FROM dlock_runs
				WHERE k = p_k AND status = 0 AND began < t + p_cooldown_ms * 1000 ORDER BY began DESC LIMIT 1;
			IF t - v_began < p_cooldown_ms * 1000 THEN
				SET v_done_by = 'cooldown';
			END IF;
		END IF;
	END IF;

	IF v_done_by IS NOT NULL THEN
		SET v_code = 2, v_token = COALESCE(v_token, v_ticket);
	ELSEIF v_token IS NOT NULL THEN
		UPDATE dlock_holds SET ends = t + p_lease_ms * 1000 WHERE k = p_k AND token = v_token;
	ELSEIF v_ticket IS NOT NULL THEN
		UPDATE dlock_waiters SET bell = v_bell, alive = v_dead WHERE k = p_k AND ticket = v_ticket;
	ELSE
		IF p_kind <> 'exclusive' THEN
			SELECT kind, room INTO v_held_kind, v_held_room FROM (
				SELECT kind, room FROM dlock_holds WHERE k = p_k AND kind NOT IN ('exclusive', 'freeze')
				UNION ALL SELECT kind, room FROM dlock_waiters WHERE k = p_k AND kind <> 'exclusive'
					AND CASE WHEN bell IS NULL THEN alive > t ELSE IS_FREE_LOCK(CONCAT('dlock:', bell)) = 0 END) o
				WHERE kind <> p_kind OR room <> p_room LIMIT 1;
			SET v_code = CASE WHEN v_held_kind IS NULL THEN 0 ELSE -1 END;
			DELETE FROM dlock_waiters WHERE v_code = 0 AND k = p_k AND kind <> 'exclusive' AND (kind <> p_kind OR room <> p_room);
		END IF;
		IF v_code = 0 THEN
			UPDATE dlock_keys SET last = GREATEST(last + 1, t) WHERE k = p_k;
			SELECT last INTO v_ticket FROM dlock_keys WHERE k = p_k;
			INSERT INTO dlock_waiters (k, ticket, owner, kind, room, lease, bell, alive, since, record)
				VALUES (p_k, v_ticket, p_me, p_kind, p_room, p_lease_ms * 1000, v_bell, v_dead, t, p_record);
		END IF;
	END IF;
	CALL dlock_serve_3(p_k, p_me, t, 3000000);
	IF v_code = 0 THEN
		SELECT token, slot, kind INTO v_token, v_slot, v_kind FROM dlock_holds WHERE k = p_k AND owner = p_me;
		SET v_code = v_token IS NOT NULL;
	END IF;

	IF v_code = 0 THEN
		SELECT COUNT(*) INTO v_place FROM dlock_waiters WHERE k = p_k AND ticket <= v_ticket AND (alive IS NULL OR alive > t);
		SELECT MIN(ends) - t, COALESCE(SUM(kind <> 'freeze'), 0) INTO v_left, v_holders FROM dlock_holds WHERE k = p_k;
		SELECT since, record, kind, room, bell INTO v_since, v_holder, v_held_kind, v_held_room, v_holds_bell
			FROM dlock_holds WHERE k = p_k ORDER BY kind = 'freeze', token LIMIT 1;
		SET v_together = 0;
		IF p_kind <> 'exclusive' THEN
			SELECT MAX(ticket) INTO v_exclusive FROM dlock_waiters WHERE k = p_k AND ticket < v_ticket AND kind = 'exclusive';
			SELECT (v_exclusive IS NOT NULL OR v_held_kind <=> 'exclusive') AND (p_kind = 'shared' OR p_room > COUNT(*)) INTO v_together
				FROM dlock_waiters WHERE k = p_k AND ticket < v_ticket AND ticket > COALESCE(v_exclusive, 0);
		END IF;
		-- Not all: after a restart hundreds are away at once, and come back.
		SET v_last = v_ticket, v_tries = 4, v_next = 0, v_step = CASE WHEN v_place > 16 AND NOT v_together THEN 15 ELSE 0 END;
		WHILE v_tries > 0 AND v_place <= 240 DO
			SET w_ticket = NULL, w_bell = NULL, w_alive = NULL;
			SELECT ticket, bell, alive INTO w_ticket, w_bell, w_alive FROM dlock_waiters
				WHERE k = p_k AND ticket < v_last AND (NOT v_together OR kind = 'exclusive') ORDER BY ticket DESC LIMIT 1 OFFSET v_step;
			SET v_last = w_ticket, v_step = 0, v_tries = v_tries - 1;
			IF w_ticket IS NULL OR (CASE WHEN w_bell IS NULL THEN w_alive > t ELSE IS_FREE_LOCK(CONCAT('dlock:', w_bell)) = 0 END) THEN
				SET v_tries = 0;
			END IF;
		END WHILE;
		SET v_next = v_place <= 240 AND w_ticket IS NULL,
			v_ahead = CASE WHEN v_place > 240 THEN NULL WHEN v_next THEN v_holds_bell ELSE w_bell END;
		IF p_patience_ms = 0 THEN
			DELETE FROM dlock_waiters WHERE k = p_k AND ticket = v_ticket;
		END IF;
	END IF;
	COMMIT;

	IF v_code = 1 AND v_kind <> 'exclusive' AND v_bell IS NOT NULL THEN
		CALL dlock_take_own_3(p_me, v_kind, v_has_own);
	END IF;
	SELECT v_code AS code, v_token AS token, v_slot AS slot, v_place AS place,
		LEAST(CEILING(v_left / 1000), 86400000) AS left_ms, (t - v_since) DIV 1000 AS held_ms, v_holder AS holder,
		v_holders AS holders, v_held_kind AS held_kind, v_held_room AS held_room, v_next AS is_next, v_ahead AS ahead,
		v_done_by AS done_by, v_began DIV 1000 AS began_ms, GREATEST(0, t - v_began) DIV 1000 AS age_ms, v_record AS record,
		v_direct AS direct, v_has_own AS has_own, 0 AS is_listening, t AS moment;
END
//
-- Sleeps until somebody has no more of the wake-up lock p_ahead, p_ms at most.  code 3: not slept,
-- for the server takes those who sleep for a deadlock.  Where we are is not told.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_await_3(p_k VARBINARY(512), p_me VARBINARY(32), p_ahead VARBINARY(33), p_ms INT, p_had_own INT)
BEGIN
	DECLARE v_code, v_got, v_slot INT;
	DECLARE v_has_own INT DEFAULT p_had_own;
	DECLARE v_token BIGINT;
	DECLARE v_kind VARBINARY(9);
	DECLARE CONTINUE HANDLER FOR 1213, 3058 SET v_got = -1;
	IF NOT p_had_own THEN
		CALL dlock_take_own_3(p_me, 'exclusive', v_has_own);
	END IF;
	SET @dlock_ahead = p_ahead;
	SET v_got = GET_LOCK(CONCAT('dlock:', p_ahead), 0), v_code = 2;
	IF NOT v_got <=> 1 THEN
		SET v_got = GET_LOCK(CONCAT('dlock:', p_ahead), p_ms / 1000);
		SET v_code = CASE v_got WHEN 1 THEN 1 WHEN -1 THEN 3 ELSE 0 END;
	END IF;
	IF v_got = 1 THEN
		DO RELEASE_LOCK(CONCAT('dlock:', p_ahead));
	END IF;
	SET @dlock_ahead = NULL;
	SELECT token, slot, kind INTO v_token, v_slot, v_kind FROM dlock_holds
		WHERE k = p_k AND owner = p_me AND ends > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	IF v_kind <> 'exclusive' THEN
		CALL dlock_take_own_3(p_me, v_kind, v_has_own);
	END IF;
	SELECT v_code AS code, v_token AS token, v_slot AS slot, NULL AS place, NULL AS left_ms, NULL AS held_ms, NULL AS holder,
		NULL AS holders, NULL AS held_kind, NULL AS held_room, NULL AS is_next, v_has_own AS has_own;
END
//
-- Extends a lease that still runs and is the one granted with this token.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_renew_3(p_k VARBINARY(512), p_me VARBINARY(32), p_token BIGINT, p_lease_ms BIGINT, p_session BIGINT)
BEGIN
	DECLARE t, v_ends BIGINT;
	DECLARE v_code INT DEFAULT 0;
	DECLARE v_has_own INT;
	DECLARE v_kind VARBINARY(9);
	DECLARE v_by VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	SELECT ends, kind, wanted_by INTO v_ends, v_kind, v_by FROM dlock_holds
		WHERE k = p_k AND token = p_token AND owner = p_me FOR UPDATE;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	CALL dlock_must_write_3();
	IF v_ends > t THEN
		SET v_code = 1;
		UPDATE dlock_holds SET ends = t + p_lease_ms * 1000 WHERE k = p_k AND token = p_token;
	ELSE
		SET v_by = (SELECT record FROM dlock_broken WHERE k = p_k AND token = p_token);
	END IF;
	COMMIT;
	IF v_code AND p_session = CONNECTION_ID() % 4294967296 THEN
		CALL dlock_take_own_3(p_me, v_kind, v_has_own);
	END IF;
	SELECT v_code AS code, v_by AS wanted_by, v_has_own AS has_own;
END
//
-- Gives back what the owner holds whose secret this is, or its place in the queue, and grants to
-- who is next.  @dlock_old is another session of its owner that is left over with a wake-up lock.
-- p_had_own is not asked here: the procedures of both databases have the same arguments.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_release_3(p_k VARBINARY(512), p_secret VARBINARY(32), p_status INT, p_once VARBINARY(200), p_had_own INT)
BEGIN
	DECLARE t, v_token, v_ticket, v_since, v_ends BIGINT;
	DECLARE v_me VARBINARY(32) DEFAULT LEFT(SHA2(p_secret, 256), 32);
	DECLARE v_lock VARBINARY(39) DEFAULT CONCAT('dlock:', LEFT(SHA2(v_me, 256), 32));
	DECLARE v_record VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	SET @dlock_old = COALESCE(NULLIF(IS_USED_LOCK(v_lock), CONNECTION_ID()),
		NULLIF(IS_USED_LOCK(CONCAT(v_lock, 'h')), CONNECTION_ID()));
	SELECT token, since, ends, record INTO v_token, v_since, v_ends, v_record FROM dlock_holds
		WHERE k = p_k AND owner = v_me FOR UPDATE;
	IF v_token IS NOT NULL THEN
		DELETE FROM dlock_holds WHERE k = p_k AND token = v_token;
	ELSE
		SELECT ticket INTO v_ticket FROM dlock_waiters WHERE k = p_k AND owner = v_me;
		DELETE FROM dlock_waiters WHERE k = p_k AND ticket = v_ticket;
	END IF;
	IF EXISTS (SELECT 1 FROM dlock_waiters WHERE k = p_k) THEN
		CALL dlock_serve_3(p_k, NULL, t, 3000000);
	END IF;
	IF p_status IS NOT NULL AND v_ends > t THEN
		INSERT INTO dlock_runs (k, ended, token, id, began, status, record)
			VALUES (p_k, t, v_token, p_once, v_since, p_status, v_record);
		DELETE FROM dlock_runs WHERE ended < t - 34560000000000 ORDER BY ended LIMIT 100;
	END IF;
	COMMIT;
	DO RELEASE_LOCK(v_lock), RELEASE_LOCK(CONCAT(v_lock, 'h'));
	SELECT CASE WHEN v_ends > t THEN 1 WHEN v_ticket IS NOT NULL THEN 2 ELSE 0 END AS code;
END
//
-- Has this ID ended by a run that counts for --no-retry, and by none with 0?  NULL: no.  Asked by
-- who holds, for a run that ends is kept by the transaction that gives the lock back.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_find_ended_3(p_k VARBINARY(512), p_id VARBINARY(200))
	SELECT e.began DIV 1000 AS began_ms, e.status, e.record
		FROM (SELECT 1 AS one) o LEFT JOIN dlock_ended e ON e.k = p_k AND e.id = p_id
			AND NOT EXISTS (SELECT 1 FROM dlock_runs r WHERE r.k = p_k AND r.id = p_id AND r.status = 0)
//
-- The same as dlock_release, and the run is kept in dlock_ended.  p_what: final, a job's that counts for
-- --no-retry; shown, no job's.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_release_run_3(p_k VARBINARY(512), p_secret VARBINARY(32), p_status INT, p_once VARBINARY(200),
	p_what VARBINARY(5), p_had_own INT)
BEGIN
	DECLARE t, v_token, v_ticket, v_since, v_ends BIGINT;
	DECLARE v_me VARBINARY(32) DEFAULT LEFT(SHA2(p_secret, 256), 32);
	DECLARE v_lock VARBINARY(39) DEFAULT CONCAT('dlock:', LEFT(SHA2(v_me, 256), 32));
	DECLARE v_record VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	SET @dlock_old = COALESCE(NULLIF(IS_USED_LOCK(v_lock), CONNECTION_ID()),
		NULLIF(IS_USED_LOCK(CONCAT(v_lock, 'h')), CONNECTION_ID()));
	SELECT token, since, ends, record INTO v_token, v_since, v_ends, v_record FROM dlock_holds
		WHERE k = p_k AND owner = v_me FOR UPDATE;
	IF v_token IS NOT NULL THEN
		DELETE FROM dlock_holds WHERE k = p_k AND token = v_token;
	ELSE
		SELECT ticket INTO v_ticket FROM dlock_waiters WHERE k = p_k AND owner = v_me;
		DELETE FROM dlock_waiters WHERE k = p_k AND ticket = v_ticket;
	END IF;
	IF EXISTS (SELECT 1 FROM dlock_waiters WHERE k = p_k) THEN
		CALL dlock_serve_3(p_k, NULL, t, 3000000);
	END IF;
	IF v_ends > t THEN
		IF p_what = 'final' THEN
			INSERT INTO dlock_runs (k, ended, token, id, began, status, record)
				VALUES (p_k, t, v_token, p_once, v_since, p_status, v_record);
		END IF;
		REPLACE INTO dlock_ended (k, id, ended, token, began, status, record)
			VALUES (p_k, CASE p_what WHEN 'final' THEN p_once ELSE '' END, t, v_token, v_since, p_status, v_record);
		DELETE FROM dlock_ended WHERE ended < t - 34560000000000 ORDER BY ended LIMIT 100;
	END IF;
	COMMIT;
	DO RELEASE_LOCK(v_lock), RELEASE_LOCK(CONCAT(v_lock, 'h'));
	SELECT CASE WHEN v_ends > t THEN 1 WHEN v_ticket IS NOT NULL THEN 2 ELSE 0 END AS code;
END
//
-- ---- looking and steering ----
--
-- Any user who may use the procedures may do all of it.  No owner is shown: a token says which
-- grant is meant.

-- Up to p_most of those who hold (turn 0) or wait (1) and of the freezes (2).  A read-only server
-- does not see which waiters live, and believes them.  A page reads no more rows than it has room
-- for, of each table: it goes on where the one before has ended, in the order of an index.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_3(p_k VARBINARY(512), p_after VARBINARY(512),
	p_turn INT, p_number BIGINT, p_most INT)
BEGIN
	DECLARE t BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	DECLARE v_to VARBINARY(512) DEFAULT COALESCE(p_k, REPEAT(x'ff', 512));
	DECLARE v_last BIGINT DEFAULT 9223372036854775807;
	DECLARE v_token BIGINT DEFAULT CASE WHEN p_turn < 0 THEN 0 WHEN p_turn = 0 THEN p_number ELSE v_last END;
	DECLARE v_ticket BIGINT DEFAULT CASE WHEN p_turn < 1 THEN -v_last - 1 WHEN p_turn = 1 THEN p_number ELSE v_last END;
	DECLARE v_before INT DEFAULT p_most - 1;
	-- A page needs no key behind that of the last hold that has room in it.
	SELECT k INTO v_to FROM dlock_holds FORCE INDEX (PRIMARY)
		WHERE ((k = p_after AND token > v_token) OR (k > p_after AND k <= v_to)) AND token > 0 AND ends > t
		ORDER BY k, token LIMIT v_before, 1;
	(SELECT k, 0 AS turn, token AS number, kind, room, token, slot, since, ends, t AS moment, wanted_by IS NOT NULL AS is_wanted, record
		FROM dlock_holds FORCE INDEX (PRIMARY)
		WHERE ((k = p_after AND token > v_token) OR (k > p_after AND k <= v_to)) AND token > 0 AND ends > t
		ORDER BY k, token LIMIT p_most)
	UNION ALL
	(SELECT k, 1, ticket, kind, room, NULL, NULL, since, NULL, t, 0, record
		FROM dlock_waiters FORCE INDEX (PRIMARY)
		WHERE ((k = p_after AND ticket > v_ticket) OR (k > p_after AND k <= v_to))
			AND CASE WHEN bell IS NULL THEN alive > t ELSE @@global.read_only OR IS_FREE_LOCK(CONCAT('dlock:', bell)) = 0 END
		ORDER BY k, ticket LIMIT p_most)
	UNION ALL
	(SELECT k, 2, 0, kind, room, NULL, NULL, since, ends, t, 0, record
		FROM dlock_holds FORCE INDEX (PRIMARY)
		WHERE ((k = p_after AND p_turn < 2) OR (k > p_after AND k <= v_to)) AND token = 0 AND ends > t
		ORDER BY k LIMIT p_most)
	ORDER BY 1, 2, 3 LIMIT p_most;
END
//
-- Who asks the holder with this token to give it up.  NULL: nobody does.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_asker_3(p_k VARBINARY(512), p_token BIGINT)
	SELECT (SELECT wanted_by FROM dlock_holds WHERE k = p_k AND token = p_token) AS wanted_by
//
-- The run of a job that was the last to end.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_last_run_3(p_k VARBINARY(512))
	SELECT id, began, ended, status, token, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS moment, record
		FROM dlock_runs WHERE k = p_k ORDER BY ended DESC, token DESC LIMIT 1
//
-- Of up to p_most keys behind p_after, or of p_k: the run that was the last to end (turn 0), and the
-- last one that ended with 0 (turn 1), which may be the same.  A key may have a run for each minute of
-- 400 days: so its runs are read from the last one on, until one is found.  (LIMIT keeps each inner
-- SELECT apart; merged into the outer one, it would be run again for each run of the key.)
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_last_3(p_k VARBINARY(512), p_after VARBINARY(512), p_most INT)
BEGIN
	DECLARE t BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	(SELECT r.k, 0 AS turn, r.id, r.began, r.ended, r.status, r.token, t AS moment, r.record
		FROM (SELECT l.k,
				(SELECT m.ended FROM dlock_runs m WHERE m.k = l.k ORDER BY m.ended DESC, m.token DESC LIMIT 1) AS ended,
				(SELECT m.token FROM dlock_runs m WHERE m.k = l.k ORDER BY m.ended DESC, m.token DESC LIMIT 1) AS token
			FROM (SELECT k FROM dlock_runs WHERE k > p_after AND k BETWEEN COALESCE(p_k, p_after) AND COALESCE(p_k, X'FF')
				GROUP BY k ORDER BY k LIMIT p_most) l LIMIT p_most) g
			JOIN dlock_runs r ON r.k = g.k AND r.ended = g.ended AND r.token = g.token)
	UNION ALL
	(SELECT r.k, 1, r.id, r.began, r.ended, r.status, r.token, t, r.record
		FROM (SELECT l.k,
				(SELECT m.ended FROM dlock_runs m WHERE m.k = l.k AND m.status = 0 AND m.began <= t
					ORDER BY m.ended DESC, m.token DESC LIMIT 1) AS ended,
				(SELECT m.token FROM dlock_runs m WHERE m.k = l.k AND m.status = 0 AND m.began <= t
					ORDER BY m.ended DESC, m.token DESC LIMIT 1) AS token
			FROM (SELECT k FROM dlock_runs WHERE k > p_after AND k BETWEEN COALESCE(p_k, p_after) AND COALESCE(p_k, X'FF')
				GROUP BY k ORDER BY k LIMIT p_most) l LIMIT p_most) g
			JOIN dlock_runs r ON r.k = g.k AND r.ended = g.ended AND r.token = g.token)
	ORDER BY 1, 2;
END
//
-- The same, as clients of before call it.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_jobs_3(p_k VARBINARY(512), p_after VARBINARY(512), p_most INT)
	CALL dlock_list_last_3(p_k, p_after, p_most)
//
-- Up to p_most IDs behind this one of this key, in the order of keys and IDs, with the last run of each that ended with 0 (turn 2).
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_ids_3(p_after VARBINARY(512), p_id VARBINARY(200), p_most INT)
	SELECT r.k, 2 AS turn, r.id, r.began, r.ended, r.status, r.token, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS moment,
		r.record
	FROM (SELECT l.k,
			(SELECT m.ended FROM dlock_runs m FORCE INDEX (ids) WHERE m.k = l.k AND m.id = l.id AND m.status = 0
				ORDER BY m.ended DESC, m.token DESC LIMIT 1) AS ended,
			(SELECT m.token FROM dlock_runs m FORCE INDEX (ids) WHERE m.k = l.k AND m.id = l.id AND m.status = 0
				ORDER BY m.ended DESC, m.token DESC LIMIT 1) AS token
		FROM (SELECT k, id FROM dlock_runs FORCE INDEX (ids)
			WHERE status = 0 AND (k > p_after OR (k = p_after AND id > p_id)) AND id IS NOT NULL
			GROUP BY k, id ORDER BY k, id LIMIT p_most) l LIMIT p_most) g
		JOIN dlock_runs r ON r.k = g.k AND r.ended = g.ended AND r.token = g.token
	ORDER BY r.k, r.id
//
-- The same, as clients of before call it.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_done_3(p_after VARBINARY(512), p_id VARBINARY(200), p_most INT)
	CALL dlock_list_ids_3(p_after, p_id, p_most)
//
-- Of dlock_ended, up to p_most behind this ID of this key, in the order of keys and IDs: a run of an ID (turn 2), or
-- one that is no job's (turn 3), of which alone that of p_k is told, if that is not NULL.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_ended_3(p_k VARBINARY(512), p_after VARBINARY(512), p_id VARBINARY(200), p_most INT)
	(SELECT k, 3 AS turn, id, began, ended, status, token, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS moment, record
		FROM dlock_ended WHERE k = p_k AND id = '')
	UNION ALL
	(SELECT k, CASE id WHEN '' THEN 3 ELSE 2 END, id, began, ended, status, token, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED),
		record
		FROM dlock_ended FORCE INDEX (PRIMARY) WHERE p_k IS NULL AND (k > p_after OR (k = p_after AND id > p_id))
		ORDER BY k, id LIMIT p_most)
	ORDER BY 1, 3
//
-- Forgets the runs of that ID (NULL: all of them).
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_forget_3(p_k VARBINARY(512), p_id VARBINARY(200))
BEGIN
	DECLARE t BIGINT;
	DECLARE v_done INT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	DELETE FROM dlock_runs WHERE k = p_k AND (p_id IS NULL OR id = p_id);
	SET v_done = ROW_COUNT() > 0;
	COMMIT;
	SELECT v_done AS done;
END
//
-- The same, and what dlock_ended has of it.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_forget_run_3(p_k VARBINARY(512), p_id VARBINARY(200))
BEGIN
	DECLARE t BIGINT;
	DECLARE v_done INT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	DELETE FROM dlock_runs WHERE k = p_k AND (p_id IS NULL OR id = p_id);
	SET v_done = ROW_COUNT();
	DELETE FROM dlock_ended WHERE k = p_k AND (p_id IS NULL OR (id = p_id AND p_id <> ''));
	SET v_done = v_done + ROW_COUNT() > 0;
	COMMIT;
	SELECT v_done AS done;
END
//
-- Asks the holder with this token (and owner, if not NULL) to give it up.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_ask_back_3(p_k VARBINARY(512), p_token BIGINT, p_owner VARBINARY(32), p_record VARBINARY(1023))
BEGIN
	DECLARE v_ends BIGINT;
	DECLARE v_done INT DEFAULT 0;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_write_3();
	START TRANSACTION;
	SELECT ends INTO v_ends FROM dlock_holds
		WHERE k = p_k AND token = p_token AND token > 0 AND owner = COALESCE(p_owner, owner) FOR UPDATE;
	IF v_ends > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) THEN
		UPDATE dlock_holds SET wanted_by = p_record WHERE k = p_k AND token = p_token;
		SET v_done = 1;
	END IF;
	COMMIT;
	SELECT v_done AS done;
END
//
-- Takes the hold with this token (and owner, if not NULL) away, and grants to who is next.
-- @dlock_wake: the wake-up lock on which others may sleep, for its session does not know yet.  A
-- sleeper that is not woken sleeps on for 10 s at most, and is to find its grant still there.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_take_away_3(p_k VARBINARY(512), p_token BIGINT, p_owner VARBINARY(32), p_record VARBINARY(1023))
BEGIN
	DECLARE t, v_ends BIGINT;
	DECLARE v_done INT DEFAULT 0;
	DECLARE v_bell VARBINARY(33);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	SELECT ends, bell INTO v_ends, v_bell FROM dlock_holds
		WHERE k = p_k AND token = p_token AND token > 0 AND owner = COALESCE(p_owner, owner) FOR UPDATE;
	IF v_ends > t THEN
		SET v_done = 1, @dlock_wake = v_bell;
		DELETE FROM dlock_holds WHERE k = p_k AND token = p_token;
		DELETE FROM dlock_broken WHERE at < t - 86400000000 ORDER BY at LIMIT 100;
		INSERT INTO dlock_broken (k, token, at, record) VALUES (p_k, p_token, t, p_record)
			ON DUPLICATE KEY UPDATE record = p_record;
		CALL dlock_serve_3(p_k, NULL, t, 12000000);
	ELSE
		SELECT COUNT(*) INTO v_done FROM dlock_broken WHERE k = p_k AND token = p_token AND record = p_record;
	END IF;
	COMMIT;
	SELECT v_done AS done;
END
//
-- Nobody is granted the key any more, for so many milliseconds (NULL: without an end) or until
-- dlock_thaw.  The row of the key is changed, as by each grant: where several servers write, of two
-- transactions that change one row at once only the first is committed.  So a freeze that is
-- committed is seen by each later grant, also by way of a server where it has not arrived.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_freeze_key_3(p_k VARBINARY(512), p_record VARBINARY(1023), p_length_ms BIGINT)
BEGIN
	DECLARE t, v_ends BIGINT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	UPDATE dlock_keys SET last = GREATEST(last + 1, t) WHERE k = p_k;
	SET v_ends = CASE WHEN p_length_ms < 3153600000000 THEN t + p_length_ms * 1000 ELSE 9223372036854775807 END;
	INSERT INTO dlock_holds (k, token, owner, kind, room, since, ends, record)
		VALUES (p_k, 0, '', 'freeze', 0, t, v_ends, p_record)
		ON DUPLICATE KEY UPDATE since = t, ends = v_ends, record = p_record;
	COMMIT;
	SELECT 1 AS done;
END
//
-- The same, as clients of before call it.  (In a database that one of them has made it does not
-- change the row of the key.)
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_freeze_3(p_k VARBINARY(512), p_record VARBINARY(1023), p_length_ms BIGINT)
	CALL dlock_freeze_key_3(p_k, p_record, p_length_ms)
//
-- Ends that, and grants to who is next.  done 0: it was not frozen.
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_thaw_3(p_k VARBINARY(512))
BEGIN
	DECLARE t, v_ends BIGINT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_lock_key_3(p_k, NULL, t);
	SELECT ends INTO v_ends FROM dlock_holds WHERE k = p_k AND token = 0;
	IF v_ends IS NOT NULL THEN
		DELETE FROM dlock_holds WHERE k = p_k AND token = 0;
		CALL dlock_serve_3(p_k, NULL, t, 3000000);
	END IF;
	COMMIT;
	SELECT COALESCE(v_ends > t, 0) AS done;
END
//
