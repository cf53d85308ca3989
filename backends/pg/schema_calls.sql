-- schema_calls.sql - what clients call: the second half of schema.sql, behind which the build puts it.

-- ---- mode=lease ----
--
-- `session` is what the client takes for its server process: 0, or another one behind a pooler,
-- and then nothing is kept in the session.  `had_own`: it has its wake-up lock; the answer
-- has_own: whether it has it now (NULL: as before).

-- Takes, exclusively, what nobody holds or waits for.  NULL: there is somebody.  `my_wake` is
-- wake_lock(me): this and release_alone() call no function of ours, since in a new session each
-- costs more than what it does.
CREATE OR REPLACE FUNCTION dlock.take(the_key text, me text, my_record text, lease_ms bigint, session integer,
	my_wake bigint, OUT token bigint, OUT direct boolean, OUT has_own boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
	INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, lease, direct, token, slot, seal, leads, ends, since, record)
		SELECT the_key, n.n, me, 'exclusive', 0, lease_ms * '1 ms'::interval, session = pg_backend_pid(), n.n, 0, 'exclusive 0 0',
			true, clock_timestamp() + lease_ms * '1 ms'::interval, clock_timestamp(), "left"(my_record, 1023)
		FROM (SELECT nextval('dlock.numbers') FROM (SELECT pg_advisory_xact_lock(1684828011, hashtext(the_key)),
			CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
			OFFSET 0) l OFFSET 0) n(n)
		WHERE NOT EXISTS (SELECT FROM dlock.claims o WHERE o.key = the_key)
	ON CONFLICT DO NOTHING
	RETURNING c.token, c.direct, CASE WHEN c.direct THEN pg_try_advisory_lock(my_wake) END
$$;

-- Asks for the lock, or for one's place in the queue; the same for an owner who asks again.
-- `my_room`: the limit, 0 for other kinds.  `patience_ms` 0: do not queue; behind a pooler, for so
-- long without another question the waiter counts as alive.  `my_once`, `cooldown_ms`: of a job;
-- NULL and 0: it is none.
--
-- code 1: granted this token and this `slot`.  An exclusive claim keeps its wake-up lock.
-- code -1: in use with `held_kind` and `held_room`, which do not go with ours.
-- code 2: the job is done: `done_by` once or cooldown, when that run began, how long ago, its
-- record.  token: our ticket, if we are in the queue or hold: that is left to a release.
-- code 0: `place` in the queue, ms until a lease ends, ms since the holder was granted, its
-- record, how many hold, and what kind; `ahead`, the wake-up lock to sleep on (NULL: there is
-- none); `is_next`: the end of that lease concerns us, too; `is_listening`: a notification will
-- come.
-- `direct`: there is no pooler.  `moment`: the server's time, in microseconds.
--
-- While somebody holds exclusively, nobody else can be granted.  So behind such a holder an exclusive
-- claim without a job only takes its place and looks where that is; if it does not queue, it looks,
-- and waits for nobody.  The look is run once before, so that it is quick while we have the key's lock.
-- All else is enter_fully()'s.
CREATE OR REPLACE FUNCTION dlock.enter(the_key text, me text, my_record text, lease_ms bigint, patience_ms bigint,
	my_kind text, my_room integer, my_once text, cooldown_ms bigint, session integer, had_own boolean,
	OUT code integer, OUT token bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT is_next boolean,
	OUT ahead bigint, OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT record text,
	OUT direct boolean, OUT has_own boolean, OUT is_listening boolean, OUT moment bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	t timestamptz;
	is_there boolean;	-- we are in the queue
	is_told boolean;	-- all that there is to tell; NULL: it is not held so
BEGIN
	direct := session = pg_backend_pid();
	IF direct AND my_kind = 'exclusive' AND my_once IS NULL AND cooldown_ms = 0 THEN
		IF patience_ms > 0 AND NOT had_own THEN
			PERFORM dlock.settle();
		END IF;
		FOR turn IN 1..2 LOOP
			t := clock_timestamp();
			SELECT m.key IS NOT NULL, CASE WHEN patience_ms = 0 THEN m.key IS NULL
					ELSE coalesce(m.slot IS NULL AND m.kind = 'exclusive' AND m.direct AND m.alive IS NULL, false) END
				AND (p.ticket IS NULL OR p.direct AND NOT CASE WHEN pg_try_advisory_lock_shared(dlock.wake_lock(p.owner))
					THEN pg_advisory_unlock_shared(dlock.wake_lock(p.owner)) ELSE false END),
				(SELECT count(*) + (m.key IS NULL)::integer FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NULL
					AND c.ticket <= coalesce(m.ticket, c.ticket) AND (c.alive IS NULL OR c.alive > t)),
				ceil(1000 * extract(epoch FROM least(h.ends, t + '1 day'::interval) - t)), greatest(0, 1000 * extract(epoch FROM t - h.since)),
				"left"(h.record, 1023), 1, h.kind, h.room, p.ticket IS NULL,
				CASE WHEN p.ticket IS NOT NULL OR h.direct THEN dlock.wake_lock(coalesce(p.owner, h.owner)) END
				INTO is_there, is_told, place, left_ms, held_ms, holder, holders, held_kind, held_room, is_next, ahead
				FROM dlock.claims h LEFT JOIN dlock.claims m ON m.key = the_key AND m.owner = me
				LEFT JOIN LATERAL (SELECT c.ticket, c.owner, c.direct FROM dlock.claims c
					WHERE c.key = the_key AND c.ticket < m.ticket AND c.slot IS NULL ORDER BY c.ticket DESC LIMIT 1) p ON true
				WHERE h.key = the_key AND h.leads AND h.kind = 'exclusive' AND h.ends > t AND h.owner <> me;
			IF is_told THEN
				code := 0;
				has_own := had_own OR pg_try_advisory_lock(dlock.wake_lock(me));
				is_listening := false;
				moment := dlock.microseconds(t);
				RETURN;
			END IF;
			EXIT WHEN is_told IS NULL OR is_there;
			INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, seal, lease, direct, since, record)
				SELECT the_key, nextval('dlock.numbers'), me, 'exclusive', 0, 'exclusive 0 -1', lease_ms * '1 ms'::interval, true,
					clock_timestamp(), "left"(my_record, 1023)
				FROM dlock.lock_key(the_key)
				ON CONFLICT DO NOTHING;
		END LOOP;
	END IF;
	SELECT * INTO code, token, slot, place, left_ms, held_ms, holder, holders, held_kind, held_room, is_next, ahead,
			done_by, began_ms, age_ms, record, direct, has_own, is_listening, moment
		FROM dlock.enter_fully(the_key, me, my_record, lease_ms, patience_ms, my_kind, my_room, my_once, cooldown_ms, session, had_own);
