-- schema.sql - what lease mode keeps in the database.  Version 2.
--
--	dlock help pg-schema | psql --dbname=DATABASE      creates it, or brings it up to date
--	GRANT USAGE ON SCHEMA dlock TO ROLE                is all that a role needs to use it
--
-- The interface is the functions take, queue, await, renew, release and
-- release_among; the mode row has its own at the end.  Those that touch tables run
-- with the rights of the owner (SECURITY DEFINER), so that nobody else needs any
-- right on the tables and nobody can tamper with another's hold; their search_path
-- is fixed.  Each is one statement and one transaction for its caller.
--
-- In a new session, which a short command has, PL/pgSQL costs 3 ms.  So where
-- nobody else has to do with a key, take (which asks first) and release are a
-- single SQL statement inside.
--
-- Everything about a key is a row of `claims`, one for each owner who holds or
-- waits.  What holds between two transactions:
--  1. At most `capacity` units of weight are held under a key: whoever grants or
--     gives back has the key's advisory lock (of the transaction, so until what
--     was done is visible), and decides by what can be seen from then on, in read
--     committed.  What is decided by an older snapshot (take, and every function
--     under a stricter isolation) the unique slot refuses: for a mutex it is 0.
--     So these work for a capacity of 1 only.
--  2. A hold counts until its row is gone, whatever `ends` says: a renewal
--     takes no lock but the row's, and DELETE looks at the newest version of it.
--  3. Where a living waiter fits, it has been granted: there is no free lock
--     with a queue, so nobody needs to look in vain and nobody can barge in.
--     (But for who has lost its session: it keeps its place for some seconds, and
--     is passed over until it asks again.  And release may overlook who came at
--     the same moment: that one wakes, and asks.)
--
-- Time is the server's, clock_timestamp() throughout: now() would be the time at
-- which a transaction began that may have waited since.
--
-- Who holds or waits over a direct connection keeps an advisory lock of the session,
-- derived from the owner's name: its wake-up lock.  The next in line sleeps on it in
-- await().  Whoever releases takes it once more for the transaction and then gives
-- back the session's share: so it is free at the moment when what the transaction
-- has granted can be seen.  It only wakes; what is true stands in the table.
BEGIN;

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;

-- Two that come here at once take turns.
DO $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(7235142765483); END $$;

CREATE SCHEMA IF NOT EXISTS dlock;

-- Functions of several versions do not go together.
DO $$
DECLARE
	its_version text := (SELECT substring(obj_description(n.oid, 'pg_namespace') FROM '^dlock ([0-9]{1,9}):')
		FROM pg_namespace n WHERE n.nspname = 'dlock');
BEGIN
	IF its_version::integer > 2 THEN
		RAISE feature_not_supported USING MESSAGE = 'a newer dlock has made the schema dlock: use that one';
	END IF;
END
$$;

-- Who owns a schema can put tables with triggers there.  So where it is another's,
-- all that is made below belongs to that one, and runs with no more rights.
DO $$
DECLARE
	its_owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'dlock');
BEGIN
	IF its_owner <> current_user THEN
		RAISE WARNING 'the schema dlock belongs to %, whose code runs for everybody who uses it', its_owner;
		EXECUTE format('SET LOCAL ROLE %I', its_owner);
	END IF;
END
$$;

-- Version 1 had three tables instead of claims.
DO $$
DECLARE
	used boolean;
BEGIN
	IF to_regclass('dlock.holds') IS NULL THEN
		RETURN;
	END IF;
	-- To read a table runs what its owner has put there (a view, a policy, a type), with
	-- all rights of who has logged in: the role set above is no fence.
	IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'dlock.holds'::regclass
			AND (session_user <> pg_get_userbyid(c.relowner) OR session_user <> pg_get_userbyid(n.nspowner))) THEN
		RAISE insufficient_privilege USING MESSAGE = 'dlock.holds is another''s: its owner must log in for this';
	END IF;
	EXECUTE 'SELECT EXISTS (SELECT FROM dlock.holds WHERE ends > clock_timestamp())' INTO used;
	IF used THEN
		RAISE object_in_use USING MESSAGE = 'an older dlock holds locks in this database: wait until it has ended';
	END IF;
	DROP TABLE IF EXISTS dlock.holds, dlock.waiters, dlock.keys;
	DROP FUNCTION IF EXISTS dlock.bell(text), dlock.serve(text, timestamptz), dlock.await(bigint, integer),
		dlock.grab(text, text, text, interval, integer, integer, integer, bigint),
		dlock.acquire(text, text, text, bigint, bigint, integer, integer, integer, bigint),
		dlock.renew(text, text, bigint, bigint, integer, bigint), dlock.hush(text),
		dlock.release(text, text, bigint), dlock.release_among(text, text, bigint);
