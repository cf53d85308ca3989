-- The real text of version 2 of backends/mysql/schema.sql, of 2026-11-24, without its comments.
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
CREATE TABLE IF NOT EXISTS dlock_broken (
	k VARBINARY(512) NOT NULL,
	token BIGINT NOT NULL,
	at BIGINT NOT NULL,
	record VARBINARY(1023) NOT NULL COMMENT 'of who took it away by force',
	PRIMARY KEY (k, token),
	KEY times (at)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS dlock_rows (
	k VARBINARY(512) NOT NULL PRIMARY KEY
) ENGINE = InnoDB
//
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
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_must_write_2()
BEGIN
	IF @@global.read_only NOT IN ('0', 'OFF') THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	END IF;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_must_lock_2()
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
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_take_bell_2(p_bell VARBINARY(33))
BEGIN
	IF COALESCE(IS_USED_LOCK(CONCAT('dlock:', p_bell)), 0) <> CONNECTION_ID() THEN
		DO GET_LOCK(CONCAT('dlock:', p_bell), 0);
	END IF;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_serve_2(p_k VARBINARY(512), p_me VARBINARY(32), p_now BIGINT, p_first BIGINT)
BEGIN
	DECLARE v_held, v_room, v_slot, w_room INT;
	DECLARE v_kind, w_kind VARBINARY(9);
	DECLARE v_token, v_stop BIGINT DEFAULT 0;
	DECLARE v_after BIGINT DEFAULT -9223372036854775807;
	DECLARE w_ticket, w_lease, w_alive BIGINT;
	DECLARE w_owner VARBINARY(32);
	DECLARE w_bell VARBINARY(33);
	DECLARE w_record VARBINARY(1023);
	INSERT INTO dlock_keys (k, last) VALUES (p_k, 0) ON DUPLICATE KEY UPDATE last = last;
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
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_enter_2(p_k VARBINARY(512), p_me VARBINARY(32), p_record VARBINARY(1023), p_lease BIGINT,
	p_patience BIGINT, p_kind VARBINARY(9), p_room INT, p_bells INT, p_once VARBINARY(200), p_cooldown BIGINT,
	p_by BIGINT)
BEGIN
	DECLARE t, v_token, v_ticket, v_last, v_began, v_left, v_since, v_exclusive, w_ticket, w_alive BIGINT;
	DECLARE v_code, v_slot, v_place, v_holders, v_held_room, v_next, v_together, v_tries, v_step INT;
	DECLARE v_kind, v_held_kind VARBINARY(9);
	DECLARE v_done_by VARBINARY(8);
	DECLARE v_bell, w_bell, v_ahead, v_holds_bell VARBINARY(33);
	DECLARE v_holder, v_record VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;

	CALL dlock_must_lock_2();
	SET v_code = 0;
	IF p_bells AND p_patience > 0 THEN
		IF @dlock_ahead IS NOT NULL THEN
			DO RELEASE_LOCK(CONCAT('dlock:', @dlock_ahead));
			SET @dlock_ahead = NULL;
		END IF;
		SET v_bell = LEFT(SHA2(p_me, 256), 32);
		CALL dlock_take_bell_2(v_bell);
	END IF;
	START TRANSACTION;
	INSERT INTO dlock_keys (k, last) VALUES (p_k, 0) ON DUPLICATE KEY UPDATE last = last;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	IF t > p_by THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 3024, MESSAGE_TEXT = 'too late for who has asked';
	ELSEIF @@global.read_only NOT IN ('0', 'OFF') THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	END IF;
	DELETE FROM dlock_holds WHERE k = p_k AND ends <= t;
	SELECT token, slot, kind INTO v_token, v_slot, v_kind FROM dlock_holds WHERE k = p_k AND owner = p_me;
	SELECT ticket INTO v_ticket FROM dlock_waiters WHERE k = p_k AND owner = p_me;

	IF p_once IS NOT NULL OR p_cooldown > 0 THEN
		SELECT began, record INTO v_began, v_record FROM dlock_runs
			WHERE k = p_k AND id = p_once AND status = 0 LIMIT 1;
		IF v_began IS NOT NULL THEN
			SET v_done_by = 'once';
		ELSEIF p_cooldown > 0 THEN
			SELECT began, record INTO v_began, v_record FROM dlock_runs
				WHERE k = p_k AND status = 0 AND began < t + 86400000000 ORDER BY began DESC LIMIT 1;
			IF t - v_began < p_cooldown THEN
				SET v_done_by = 'cooldown';
			END IF;
		END IF;
	END IF;

	IF v_done_by IS NOT NULL THEN
		SET v_code = 2, v_token = COALESCE(v_token, v_ticket);
	ELSEIF v_token IS NOT NULL THEN
		SET v_code = 1;
		UPDATE dlock_holds SET ends = t + p_lease WHERE k = p_k AND token = v_token;
	ELSEIF v_ticket IS NULL AND p_kind <> 'exclusive' THEN
		SELECT kind, room INTO v_held_kind, v_held_room FROM dlock_holds
			WHERE k = p_k AND kind NOT IN ('exclusive', 'freeze') AND (kind <> p_kind OR room <> p_room) LIMIT 1;
		IF v_held_kind IS NULL THEN
			SELECT kind, room INTO v_held_kind, v_held_room FROM dlock_waiters
				WHERE k = p_k AND kind <> 'exclusive' AND (kind <> p_kind OR room <> p_room)
				AND CASE WHEN bell IS NULL THEN alive > t ELSE IS_FREE_LOCK(CONCAT('dlock:', bell)) = 0 END LIMIT 1;
		END IF;
		IF v_held_kind IS NOT NULL THEN
			SET v_code = -1;
		ELSE
			DELETE FROM dlock_waiters WHERE k = p_k AND kind <> 'exclusive' AND (kind <> p_kind OR room <> p_room);
		END IF;
	END IF;

	IF v_code = 0 AND v_ticket IS NULL THEN
		UPDATE dlock_keys SET last = GREATEST(last + 1, t) WHERE k = p_k;
		SELECT last INTO v_ticket FROM dlock_keys WHERE k = p_k;
		INSERT INTO dlock_waiters (k, ticket, owner, kind, room, lease, bell, alive, since, record)
			VALUES (p_k, v_ticket, p_me, p_kind, p_room, p_lease, v_bell, CASE WHEN v_bell IS NULL THEN t + GREATEST(p_patience, 1) END, t, p_record);
	ELSEIF v_code = 0 THEN
		UPDATE dlock_waiters SET bell = v_bell, alive = CASE WHEN v_bell IS NULL THEN t + GREATEST(p_patience, 1) END
			WHERE k = p_k AND ticket = v_ticket;
	END IF;
	CALL dlock_serve_2(p_k, p_me, t, 3000000);
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
		IF p_patience = 0 THEN
			DELETE FROM dlock_waiters WHERE k = p_k AND ticket = v_ticket;
		END IF;
	END IF;
	COMMIT;

	IF v_code = 1 AND v_kind <> 'exclusive' AND v_bell IS NOT NULL THEN
		DO RELEASE_LOCK(CONCAT('dlock:', v_bell));
		CALL dlock_take_bell_2(CONCAT(v_bell, 'h'));
	END IF;
	SELECT v_code AS code, v_token AS token, v_slot AS slot, v_place AS place,
		LEAST(CEILING(v_left / 1000), 86400000) AS left_ms, (t - v_since) DIV 1000 AS held_ms, v_holder AS holder,
		v_holders AS holders, v_held_kind AS held_kind, v_held_room AS held_room, v_next AS is_next, v_ahead AS ahead,
		v_done_by AS done_by, v_began DIV 1000 AS began_ms, GREATEST(0, t - v_began) DIV 1000 AS age_ms, v_record AS record, t AS moment;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_await_2(p_k VARBINARY(512), p_me VARBINARY(32), p_ahead VARBINARY(33), p_ms INT)
BEGIN
	DECLARE v_code, v_got, v_slot INT;
	DECLARE v_token BIGINT;
	DECLARE CONTINUE HANDLER FOR 1213, 3058 SET v_got = -1;
	CALL dlock_take_bell_2(LEFT(SHA2(p_me, 256), 32));
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
	SELECT token, slot INTO v_token, v_slot FROM dlock_holds
		WHERE k = p_k AND owner = p_me AND ends > CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	SELECT v_code AS code, v_token AS token, v_slot AS slot;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_renew_2(p_k VARBINARY(512), p_me VARBINARY(32), p_token BIGINT, p_lease BIGINT, p_bells INT)
BEGIN
	DECLARE t, v_ends BIGINT;
	DECLARE v_code INT DEFAULT 0;
	DECLARE v_kind VARBINARY(9);
	DECLARE v_bell VARBINARY(33) DEFAULT LEFT(SHA2(p_me, 256), 32);
	DECLARE v_by VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	SELECT ends, kind, wanted_by INTO v_ends, v_kind, v_by FROM dlock_holds
		WHERE k = p_k AND token = p_token AND owner = p_me FOR UPDATE;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	IF @@global.read_only NOT IN ('0', 'OFF') THEN
		SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'the server is read-only';
	ELSEIF v_ends > t THEN
		SET v_code = 1;
		UPDATE dlock_holds SET ends = t + p_lease WHERE k = p_k AND token = p_token;
	ELSE
		SET v_by = (SELECT record FROM dlock_broken WHERE k = p_k AND token = p_token);
	END IF;
	COMMIT;
	IF v_code AND p_bells THEN
		IF v_kind = 'exclusive' THEN
			CALL dlock_take_bell_2(v_bell);
		ELSE
			DO RELEASE_LOCK(CONCAT('dlock:', v_bell));
			CALL dlock_take_bell_2(CONCAT(v_bell, 'h'));
		END IF;
	END IF;
	SELECT v_code AS code, v_by AS wanted_by;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_release_2(p_k VARBINARY(512), p_secret VARBINARY(32), p_status INT,
	p_once VARBINARY(200))
BEGIN
	DECLARE t, v_last, v_token, v_ticket, v_since, v_ends BIGINT;
	DECLARE v_me VARBINARY(32) DEFAULT LEFT(SHA2(p_secret, 256), 32);
	DECLARE v_bell VARBINARY(33) DEFAULT LEFT(SHA2(v_me, 256), 32);
	DECLARE v_record VARBINARY(1023);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_write_2();
	START TRANSACTION;
	SELECT last INTO v_last FROM dlock_keys WHERE k = p_k FOR UPDATE;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	SELECT token, since, ends, record INTO v_token, v_since, v_ends, v_record FROM dlock_holds
		WHERE k = p_k AND owner = v_me FOR UPDATE;
	IF v_token IS NOT NULL THEN
		DELETE FROM dlock_holds WHERE k = p_k AND token = v_token;
	ELSE
		SELECT ticket INTO v_ticket FROM dlock_waiters WHERE k = p_k AND owner = v_me;
		DELETE FROM dlock_waiters WHERE k = p_k AND ticket = v_ticket;
	END IF;
	IF EXISTS (SELECT 1 FROM dlock_waiters WHERE k = p_k) THEN
		DELETE FROM dlock_holds WHERE k = p_k AND ends <= t;
		CALL dlock_serve_2(p_k, NULL, t, 3000000);
	END IF;
	IF p_status IS NOT NULL AND v_ends > t THEN
		INSERT INTO dlock_runs (k, ended, token, id, began, status, record)
			VALUES (p_k, t, v_token, p_once, v_since, p_status, v_record);
		DELETE FROM dlock_runs WHERE ended < t - 34560000000000 ORDER BY ended LIMIT 100;
	END IF;
	COMMIT;
	DO RELEASE_LOCK(CONCAT('dlock:', v_bell)), RELEASE_LOCK(CONCAT('dlock:', v_bell, 'h'));
	SELECT CASE WHEN v_ends > t THEN 1 WHEN v_ticket IS NOT NULL THEN 2 ELSE 0 END AS code;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_take_2(p_k VARBINARY(512), p_me VARBINARY(32), p_record VARBINARY(1023), p_lease BIGINT, p_bells INT,
	p_by BIGINT)
BEGIN
	DECLARE t, v_token BIGINT;
	DECLARE v_bell VARBINARY(33) DEFAULT IF(p_bells, LEFT(SHA2(p_me, 256), 32), NULL);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_lock_2();
	IF p_bells AND COALESCE(IS_USED_LOCK(CONCAT('dlock:', v_bell)), 0) <> CONNECTION_ID() THEN
		DO GET_LOCK(CONCAT('dlock:', v_bell), 0);
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
			VALUES (p_k, v_token, p_me, 'exclusive', 0, -1, v_bell, t, t + p_lease, p_record);
		COMMIT;
	END IF;
	SELECT v_token AS token;
END
//

CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_list_2(p_k VARBINARY(512), p_after VARBINARY(512),
	p_turn INT, p_number BIGINT, p_most INT)
BEGIN
	DECLARE t BIGINT DEFAULT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	DECLARE v_to VARBINARY(512) DEFAULT COALESCE(p_k, REPEAT(x'ff', 512));
	DECLARE v_last BIGINT DEFAULT 9223372036854775807;
	DECLARE v_token BIGINT DEFAULT CASE WHEN p_turn < 0 THEN 0 WHEN p_turn = 0 THEN p_number ELSE v_last END;
	DECLARE v_ticket BIGINT DEFAULT CASE WHEN p_turn < 1 THEN -v_last - 1 WHEN p_turn = 1 THEN p_number ELSE v_last END;
	DECLARE v_before INT DEFAULT p_most - 1;
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
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_last_run_2(p_k VARBINARY(512))
	SELECT id, began, ended, status, token, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) AS moment, record
		FROM dlock_runs WHERE k = p_k ORDER BY ended DESC, token DESC LIMIT 1
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_ask_back_2(p_k VARBINARY(512), p_token BIGINT, p_owner VARBINARY(32), p_record VARBINARY(1023))
BEGIN
	DECLARE v_ends BIGINT;
	DECLARE v_done INT DEFAULT 0;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_write_2();
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
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_take_away_2(p_k VARBINARY(512), p_token BIGINT, p_owner VARBINARY(32), p_record VARBINARY(1023))
BEGIN
	DECLARE t, v_last, v_ends BIGINT;
	DECLARE v_done INT DEFAULT 0;
	DECLARE v_bell VARBINARY(33);
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_write_2();
	START TRANSACTION;
	SELECT last INTO v_last FROM dlock_keys WHERE k = p_k FOR UPDATE;
	SELECT ends, bell INTO v_ends, v_bell FROM dlock_holds
		WHERE k = p_k AND token = p_token AND token > 0 AND owner = COALESCE(p_owner, owner) FOR UPDATE;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	IF v_ends > t THEN
		SET v_done = 1;
		DELETE FROM dlock_holds WHERE k = p_k AND (token = p_token OR ends <= t);
		DELETE FROM dlock_broken WHERE at < t - 86400000000 ORDER BY at LIMIT 100;
		INSERT INTO dlock_broken (k, token, at, record) VALUES (p_k, p_token, t, p_record)
			ON DUPLICATE KEY UPDATE record = p_record;
		CALL dlock_serve_2(p_k, NULL, t, 12000000);
	ELSE
		SELECT COUNT(*) INTO v_done FROM dlock_broken WHERE k = p_k AND token = p_token AND record = p_record;
	END IF;
	COMMIT;
	SELECT v_done AS done, CASE WHEN v_done THEN v_bell END AS bell;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_freeze_2(p_k VARBINARY(512), p_record VARBINARY(1023), p_length BIGINT)