END
$$;

-- Sleeps until somebody has no more of `ahead`, `ms` at most.  code 0: in vain; then where we are
-- is told as by enter().  1: woken; 2: it was free from the beginning.  token: of a grant, within
-- the last 3 s, to be confirmed by a renewal; NULL: not, and with code 0 and `place` NULL the claim
-- is gone.
-- A statement that sleeps keeps a snapshot, for which CREATE INDEX CONCURRENTLY and VACUUM wait: so
-- let ms be small.
--
-- A waiter that has been notified gives no `ahead`, and so does not sleep.
--
-- One that is granted and not exclusive gives back its wake-up lock at once: others may fit
-- beside it, and the one behind it is to learn that it is the first in line.
--
-- For the first time in a session, it first runs what there will be in a hurry when our turn
-- comes, for a key that cannot be: what PL/pgSQL runs for the first time takes 3 ms more.
CREATE OR REPLACE FUNCTION dlock.await(the_key text, me text, ahead bigint, ms integer, had_own boolean,
	OUT code integer, OUT token bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT is_next boolean, OUT has_own boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
	ticket bigint;	-- ours, if it waits
	unlistens boolean;
	gave boolean;
	holds_owner text;
BEGIN
	has_own := had_own OR pg_try_advisory_lock(dlock.wake_lock(me));
	IF current_setting('dlock.rehearsed', true) IS DISTINCT FROM 'yes' THEN
		PERFORM set_config('dlock.rehearsed', 'yes', false), dlock.renew(E'\001' || me, me, 0, 0, 0),
			dlock.release(E'\001' || me, me, NULL, NULL, false), dlock.await(E'\001' || me, me, dlock.wake_lock(me), 1, true),
			CASE WHEN EXISTS (SELECT FROM dlock.claims c WHERE c.key = the_key AND c.kind <> 'exclusive')
				THEN dlock.serve(E'\001' || me, me, clock_timestamp()) IS NULL END;
	END IF;
	IF ahead IS NULL OR pg_try_advisory_xact_lock_shared(ahead) THEN
		code := 2;
	ELSE
		BEGIN
			PERFORM set_config('lock_timeout', ms::text, true);
			PERFORM pg_advisory_xact_lock_shared(ahead);
			code := 1;
		EXCEPTION WHEN lock_not_available THEN
			code := 0;
		END;
	END IF;
	-- One statement, all of which the rehearsal has run: each more would be the first of its kind here.
	SELECT CASE WHEN c.runs THEN c.token END, CASE WHEN c.runs THEN c.slot END, CASE WHEN c.slot IS NULL THEN c.ticket END,
			c.runs AND c.listens, CASE WHEN c.runs AND c.kind <> 'exclusive' AND has_own
				THEN pg_advisory_unlock(dlock.wake_lock(me)) END
		INTO token, slot, ticket, unlistens, gave
		FROM (SELECT o.*, o.ends > clock_timestamp() AS runs FROM dlock.claims o
			WHERE o.key = the_key AND o.owner = me OFFSET 0) c;
	has_own := has_own AND gave IS NULL;
	IF unlistens THEN
		EXECUTE 'UNLISTEN *';
	END IF;
	IF code = 0 AND ticket IS NOT NULL THEN
		SELECT l.place, l.left_ms, l.held_ms, l.holder, l.holders, l.held_kind, l.held_room, l.holds_owner
			INTO place, left_ms, held_ms, holder, holders, held_kind, held_room, holds_owner
			FROM dlock.look(the_key, ticket, clock_timestamp()) l;
		is_next := coalesce(dlock.wake_lock(holds_owner) = ahead, false);
	END IF;
END
$$;

-- Extends a lease that still runs and is the one granted with this token.  `wanted_by`: who asks to
-- give it up; with code 0, who has taken it away.
CREATE OR REPLACE FUNCTION dlock.renew(the_key text, me text, my_token bigint, lease_ms bigint, session integer,
	OUT code integer, OUT wanted_by text, OUT has_own boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
BEGIN
	UPDATE dlock.claims c SET ends = clock_timestamp() + lease_ms * '1 ms'::interval
		WHERE c.key = the_key AND c.owner = me AND c.token = my_token AND c.ends > clock_timestamp()
		RETURNING CASE WHEN dlock.flush() IS NULL THEN 1 ELSE 1 END, "left"(c.wanted_by, 1023),
			CASE WHEN session = pg_backend_pid() AND c.kind = 'exclusive' THEN pg_try_advisory_lock(dlock.wake_lock(me)) END
		INTO code, wanted_by, has_own;
	IF code IS NULL THEN
		code := 0;
		IF my_token > 0 THEN
			SELECT "left"(b.record, 1023) INTO wanted_by FROM dlock.broken b WHERE b.token = my_token AND b.key = the_key;
		END IF;
	END IF;
END
$$;

-- Gives back what this owner holds, or its place in the queue, and grants to who is next; and its
-- wake-up lock.  1: held until now; 2: waited; 0: neither.  With `my_status` the run of a job is
-- remembered, if it held until now; that waits for the disk.  What ended 400 days ago is forgotten:
-- a hundred of them, so that nobody waits long for that.
--
-- Otherwise it does not wait for the disk: a release that a crash undoes ends with its lease, and a
-- grant made here counts when it has been confirmed, which waits.
--
-- Who holds exclusively and leads has held alone.  So if nobody waits, or an exclusive claim is next
-- and there, serve() is not needed; nor is it for a waiter that leaves while another holds so.  A
-- rehearsal leaves it out.
CREATE OR REPLACE FUNCTION dlock.release(the_key text, me text, my_status integer, my_once text, had_own boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	mine dlock.claims;
	moment timestamptz;
	w record;
	grants boolean;	-- to w, as serve() would
	is_served boolean := the_key = E'\001' || me;	-- a rehearsal
BEGIN
	PERFORM dlock.lock_key(the_key);
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me RETURNING * INTO mine;
	moment := clock_timestamp();
	IF is_served OR mine.leads AND mine.kind = 'exclusive' THEN
		SELECT c.ticket, c.owner, c.kind, c.direct, c.listens INTO w FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NULL
			ORDER BY c.ticket LIMIT 1;
		grants := w.kind = 'exclusive' AND w.direct AND NOT w.listens AND NOT pg_try_advisory_xact_lock_shared(dlock.wake_lock(w.owner));
		UPDATE dlock.claims c SET token = nextval('dlock.numbers'), since = moment, alive = NULL, leads = true,
				ends = moment + least(c.lease, '3 s'::interval), slot = 0, seal = 'exclusive 0 0'
			WHERE c.key = the_key AND c.ticket = w.ticket AND grants;
		is_served := coalesce(grants, true);
	ELSIF mine.ticket IS NOT NULL AND mine.slot IS NULL THEN
		PERFORM 1 FROM dlock.claims h WHERE h.key = the_key AND h.leads AND h.kind = 'exclusive' AND h.ends > moment;
		is_served := FOUND;
	END IF;
	IF NOT is_served THEN
		PERFORM dlock.serve(the_key, NULL, moment);
	END IF;
	IF had_own THEN
		PERFORM pg_advisory_xact_lock(dlock.wake_lock(me)), pg_advisory_unlock(dlock.wake_lock(me));
	END IF;
	IF my_status IS NOT NULL AND mine.ends > moment THEN
		INSERT INTO dlock.runs (key, id, began, ended, status, token, record)
			VALUES (the_key, my_once, mine.since, moment, my_status, mine.token, mine.record);
		DELETE FROM dlock.runs u WHERE u.ctid = ANY (ARRAY(SELECT o.ctid FROM dlock.runs o
			WHERE o.ended < moment - '400 days'::interval ORDER BY o.ended LIMIT 100));
		PERFORM dlock.flush();
	ELSE
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	RETURN CASE WHEN mine.ends > moment THEN 1 WHEN mine.ticket IS NOT NULL AND mine.slot IS NULL THEN 2 ELSE 0 END;
END
$$;

-- Has this ID ended by a run that counts for --no-retry, and by none with 0?  When that began, its status and record;
-- NULL: no.  Asked by who holds, for a run that ends is kept by the transaction that gives the lock back.
CREATE OR REPLACE FUNCTION dlock.find_ended(the_key text, the_id text, OUT began_ms bigint, OUT status integer, OUT record text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	SELECT (1000 * extract(epoch FROM e.began))::bigint, e.status, "left"(e.record, 1023)
	FROM dlock.ended e WHERE e.key = the_key AND e.id = the_id
		AND NOT EXISTS (SELECT FROM dlock.runs u WHERE u.key = the_key AND u.id = the_id AND u.status = 0)
$$;

-- The same as release(), and the run is kept in `ended`.  `what`: final, a job's that counts for --no-retry; shown, no job's.
CREATE OR REPLACE FUNCTION dlock.release_run(the_key text, me text, my_status integer, my_once text, what text, had_own boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	mine dlock.claims;
	was integer;
BEGIN
	PERFORM dlock.lock_key(the_key);
	SELECT * INTO mine FROM dlock.claims c WHERE c.key = the_key AND c.owner = me;
	was := dlock.release(the_key, me, CASE what WHEN 'final' THEN my_status END, my_once, had_own);
	IF was = 1 THEN
		INSERT INTO dlock.ended AS e (key, id, began, ended, status, token, record)
			VALUES (the_key, CASE what WHEN 'final' THEN my_once ELSE '' END, mine.since, clock_timestamp(), my_status, mine.token,
				mine.record)
			ON CONFLICT (key, id) DO UPDATE SET (began, ended, status, token, record) =
				(excluded.began, excluded.ended, excluded.status, excluded.token, excluded.record);
		DELETE FROM dlock.ended e WHERE e.ctid = ANY (ARRAY(SELECT o.ctid FROM dlock.ended o
			WHERE o.ended < clock_timestamp() - '400 days'::interval ORDER BY o.ended LIMIT 100));
		PERFORM dlock.flush();
	END IF;
	RETURN was;
END
$$;

-- The same where probably nobody else has to do with the key.  `my_wake` 0: the session lacks it.
CREATE OR REPLACE FUNCTION dlock.release_alone(the_key text, me text, my_wake bigint) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
	WITH alone AS (
		DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me AND c.slot IS NOT NULL AND c.kind = 'exclusive'
			AND NOT EXISTS (SELECT FROM dlock.claims o WHERE o.key = the_key AND o.owner <> me)
		RETURNING c.ends > clock_timestamp() AS still, set_config('synchronous_commit', 'off', true),
			CASE WHEN my_wake <> 0 THEN pg_advisory_xact_lock(my_wake) IS NULL END,
			CASE WHEN my_wake <> 0 THEN pg_advisory_unlock(my_wake) END
	)
	SELECT a.still::integer FROM alone a
	UNION ALL
	SELECT dlock.release(the_key, me, NULL, NULL, my_wake <> 0) WHERE NOT EXISTS (SELECT FROM alone)
$$;

-- Ends sessions of ours that are left over from a broken connection and keep our wake-up lock: a
-- waiter for that would wait for nobody.  With the caller's own rights.
CREATE OR REPLACE FUNCTION dlock.end_old_sessions(me text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
	SELECT count(pg_terminate_backend(l.pid)) FROM dlock.advisory_locks() l
	WHERE l.form = 1 AND l.number = dlock.wake_lock(me) AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
		AND l.pid IN (SELECT a.pid FROM pg_stat_activity a WHERE a.usename = current_user)
$$;

-- ---- mode=row ----

CREATE OR REPLACE FUNCTION dlock.add_row(the_key text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$ INSERT INTO dlock.rows (key) VALUES (the_key) ON CONFLICT DO NOTHING $$;

-- Locks the key's row in the caller's transaction, and makes a lease of it: the server ends a
-- transaction that is silent for `lease_ms`.  With `patient` it waits for the row, as long as the
-- caller's timeouts let it.
--
-- A row that is locked FOR SHARE can be so by more, also while somebody waits to lock it FOR UPDATE.
-- So everybody takes an advisory lock of the transaction before the row, in the same manner, and
-- there the server serves in order.
--
-- code 1: locked, `granted` is the token, `transaction`.  -1: there is no such row.
-- code 0: how many wait, the server process of one who holds it, how many they are, and whether
-- they share it.
--
-- A crash loses what an open transaction has written, numbers drawn included; so the token is also
-- later than the clock was for any before.  A reader cannot write the token into the row that it
-- shares, and pushes the sequence instead.
CREATE OR REPLACE FUNCTION dlock.lock_row(the_key text, lease_ms bigint, patient boolean, name text, shared boolean,
	OUT code integer, OUT granted bigint, OUT transaction bigint, OUT waiting bigint, OUT holder integer,
	OUT holders bigint, OUT is_shared boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
	old dlock.rows;
	locker xid;
	place tid;
	one integer := hashtext(the_key);
	two integer := hashtext(the_key || E'\001');
	the_lock bigint := (one::bigint << 32) | (two::bigint & 4294967295);
	got boolean := true;
BEGIN
	PERFORM set_config('application_name', name, true);
	PERFORM set_config('idle_in_transaction_session_timeout', lease_ms::text, true);
	IF NOT patient THEN
		got := CASE WHEN shared THEN pg_try_advisory_xact_lock_shared(one, two) ELSE pg_try_advisory_xact_lock(one, two) END;
	ELSIF shared THEN
		PERFORM pg_advisory_xact_lock_shared(one, two);
	ELSE
		PERFORM pg_advisory_xact_lock(one, two);
	END IF;
	EXECUTE format('SELECT * FROM dlock.rows r WHERE $1 AND r.key = $2 FOR %s %s', CASE WHEN shared THEN 'SHARE' ELSE 'UPDATE' END,
		CASE WHEN NOT patient THEN 'SKIP LOCKED' END) INTO old USING got, the_key;
	IF old.key IS NOT NULL THEN
		code := 1;
		granted := greatest(old.token + 1, nextval('dlock.numbers'),
			(1000000 * extract(epoch FROM clock_timestamp()))::bigint);
		IF shared THEN	-- one at a time; nothing in here can wait or fail but the first lock
			SELECT CASE WHEN pg_advisory_lock(1684828012, 0) IS NOT NULL THEN setval('dlock.numbers', greatest(granted,
				nextval('dlock.numbers'))) END, pg_advisory_unlock(1684828012, 0) INTO granted, got;
		ELSE
			UPDATE dlock.rows r SET token = granted WHERE r.key = the_key;
		END IF;
		transaction := txid_current();
		PERFORM set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);
		RETURN;
	END IF;
	-- A transaction that locks the row leaves its number in it.  Others than dlock's wait for that
	-- transaction, or for the place of the row.
	SELECT r.xmax, r.ctid INTO locker, place FROM dlock.rows r WHERE r.key = the_key;
	code := CASE WHEN FOUND THEN 0 ELSE -1 END;
	SELECT min(l.pid), count(*), bool_or(l.mode = 'ShareLock') INTO holder, holders, is_shared FROM dlock.advisory_locks() l
		WHERE l.form = 2 AND l.number = the_lock AND l.granted AND l.pid <> pg_backend_pid();
	IF holder IS NULL THEN
		SELECT l.pid, 1 INTO holder, holders FROM pg_locks l
			WHERE l.locktype = 'transactionid' AND l.transactionid = locker AND l.granted;
		is_shared := false;
	END IF;
	SELECT count(DISTINCT w.pid) INTO waiting FROM (
		SELECT l.pid FROM pg_locks l WHERE NOT l.granted AND ((l.locktype = 'transactionid' AND l.transactionid = locker)
			OR (l.locktype = 'tuple' AND l.relation = 'dlock.rows'::regclass AND format('(%s,%s)', l.page, l.tuple)::tid = place))
		UNION ALL
		SELECT l.pid FROM dlock.advisory_locks() l WHERE l.form = 2 AND l.number = the_lock AND NOT l.granted) w;
END
$$;

-- Of the rows of mode=row, the next `most` in the order of their keys behind `after_key`, or
-- that of `the_key`: who has locked them, or waits for that.  dlock's have, or wait for, the
-- advisory lock first (and then perhaps for the row).  Of others it is known if one has
-- locked a row alone.  Last, without a process: how far this has come, if there may be more.
CREATE OR REPLACE FUNCTION dlock.list_rows(the_key text, after_key text, most integer,
	OUT key text, OUT pid integer, OUT waits boolean, OUT shared boolean, OUT came bigint)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	WITH page AS (
		SELECT r.key, r.xmax AS locker, hashtext(r.key)::bigint & 4294967295 AS one, hashtext(r.key || E'\001')::bigint & 4294967295 AS two
		FROM dlock.rows r
		WHERE r.key BETWEEN coalesce(the_key, after_key) AND coalesce(the_key, (SELECT max(m.key) FROM dlock.rows m))
			AND (the_key IS NOT NULL OR r.key > after_key) AND octet_length(r.key) <= 512
		ORDER BY r.key LIMIT least(most, 5000)
	), locks AS (
		SELECT k.locktype, k.classid::bigint AS one, k.objid::bigint AS two, k.transactionid,
			coalesce(k.pid, 0) AS pid, k.granted, k.mode,	-- 0: a prepared transaction
			CASE WHEN NOT k.granted THEN dlock.microseconds((to_jsonb(k) ->> 'waitstart')::timestamptz) END AS came
		FROM pg_locks k
		WHERE k.locktype = 'advisory' AND k.objsubid = 2 AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
			OR k.locktype = 'relation' AND k.relation = 'dlock.rows'::regclass AND k.mode = 'RowShareLock'
			OR k.locktype = 'transactionid' OR k.locktype = 'tuple' AND NOT k.granted
	)
	SELECT p.key, l.pid, NOT l.granted OR l.pid IN (SELECT w.pid FROM locks w WHERE NOT w.granted), l.mode = 'ShareLock', l.came
		FROM page p JOIN locks l ON l.locktype = 'advisory' AND l.one = p.one AND l.two = p.two
	UNION ALL
	SELECT p.key, l.pid, false, false, NULL
		FROM page p JOIN locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = p.locker
		WHERE l.pid IN (SELECT r.pid FROM locks r WHERE r.locktype = 'relation' AND r.granted)
		AND NOT EXISTS (SELECT FROM locks a WHERE a.locktype = 'advisory' AND a.one = p.one AND a.two = p.two AND a.pid = l.pid)
	UNION ALL
	SELECT max(p.key), NULL, true, false, NULL FROM page p HAVING count(*) = most
	ORDER BY 1, 3, 5, 2
$$;

-- ---- looking and steering ----
--
-- Any role that may use the schema may do all of it.  To look is STABLE: it cannot write, and so also
-- works on a standby.  No owner is shown, for with that anybody could release: a token says which
-- grant is meant.

-- Up to `most` of those who hold or wait and of the freezes, in this order for each key, from
-- behind the one with this key, `turn` and `number`; `the_key` NULL: of all keys.  What has run out
-- is left out: a waiter on a direct connection lives while its wake-up lock is held (a standby does
-- not see that, and believes it).  Nobody has so long a record; and a key that long is not dlock's.
CREATE OR REPLACE FUNCTION dlock.list(the_key text, after_key text, after_turn integer, after_number bigint, most integer,
	OUT key text, OUT turn integer, OUT number bigint, OUT kind text, OUT room integer, OUT token bigint, OUT slot integer,
	OUT since bigint, OUT ends bigint, OUT moment bigint, OUT is_wanted boolean, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	WITH n AS (SELECT clock_timestamp() AS moment)
	SELECT t.key, t.turn, t.number, t.kind, t.room, t.token, t.slot, dlock.microseconds(t.since), dlock.microseconds(t.ends),
		dlock.microseconds(n.moment), t.wanted_by IS NOT NULL, "left"(t.record, 1023)
	FROM n, (
		SELECT c.*, CASE WHEN c.kind = 'freeze' THEN 2 WHEN c.slot IS NULL THEN 1 ELSE 0 END AS turn, coalesce(c.token, c.ticket) AS number
		FROM dlock.claims c
		WHERE c.key BETWEEN after_key AND coalesce(the_key, (SELECT max(l.key) FROM dlock.claims l)) AND octet_length(c.key) <= 512) t
	WHERE (t.key, t.turn, t.number) > (after_key, after_turn, after_number)
		AND CASE WHEN t.slot IS NOT NULL THEN t.ends > n.moment
			WHEN t.direct AND NOT pg_is_in_recovery() THEN dlock.wake_lock(t.owner) IN (SELECT l.number FROM dlock.advisory_locks() l
				WHERE l.form = 1 AND l.mode = 'ExclusiveLock' AND l.granted)
			ELSE coalesce(t.alive > n.moment, true) END
	ORDER BY t.key, t.turn, t.number LIMIT least(most, 1000)
$$;

-- Who asks the holder with this token to give it up, see ask_back().  NULL: nobody does.
CREATE OR REPLACE FUNCTION dlock.asker(the_key text, the_token bigint, OUT wanted_by text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	SELECT "left"(c.wanted_by, 1023) FROM dlock.claims c WHERE c.key = the_key AND c.token = the_token
$$;

-- The run of a job that was the last to end.
CREATE OR REPLACE FUNCTION dlock.last_run(the_key text,
	OUT id text, OUT began bigint, OUT ended bigint, OUT status integer, OUT token bigint, OUT moment bigint, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	SELECT u.id, dlock.microseconds(u.began), dlock.microseconds(u.ended), u.status, u.token,
		dlock.microseconds(clock_timestamp()), "left"(u.record, 1023)
	FROM dlock.runs u WHERE u.key = the_key ORDER BY u.ended DESC, u.token DESC LIMIT 1
$$;

-- Of up to `most` keys behind `after_key`, or of `the_key`: the run that was the last to end (turn 0),
-- and the last one that ended with 0 (turn 1), which may be the same.
CREATE OR REPLACE FUNCTION dlock.list_jobs(the_key text, after_key text, most integer,
	OUT key text, OUT turn integer, OUT id text, OUT began bigint, OUT ended bigint, OUT status integer, OUT token bigint,
	OUT moment bigint, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	WITH RECURSIVE k (key, n) AS (
		SELECT coalesce(the_key, (SELECT min(u.key) FROM dlock.runs u WHERE u.key > after_key)) COLLATE "C", 1
		UNION ALL
		SELECT (SELECT min(u.key) FROM dlock.runs u WHERE u.key > k.key) COLLATE "C", k.n + 1
			FROM k WHERE k.key IS NOT NULL AND the_key IS NULL AND k.n < least(most, 1000)
	)
	SELECT r.key, r.turn, r.id, dlock.microseconds(r.began), dlock.microseconds(r.ended), r.status, r.token,
		dlock.microseconds(clock_timestamp()), "left"(r.record, 1023)
	FROM k, LATERAL (
		(SELECT 0 AS turn, u.* FROM dlock.runs u WHERE u.key = k.key ORDER BY u.ended DESC, u.token DESC LIMIT 1)
		UNION ALL
		(SELECT 1, u.* FROM dlock.runs u WHERE u.key = k.key AND u.status = 0 AND u.began <= clock_timestamp()
			ORDER BY u.ended DESC, u.token DESC LIMIT 1)) r
	ORDER BY k.key, r.turn
$$;

-- Up to `most` IDs behind this one of this key, in the order of keys and IDs, with a run of each that ended with 0 (turn 2).
CREATE OR REPLACE FUNCTION dlock.list_done(after_key text, after_id text, most integer,
	OUT key text, OUT turn integer, OUT id text, OUT began bigint, OUT ended bigint, OUT status integer, OUT token bigint,
	OUT moment bigint, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	SELECT DISTINCT ON (u.key, u.id) u.key, 2, u.id, dlock.microseconds(u.began), dlock.microseconds(u.ended), u.status, u.token,
		dlock.microseconds(clock_timestamp()), "left"(u.record, 1023)
	FROM dlock.runs u WHERE u.status = 0 AND u.id IS NOT NULL AND (u.key, u.id) > (after_key, after_id)
	ORDER BY u.key, u.id LIMIT least(most, 1000)
$$;

-- Of `ended`, up to `most` behind this ID of this key, in the order of keys and IDs: a run of an ID (turn 2), or one that is no
-- job's (turn 3), of which alone that of `the_key` is told, if that is not NULL.
CREATE OR REPLACE FUNCTION dlock.list_ended(the_key text, after_key text, after_id text, most integer,
	OUT key text, OUT turn integer, OUT id text, OUT began bigint, OUT ended bigint, OUT status integer, OUT token bigint,
	OUT moment bigint, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
	SELECT e.key, CASE e.id WHEN '' THEN 3 ELSE 2 END, e.id, dlock.microseconds(e.began), dlock.microseconds(e.ended), e.status, e.token,
		dlock.microseconds(clock_timestamp()), "left"(e.record, 1023)
	FROM dlock.ended e WHERE CASE WHEN the_key IS NULL THEN (e.key, e.id) > (after_key, after_id) ELSE e.key = the_key AND e.id = '' END
	ORDER BY e.key, e.id LIMIT least(most, 1000)
$$;

-- Forgets the runs of that ID (NULL: all of them).  False: none is remembered.
CREATE OR REPLACE FUNCTION dlock.forget(the_key text, the_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	was boolean;
BEGIN
	PERFORM dlock.flush(), dlock.lock_key(the_key);
	DELETE FROM dlock.runs u WHERE u.key = the_key AND (the_id IS NULL OR u.id = the_id);
	was := FOUND;
	DELETE FROM dlock.ended e WHERE e.key = the_key AND (the_id IS NULL OR e.id = the_id AND the_id <> '');
	RETURN was OR FOUND;
END
$$;

-- Asks the holder with this token (and owner, if not NULL) to give it up: its next renewal is told
-- `the_record`.  False: there is none.
CREATE OR REPLACE FUNCTION dlock.ask_back(the_key text, the_token bigint, the_owner text, the_record text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '2500ms' AS $$
BEGIN
	PERFORM dlock.flush();
	UPDATE dlock.claims c SET wanted_by = "left"(the_record, 1023)
		WHERE c.key = the_key AND c.token = the_token AND c.owner = coalesce(the_owner, c.owner)
		AND c.kind <> 'freeze' AND c.ends > clock_timestamp();
	RETURN FOUND;
END
$$;

-- Has those ask again who sleep in await() on this wake-up lock: they are not to wait for the end of
-- their sleep.  It needs a right over their sessions; without it they wake by themselves.
CREATE OR REPLACE FUNCTION dlock.wake_sleepers(wake bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
BEGIN
	PERFORM pg_cancel_backend(l.pid) FROM dlock.advisory_locks() l WHERE l.form = 1 AND l.number = wake AND NOT l.granted;
EXCEPTION WHEN insufficient_privilege THEN
	NULL;
END
$$;
REVOKE ALL ON FUNCTION dlock.wake_sleepers(bigint) FROM PUBLIC;

-- Takes the hold with this token (and owner, if not NULL) away, and grants to who is next.  True:
-- done, or it had been done by the same.
CREATE OR REPLACE FUNCTION dlock.take_away(the_key text, the_token bigint, the_owner text, the_record text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	gone dlock.claims;
	a_record text := "left"(the_record, 1023);
BEGIN
	PERFORM dlock.lock_key(the_key);
	moment := clock_timestamp();
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.token = the_token AND c.owner = coalesce(the_owner, c.owner)
		AND c.kind <> 'freeze' AND c.ends > moment RETURNING * INTO gone;
	IF gone.key IS NULL THEN
		RETURN EXISTS (SELECT FROM dlock.broken b WHERE b.token = the_token AND b.key = the_key AND b.record = a_record);
	END IF;
	DELETE FROM dlock.broken b WHERE b.at < moment - '1 day'::interval;
	INSERT INTO dlock.broken (token, key, at, record) VALUES (the_token, the_key, moment, a_record) ON CONFLICT DO NOTHING;
	PERFORM dlock.flush(), dlock.serve(the_key, NULL, moment), dlock.wake_sleepers(dlock.wake_lock(gone.owner));
	RETURN true;
END
$$;

-- Nobody is granted the key any more, for so long (NULL: without an end) or until thaw().
CREATE OR REPLACE FUNCTION dlock.freeze(the_key text, the_record text, length interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
BEGIN
	PERFORM dlock.flush(), dlock.lock_key(the_key);
	moment := clock_timestamp();
	UPDATE dlock.claims c SET leads = false WHERE c.key = the_key AND c.leads;
	INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, lease, direct, token, slot, seal, leads, ends, since, record)
		VALUES (the_key, 0, md5(random()::text || moment || random()), 'freeze', 0, '0', false, nextval('dlock.numbers'), 0,
			'freeze 0 0', true, CASE WHEN length < '100 years'::interval THEN moment + length ELSE 'infinity' END, moment,
			"left"(the_record, 1023))
		ON CONFLICT (key, ticket) DO UPDATE SET (leads, ends, since, record) = (true, excluded.ends, excluded.since, excluded.record);
	-- The first in line may wait for another end than it has now.
	PERFORM pg_notify('dlock_' || c.owner, '') FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NULL AND c.listens;
END
$$;

-- Ends that, and grants to who is next.  False: it was not frozen.
CREATE OR REPLACE FUNCTION dlock.thaw(the_key text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	gone dlock.claims;
BEGIN
	PERFORM dlock.lock_key(the_key);
	moment := clock_timestamp();
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.kind = 'freeze' RETURNING * INTO gone;
	IF gone.key IS NULL THEN
		RETURN false;
	END IF;
	PERFORM dlock.flush(), dlock.serve(the_key, NULL, moment);
	RETURN gone.ends > moment;
END
$$;

-- What was taken from everybody under the name that a function had in version 5 is taken from them under its own.
-- Who may not thaw may not forget.  Who may not list keys, or not see the last run of one, may not list runs; nor does
-- who may not list keys learn who asks for one.
DO $$
DECLARE
	f record;
	a record;
BEGIN
	FOR turn IN 1..4 LOOP -- what an earlier one has given stays
		FOR f IN SELECT its.oid::regprocedure AS name, old.proacl AS acl, (SELECT p.proacl FROM pg_proc p
				WHERE turn = 2 AND p.pronamespace = old.pronamespace AND p.proname = 'last_run' AND p.pronargs = 1) AS other
			FROM (VALUES (1, 'take_unclaimed', 6, 'take', 6), (1, 'enter_queue', 11, 'enter', 11), (1, 'await', 6, 'await', 5),
				(1, 'renew', 6, 'renew', 5), (1, 'release', 3, 'release_alone', 3), (1, 'release_among', 5, 'release', 5),
				(1, 'list_claims', 5, 'list', 5), (1, 'thaw', 1, 'forget', 2), (2, 'list', 5, 'list_jobs', 3),
				(2, 'list', 5, 'list_done', 3), (3, 'list', 5, 'asker', 2), (3, 'last_run', 1, 'list_jobs', 3),
				(3, 'last_run', 1, 'list_done', 3), (4, 'enter', 11, 'find_ended', 2), (4, 'release', 5, 'release_run', 6),
				(4, 'list_done', 3, 'list_ended', 4)) AS v (its_turn, old_name, old_count, its_name, its_count)
			JOIN pg_proc old ON old.pronamespace = 'dlock'::regnamespace AND old.proname = v.old_name AND old.pronargs = v.old_count
			JOIN pg_proc its ON its.pronamespace = 'dlock'::regnamespace AND its.proname = v.its_name AND its.pronargs = v.its_count
			WHERE v.its_turn = turn AND old.proacl IS NOT NULL AND its.proacl IS NULL
		LOOP
			EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.name);
			FOR a IN SELECT CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END AS grantee
				FROM (SELECT grantee FROM aclexplode(f.acl) UNION SELECT grantee FROM aclexplode(f.other)) x
				WHERE EXISTS (SELECT FROM aclexplode(f.acl) l WHERE l.grantee IN (0, x.grantee))
					AND (f.other IS NULL OR EXISTS (SELECT FROM aclexplode(f.other) l WHERE l.grantee IN (0, x.grantee)))
			LOOP
				EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f.name, a.grantee);
			END LOOP;
		END LOOP;
	END LOOP;
END
$$;

COMMIT;