END
$$;

COMMENT ON SCHEMA dlock IS 'dlock 2: locks for commands, see dlock(1)';

CREATE TABLE IF NOT EXISTS dlock.claims (
	key text COLLATE "C",
	ticket bigint,				-- served in this order
	owner text NOT NULL CHECK (owner ~ '^[0-9a-f]{32}$'),
	weight integer NOT NULL CHECK (weight > 0),
	capacity integer NOT NULL CHECK (capacity > 0),	-- what the claims of a key agree about
	lease interval NOT NULL CHECK (lease BETWEEN '0' AND '100 years'),
	direct boolean NOT NULL,		-- lives while its wake-up lock is held
	alive timestamptz,			-- as a waiter counts as dead after this; NULL: not known to be away
	token bigint,				-- of the grant: the version that renewals compare; NULL: it waits
	slot integer,				-- NULL: it waits
	ends timestamptz,			-- when the lease has run out
	since timestamptz,
	record text NOT NULL,			-- who that is, JSON, for people
	PRIMARY KEY (key, ticket),
	CHECK ((slot IS NULL) = (token IS NULL) AND (slot IS NULL) = (ends IS NULL) AND (slot IS NULL) = (since IS NULL))
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX IF NOT EXISTS claims_held ON dlock.claims (key, slot) WHERE slot IS NOT NULL;
CREATE UNIQUE INDEX IF NOT EXISTS claims_by_owner ON dlock.claims (key, owner);

CREATE TABLE IF NOT EXISTS dlock.rows (		-- mode=row: to be locked
	key text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL DEFAULT 0		-- of the last hold that ended well
) WITH (fillfactor = 50);

-- Tokens and tickets.  They begin with the microseconds of this moment, so that
-- they go on growing in a database that has lost its schema.
DO $$
BEGIN
	IF pg_catalog.to_regclass('dlock.numbers') IS NULL THEN
		EXECUTE pg_catalog.format('CREATE SEQUENCE dlock.numbers START WITH %s',
			(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.version() RETURNS integer
LANGUAGE sql IMMUTABLE AS 'SELECT 2';

CREATE OR REPLACE FUNCTION dlock.number() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;
	SELECT nextval('dlock.numbers')
$$;

-- An owner's wake-up lock: the first half of its 128 bits.
CREATE OR REPLACE FUNCTION dlock.wake_lock(owner text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('x' || pg_catalog."left"(owner, 16))::bit(64)::bigint $$;

-- Is this waiter, another than we, to be passed over?  Whoever lacks its session is
-- given some seconds to come back to its place.
CREATE OR REPLACE FUNCTION dlock.is_away(w dlock.claims, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF (CASE WHEN w.direct THEN NOT pg_try_advisory_xact_lock_shared(('x' || "left"(w.owner, 16))::bit(64)::bigint)
			ELSE w.alive > moment END) THEN
		RETURN false;
	END IF;
	IF w.alive <= moment THEN
		DELETE FROM dlock.claims c WHERE c.key = w.key AND c.ticket = w.ticket;
	ELSIF w.alive IS NULL THEN
		UPDATE dlock.claims c SET alive = moment + '15 s'::interval WHERE c.key = w.key AND c.ticket = w.ticket;
	END IF;
	RETURN true;
END
$$;
REVOKE ALL ON FUNCTION dlock.is_away(dlock.claims, timestamptz) FROM PUBLIC;

-- Grants to those who wait, in order, as long as they fit; passes over those away.
-- Who is granted so has 3 s to ask again, by which it takes up its lease; `me` is
-- asking.  The caller has the key's lock and has dropped the holds that have run out.
CREATE OR REPLACE FUNCTION dlock.serve(the_key text, me text, moment timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	held bigint;
	w dlock.claims;
	last bigint := 0;
	there boolean;
	fits boolean;
BEGIN
	SELECT coalesce(sum(c.weight), 0) INTO held FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL;
	LOOP
		SELECT * INTO w FROM dlock.claims c WHERE c.key = the_key AND c.ticket > last AND c.slot IS NULL
			ORDER BY c.ticket LIMIT 1;
		fits := coalesce(held + w.weight <= w.capacity, false);
		there := fits AND (w.owner = me OR NOT dlock.is_away(w, moment));
		UPDATE dlock.claims c SET token = nextval('dlock.numbers'), since = moment, alive = NULL,
				ends = moment + CASE WHEN w.owner = me THEN w.lease ELSE least(w.lease, '3 s'::interval) END,
				slot = CASE w.capacity WHEN 1 THEN 0 ELSE (SELECT min(s)
					FROM generate_series(0, (SELECT count(*) FROM dlock.claims h
						WHERE h.key = the_key AND h.slot IS NOT NULL)) s
					WHERE NOT EXISTS (SELECT FROM dlock.claims h WHERE h.key = the_key AND h.slot = s)) END
			WHERE c.key = the_key AND c.ticket = w.ticket AND there;
		EXIT WHEN NOT fits;
		last := w.ticket;
		held := held + CASE WHEN there THEN w.weight ELSE 0 END;
	END LOOP;
END
$$;
REVOKE ALL ON FUNCTION dlock.serve(text, text, timestamptz) FROM PUBLIC;

-- Takes a mutex that nobody holds or waits for; the arguments are queue()'s, but
-- the lease is in one piece.  NULL: there is somebody.
CREATE OR REPLACE FUNCTION dlock.take(the_key text, me text, my_record text, my_lease interval,
	client_pid integer, my_wake bigint, OUT granted bigint, OUT direct boolean, OUT wakes boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
	INSERT INTO dlock.claims AS c (key, ticket, owner, weight, capacity, lease, direct, token, slot, ends, since, record)
		SELECT the_key, n.n, me, 1, 1, my_lease, client_pid = pg_backend_pid(), n.n, 0,
			clock_timestamp() + my_lease, clock_timestamp(), my_record
		FROM (SELECT nextval('dlock.numbers') FROM (SELECT pg_advisory_xact_lock(1684828011, hashtext(the_key)),
			CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
			OFFSET 0) l OFFSET 0) n(n)
		WHERE NOT EXISTS (SELECT FROM dlock.claims o WHERE o.key = the_key)
	ON CONFLICT DO NOTHING
	RETURNING c.token, c.direct, CASE WHEN c.direct AND my_wake <> 0 THEN pg_try_advisory_lock(my_wake) END
$$;

-- Where a waiter is in the queue, and who holds.
CREATE OR REPLACE FUNCTION dlock.look(the_key text, mine bigint, moment timestamptz,
	OUT place bigint, OUT left_ms bigint, OUT held_ms bigint, OUT holder text, OUT holds_direct boolean, OUT holds_owner text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	SELECT count(*) INTO place FROM dlock.claims c WHERE c.key = the_key AND c.ticket <= mine AND c.slot IS NULL
			AND (c.alive IS NULL OR c.alive > moment);
	SELECT ceil(1000 * extract(epoch FROM min(c.ends) - moment)) INTO left_ms
		FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL;
	SELECT 1000 * extract(epoch FROM moment - c.since), c.record, c.direct, c.owner
		INTO held_ms, holder, holds_direct, holds_owner
		FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL ORDER BY c.slot LIMIT 1;
END
$$;
REVOKE ALL ON FUNCTION dlock.look(text, bigint, timestamptz) FROM PUBLIC;

-- Makes a session fit for long waits; it is this waiter's alone.
CREATE OR REPLACE FUNCTION dlock.settle() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	-- The server notices while we sleep that we are gone, also by an unplugged cable.
	IF current_setting('client_connection_check_interval', true) = '0' THEN
		PERFORM set_config('client_connection_check_interval', '2s', false);
	END IF;
	PERFORM set_config('tcp_keepalives_idle', '4', false), set_config('tcp_keepalives_interval', '1', false),
		set_config('tcp_keepalives_count', '4', false), set_config('statement_timeout', '0', false),
		set_config('default_transaction_isolation', 'read committed', false);
	IF current_setting('plan_cache_mode', true) IS NOT NULL THEN
		PERFORM set_config('plan_cache_mode', 'force_generic_plan', false);
	END IF;
	IF current_setting('transaction_timeout', true) IS NOT NULL THEN
		PERFORM set_config('transaction_timeout', '0', false);
	END IF;
END
$$;
REVOKE ALL ON FUNCTION dlock.settle() FROM PUBLIC;

-- Asks for the lock, or for one's place in the queue; the same for an owner who
-- asks again.  `patience_ms` 0: do not queue; behind a pooler, for so long without
-- another question the waiter counts as alive.  `client_pid` is what the client
-- takes for its server process (it is not, behind a pooler); `my_wake`: the
-- wake-up lock that this session has yet to take, or 0.
--
-- code 1: `granted` this token.  -1: in use with another capacity.
-- code 0: `place` in the queue, ms until a lease ends, ms since the holder was
-- granted, its record, and `ahead`, the wake-up lock of who is next before us;
-- NULL: it has none.
-- `direct`: there is no pooler.  `wakes`: the session has got its wake-up lock.
CREATE OR REPLACE FUNCTION dlock.queue(the_key text, me text, my_record text, lease_ms bigint,
	patience_ms bigint, my_weight integer, my_capacity integer, client_pid integer, my_wake bigint,
	OUT code integer, OUT granted bigint, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT ahead bigint, OUT direct boolean, OUT wakes boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	my_lease interval := lease_ms * '1 ms'::interval;
	mine dlock.claims;
	w dlock.claims;
	dead timestamptz;
	last bigint;
	p record;
	rehearsal boolean;
	joined boolean := false;
	a_key text;
BEGIN
	patience_ms := least(patience_ms, 60000);
	direct := client_pid = pg_backend_pid();
	IF my_capacity > 1 AND current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE feature_not_supported USING MESSAGE = 'more than one holder needs default_transaction_isolation = read committed';
	END IF;
	IF direct AND my_wake <> 0 THEN
		wakes := pg_try_advisory_lock(my_wake);
		PERFORM dlock.settle();
	END IF;

	-- A session that does this for the first time takes 10 ms for what will be 1 ms.
	-- Not while it has the key: so all is done once for a key that cannot be.
	rehearsal := wakes IS NOT NULL;
	LOOP
		a_key := CASE WHEN rehearsal THEN E'\001' || me ELSE the_key END;
		PERFORM pg_advisory_xact_lock(1684828011, hashtext(a_key));
		moment := clock_timestamp();
		DELETE FROM dlock.claims c WHERE c.key = a_key AND c.slot IS NOT NULL AND c.ends <= moment;
		SELECT * INTO mine FROM dlock.claims c WHERE c.key = a_key AND c.owner = me;
		IF mine.slot IS NULL THEN
			SELECT * INTO w FROM dlock.claims c WHERE c.key = a_key AND c.owner <> me ORDER BY c.ticket LIMIT 1;
			WHILE w.capacity <> my_capacity LOOP
				IF w.slot IS NOT NULL OR NOT dlock.is_away(w, moment) THEN
					code := -1;
					RETURN;
				END IF;
				DELETE FROM dlock.claims c WHERE c.key = a_key AND c.ticket = w.ticket;
				SELECT * INTO w FROM dlock.claims c WHERE c.key = a_key AND c.owner <> me ORDER BY c.ticket LIMIT 1;
			END LOOP;
			dead := CASE WHEN NOT direct THEN moment + greatest(patience_ms, 1) * '1 ms'::interval END;
			IF mine.ticket IS NULL THEN
				INSERT INTO dlock.claims AS c (key, ticket, owner, weight, capacity, lease, direct, alive, record)
					SELECT a_key, nextval('dlock.numbers'), me, my_weight, my_capacity, my_lease, queue.direct, dead, my_record
					WHERE NOT rehearsal
					RETURNING * INTO mine;
				joined := FOUND AND patience_ms > 0;
			ELSIF mine.direct <> direct OR mine.alive IS DISTINCT FROM dead THEN
				UPDATE dlock.claims c SET alive = dead, direct = queue.direct
					WHERE c.key = a_key AND c.ticket = mine.ticket;
			END IF;
			PERFORM dlock.serve(a_key, me, moment);
			SELECT c.token INTO granted FROM dlock.claims c WHERE c.key = a_key AND c.ticket = mine.ticket;
		ELSE
			UPDATE dlock.claims c SET ends = moment + my_lease WHERE c.key = a_key AND c.ticket = mine.ticket
				RETURNING c.token INTO granted;
		END IF;

		IF granted IS NOT NULL THEN
			code := 1;
			IF current_setting('synchronous_commit') = 'off' THEN
				PERFORM set_config('synchronous_commit', 'on', true);
			END IF;
			RETURN;
		END IF;
		code := 0;
		SELECT * INTO p FROM dlock.look(a_key, mine.ticket, moment);
		place := p.place;
		left_ms := p.left_ms;
		held_ms := p.held_ms;
		holder := p.holder;
		last := mine.ticket;
		FOR n IN 1..4 LOOP	-- not all: after a restart hundreds are away at once, and come back
			SELECT * INTO w FROM dlock.claims c WHERE c.key = a_key AND c.ticket < last AND c.slot IS NULL
				ORDER BY c.ticket DESC LIMIT 1;
			EXIT WHEN NOT dlock.is_away(w, moment) OR w.ticket IS NULL;
			last := w.ticket;
		END LOOP;
		EXIT WHEN NOT rehearsal;
		rehearsal := false;
	END LOOP;
	ahead := CASE WHEN CASE WHEN w.ticket IS NULL THEN p.holds_direct ELSE w.direct END
		THEN dlock.wake_lock(coalesce(w.owner, p.holds_owner)) END;
	IF patience_ms = 0 THEN
		DELETE FROM dlock.claims c WHERE c.key = the_key AND c.ticket = mine.ticket;
	END IF;
	IF NOT joined THEN	-- a new place is to outlive a crash of the server, so that the order does
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END
$$;

-- Sleeps until somebody has no more of `ahead`, `ms` at most.  code 0: in vain;
-- then where we are is told as by queue().  1: woken; 2: it was free from the
-- beginning.  `granted`: this token, within the last 3 s, to be confirmed by a
-- renewal; NULL: not, and with code 0 and `place` NULL the claim is gone.
-- A statement that sleeps keeps a snapshot, for which CREATE INDEX CONCURRENTLY
-- and VACUUM wait: so let ms be small.
--
-- `rehearse`: first runs what there will be in a hurry when our turn comes, for a key
-- that cannot be: what PL/pgSQL runs for the first time in a session takes 3 ms more.
CREATE OR REPLACE FUNCTION dlock.await(the_key text, me text, ahead bigint, ms integer, my_wake bigint, rehearse boolean,
	OUT code integer, OUT granted bigint, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint, OUT holder text,
	OUT wakes boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	mine dlock.claims;
	p record;
BEGIN
	IF my_wake <> 0 THEN
		wakes := pg_try_advisory_lock(my_wake);
	END IF;
	IF rehearse THEN
		PERFORM dlock.renew(E'\001' || me, me, 0, 0, 0, 0), dlock.release_among(E'\001' || me, me, 0);
	END IF;
	IF pg_try_advisory_xact_lock_shared(ahead) THEN
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
	SELECT * INTO mine FROM dlock.claims c WHERE c.key = the_key AND c.owner = me;
	IF mine.ends > clock_timestamp() THEN
		granted := mine.token;
	ELSIF code = 0 AND mine.ticket IS NOT NULL AND mine.slot IS NULL THEN
		SELECT * INTO p FROM dlock.look(the_key, mine.ticket, clock_timestamp());
		place := p.place;
		left_ms := p.left_ms;
		held_ms := p.held_ms;
		holder := p.holder;
	END IF;
END
$$;

-- Extends a lease that still runs and is the one granted with this token.
CREATE OR REPLACE FUNCTION dlock.renew(the_key text, me text, my_token bigint, lease_ms bigint,
	client_pid integer, my_wake bigint, OUT code integer, OUT wakes boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	UPDATE dlock.claims c SET ends = clock_timestamp() + lease_ms * '1 ms'::interval
		WHERE c.key = the_key AND c.owner = me AND c.token = my_token AND c.ends > clock_timestamp();
	code := CASE WHEN FOUND THEN 1 ELSE 0 END;
	IF FOUND AND my_wake <> 0 AND client_pid = pg_backend_pid() THEN
		wakes := pg_try_advisory_lock(my_wake);
	END IF;
END
$$;

-- release(), where others may have to do with the key.
CREATE OR REPLACE FUNCTION dlock.release_among(the_key text, me text, my_wake bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	mine dlock.claims;
BEGIN
	PERFORM pg_advisory_xact_lock(1684828011, hashtext(the_key));
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me RETURNING * INTO mine;
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL AND c.ends <= clock_timestamp();
	PERFORM dlock.serve(the_key, NULL, clock_timestamp());
	IF my_wake <> 0 THEN
		PERFORM pg_advisory_xact_lock(my_wake), pg_advisory_unlock(my_wake);
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	RETURN CASE WHEN mine.ends > clock_timestamp() THEN 1 WHEN mine.ticket IS NOT NULL AND mine.slot IS NULL THEN 2 ELSE 0 END;
END
$$;

-- Gives back what this owner holds, or its place in the queue, and grants to who
-- is next; and `my_wake`, if the session has it (else 0).  1: held until now; 2: waited;
-- 0: neither.
--
-- It does not wait for the disk: a release that a crash undoes ends with its
-- lease, and a grant made here counts when it has been confirmed, which waits.
CREATE OR REPLACE FUNCTION dlock.release(the_key text, me text, my_wake bigint) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
	WITH alone AS (
		DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me AND c.slot IS NOT NULL
			AND NOT EXISTS (SELECT FROM dlock.claims o WHERE o.key = the_key AND o.owner <> me)
		RETURNING c.ends > clock_timestamp() AS still, set_config('synchronous_commit', 'off', true),
			CASE WHEN my_wake <> 0 THEN pg_advisory_xact_lock(my_wake) IS NULL END,
			CASE WHEN my_wake <> 0 THEN pg_advisory_unlock(my_wake) END
	)
	SELECT a.still::integer FROM alone a
	UNION ALL
	SELECT dlock.release_among(the_key, me, my_wake) WHERE NOT EXISTS (SELECT FROM alone)
$$;

-- Ends sessions of ours that are left over from a broken connection and keep our
-- wake-up lock: who waits for it would wait for nobody.  With the caller's own rights.
CREATE OR REPLACE FUNCTION dlock.end_old_sessions(me text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
	SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l
	WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND (l.classid::bigint << 32) | l.objid::bigint = dlock.wake_lock(me) AND l.pid <> pg_backend_pid()
		AND l.pid IN (SELECT a.pid FROM pg_stat_activity a WHERE a.usename = current_user)
$$;

-- ---- mode=row ----

CREATE OR REPLACE FUNCTION dlock.make_row(the_key text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ INSERT INTO dlock.rows (key) VALUES (the_key) ON CONFLICT DO NOTHING $$;

-- Locks the key's row in the caller's transaction, and makes a lease of it: the
-- server ends a transaction that is silent for `lease_ms`.  With `patient` it
-- waits for the row, as long as the caller's timeouts let it.
--
-- code 1: locked, `token`, `transaction`.  -1: there is no such row.
-- code 0: how many wait, and the server process of who holds it.
--
-- A crash loses what an open transaction has written, numbers drawn included; so
-- the token is also later than the clock was for any before.
CREATE OR REPLACE FUNCTION dlock.lock_row(the_key text, lease_ms bigint, patient boolean, name text,
	OUT code integer, OUT granted bigint, OUT transaction bigint, OUT waiting bigint, OUT holder integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	old dlock.rows;
	locker xid;
	place tid;
BEGIN
	PERFORM set_config('application_name', name, true);
	PERFORM set_config('idle_in_transaction_session_timeout', lease_ms::text, true);
	IF patient THEN
		SELECT * INTO old FROM dlock.rows r WHERE r.key = the_key FOR UPDATE;
	ELSE
		SELECT * INTO old FROM dlock.rows r WHERE r.key = the_key FOR UPDATE SKIP LOCKED;
	END IF;
	IF FOUND THEN
		code := 1;
		granted := greatest(old.token + 1, nextval('dlock.numbers'),
			(1000000 * extract(epoch FROM clock_timestamp()))::bigint);
		UPDATE dlock.rows r SET token = granted WHERE r.key = the_key;
		transaction := txid_current();
		PERFORM set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);
		RETURN;
	END IF;
	-- Whoever locked the row left his transaction's number in it.  The first one
	-- waits for that transaction, the others for the place of the row.
	SELECT r.xmax, r.ctid INTO locker, place FROM dlock.rows r WHERE r.key = the_key;
	code := CASE WHEN FOUND THEN 0 ELSE -1 END;
	SELECT l.pid INTO holder FROM pg_locks l
		WHERE l.locktype = 'transactionid' AND l.transactionid = locker AND l.granted;
	SELECT count(DISTINCT l.pid) INTO waiting FROM pg_locks l WHERE NOT l.granted
		AND ((l.locktype = 'transactionid' AND l.transactionid = locker)
		OR (l.locktype = 'tuple' AND l.relation = 'dlock.rows'::regclass
			AND format('(%s,%s)', l.page, l.tuple)::tid = place));
END
$$;

COMMIT;