BEGIN
	DECLARE t, v_ends BIGINT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_write_2();
	START TRANSACTION;
	INSERT INTO dlock_keys (k, last) VALUES (p_k, 0) ON DUPLICATE KEY UPDATE last = last;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	SET v_ends = CASE WHEN p_length < 3153600000000000 THEN t + p_length ELSE 9223372036854775807 END;
	INSERT INTO dlock_holds (k, token, owner, kind, room, since, ends, record)
		VALUES (p_k, 0, '', 'freeze', 0, t, v_ends, p_record)
		ON DUPLICATE KEY UPDATE since = t, ends = v_ends, record = p_record;
	COMMIT;
	SELECT 1 AS done;
END
//
CREATE PROCEDURE /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ dlock_thaw_2(p_k VARBINARY(512))
BEGIN
	DECLARE t, v_last, v_ends BIGINT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	CALL dlock_must_write_2();
	START TRANSACTION;
	SELECT last INTO v_last FROM dlock_keys WHERE k = p_k FOR UPDATE;
	SET t = CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED);
	SELECT ends INTO v_ends FROM dlock_holds WHERE k = p_k AND token = 0;
	IF v_ends IS NOT NULL THEN
		DELETE FROM dlock_holds WHERE k = p_k AND (token = 0 OR ends <= t);
		CALL dlock_serve_2(p_k, NULL, t, 3000000);
	END IF;
	COMMIT;
	SELECT COALESCE(v_ends > t, 0) AS done;
END
//
