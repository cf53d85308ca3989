-- schema.sql - what lease mode keeps in the database.  Version 1.
--
--	dlock help pg-schema | psql --dbname=DATABASE      creates it, or brings it up to date
--	GRANT USAGE ON SCHEMA dlock TO ROLE                is all that a role needs to use it
--
-- Five functions are the whole interface: grab, acquire, await, renew, release;
-- the mode row has its own at the end.  Those that touch tables run with the
-- rights of the owner (SECURITY DEFINER), so that nobody else needs any right on
-- the tables and nobody can tamper with another's hold; their search_path is
-- fixed.  Each is one statement and one transaction for its caller.
--
-- In a new session, which a short command has, PL/pgSQL costs 3 ms.  So where
-- nobody else has to do with a key, grab (which asks first) and release are a
-- single SQL statement inside.
--
-- What holds between two transactions:
--  1. At most `capacity` units of weight are held under a key: whoever decides
--     about a key has updated its row in `keys` first, and so decides alone.
--     For a mutex the primary key of `holds` alone would see to it: the slot is 0.
--  2. Where a living waiter fits, it has been granted: there is no free lock
--     with a queue, so nobody needs to look in vain and nobody can barge in.
--     (But for who has lost its session: it keeps its place, and is passed over
--     until it asks again.)
--  3. A key without holds and waiters has no row at all: who can make the row
--     may take the lock.  A row with `decisions` 0 has seen one hold, no others.
--
-- Time is the server's, clock_timestamp() throughout: now() would be the time at
-- which a transaction began that may have waited since.  Read committed is what
-- the functions are written for; under a stricter default the update of the key's
-- row fails (40001) where the sight of the rest may be old, and dlock asks again.
--
-- A bell is a session's advisory lock derived from its owner's name.  Who holds
-- or waits over a direct connection keeps his own; the next in line sleeps on it
-- in await().  It only wakes; what is true stands in the tables.
BEGIN;

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;

-- Two that come here at once take turns.
DO $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(7235142765483); END $$;

CREATE SCHEMA IF NOT EXISTS dlock;

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

COMMENT ON SCHEMA dlock IS 'dlock 1: locks for commands, see dlock(1)';

CREATE TABLE IF NOT EXISTS dlock.keys (
	key text COLLATE "C" PRIMARY KEY,
	capacity integer NOT NULL CHECK (capacity > 0),
	decisions bigint NOT NULL DEFAULT 0	-- its update is the lock of whoever decides
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS dlock.holds (
	key text COLLATE "C",
	slot integer,
	owner text NOT NULL CHECK (owner ~ '^[0-9a-f]{32}$'),
	token bigint NOT NULL,			-- of the grant: the version that renewals compare
	weight integer NOT NULL CHECK (weight > 0),
	ends timestamptz NOT NULL,		-- when the lease has run out
	since timestamptz NOT NULL,
	record text NOT NULL,			-- who that is, JSON, for people
	PRIMARY KEY (key, slot)
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS dlock.waiters (
	key text COLLATE "C",
	owner text CHECK (owner ~ '^[0-9a-f]{32}$'),
	ticket bigint NOT NULL,			-- served in this order
	weight integer NOT NULL CHECK (weight > 0),
	lease interval NOT NULL CHECK (lease BETWEEN '0' AND '100 years'),
	alive timestamptz NOT NULL,		-- counts as dead after this,
	away timestamptz,			-- and as away if nobody has its bell after this; NULL: it has none
	record text NOT NULL,
	PRIMARY KEY (key, owner)
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX IF NOT EXISTS waiters_in_order ON dlock.waiters (key, ticket);

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
LANGUAGE sql IMMUTABLE AS 'SELECT 1';

CREATE OR REPLACE FUNCTION dlock.number() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;
	SELECT nextval('dlock.numbers')
$$;

-- The advisory lock that is an owner's bell: the first half of its 128 bits.
CREATE OR REPLACE FUNCTION dlock.bell(owner text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp
AS $$ SELECT ('x' || "left"(owner, 16))::bit(64)::bigint $$;

-- Grants to those who wait, in order, as long as they fit; drops the dead on the
-- way, passes over those away.  Who is granted so has 3 s to ask again, by which
-- it takes up its lease.  The caller has locked the key and dropped the holds
-- that have run out.
CREATE OR REPLACE FUNCTION dlock.serve(the_key text, moment timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	room bigint;
	last bigint := 0;
	w record;
BEGIN
	SELECT k.capacity - coalesce((SELECT sum(h.weight) FROM dlock.holds h WHERE h.key = k.key), 0)
		INTO room FROM dlock.keys k WHERE k.key = the_key;
	room := coalesce(room, 0);	-- without a row, which cannot be, nobody is granted
	LOOP
		SELECT * INTO w FROM dlock.waiters q WHERE q.key = the_key AND q.ticket > last
			ORDER BY q.ticket LIMIT 1;
		EXIT WHEN NOT FOUND;
		last := w.ticket;
		CONTINUE WHEN w.alive > moment AND w.away <= moment
			AND pg_try_advisory_xact_lock_shared(dlock.bell(w.owner));
		EXIT WHEN w.alive > moment AND w.weight > room;
		DELETE FROM dlock.waiters q WHERE q.key = the_key AND q.owner = w.owner;
		CONTINUE WHEN w.alive <= moment;
		INSERT INTO dlock.holds (key, slot, owner, token, weight, ends, since, record)
			SELECT the_key, min(s), w.owner, nextval('dlock.numbers'), w.weight,
				moment + least(w.lease, '3 s'::interval), moment, w.record
			FROM generate_series(0, (SELECT count(*) FROM dlock.holds h WHERE h.key = the_key)) s
			WHERE NOT EXISTS (SELECT FROM dlock.holds h WHERE h.key = the_key AND h.slot = s);
		room := room - w.weight;
	END LOOP;
END
$$;
REVOKE ALL ON FUNCTION dlock.serve(text, timestamptz) FROM PUBLIC;

-- Takes a lock that nobody holds or waits for; the arguments are acquire()'s, but
-- the lease is in one piece.  NULL: there is somebody.
CREATE OR REPLACE FUNCTION dlock.grab(the_key text, me text, my_record text, my_lease interval,
	my_weight integer, my_capacity integer, client_pid integer, my_bell bigint,
	OUT granted bigint, OUT direct boolean, OUT rings boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
	WITH made AS (
		INSERT INTO dlock.keys (key, capacity) VALUES (the_key, my_capacity) ON CONFLICT DO NOTHING
			RETURNING CASE current_setting('synchronous_commit') WHEN 'off'
				THEN set_config('synchronous_commit', 'on', true) END
	), held AS (
		INSERT INTO dlock.holds (key, slot, owner, token, weight, ends, since, record)
			SELECT the_key, 0, me, nextval('dlock.numbers'), my_weight,
				clock_timestamp() + my_lease, clock_timestamp(), my_record
			FROM made ON CONFLICT DO NOTHING
			RETURNING token
	)
	SELECT h.token, client_pid = pg_backend_pid(),
		CASE WHEN client_pid = pg_backend_pid() AND my_bell <> 0 THEN pg_try_advisory_lock(my_bell) END
		FROM held h
$$;

-- Asks for the lock, or for one's place in the queue; the same for an owner who
-- asks again.  `patience_ms` 0: do not queue.  `client_pid` is what the client
-- takes for its server process (it is not, behind a pooler); `my_bell`: the one
-- that this session has yet to take, or 0.
--
-- code 1: `granted` this token.  -1: in use with another capacity.
-- code 0: `place` in the queue, ms until a lease ends, ms since the holder was
-- granted, its record, and the bell of who is next before us.
-- `direct`: there is no pooler.  `rings`: the session has got its bell.
CREATE OR REPLACE FUNCTION dlock.acquire(the_key text, me text, my_record text, lease_ms bigint,
	patience_ms bigint, my_weight integer, my_capacity integer, client_pid integer, my_bell bigint,
	OUT code integer, OUT granted bigint, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT ahead bigint, OUT direct boolean, OUT rings boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
DECLARE
	known boolean := false;
	now_capacity integer;
	moment timestamptz;
	gone timestamptz;	-- with a session, from then on: it would have asked again
	my_lease interval := lease_ms * '1 ms'::interval;
	mine bigint;
BEGIN
	patience_ms := least(patience_ms, 60000);
	direct := client_pid = pg_backend_pid();
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	INSERT INTO dlock.keys AS k (key, capacity) VALUES (the_key, my_capacity)
		ON CONFLICT (key) DO UPDATE SET decisions = k.decisions + 1
		RETURNING k.capacity INTO now_capacity;
	moment := clock_timestamp();
	gone := CASE WHEN direct THEN moment + '3 s'::interval END;

	DELETE FROM dlock.holds h WHERE h.key = the_key AND h.ends <= moment;
	UPDATE dlock.holds h SET ends = moment + my_lease WHERE h.key = the_key AND h.owner = me
		RETURNING h.token INTO granted;

	IF granted IS NULL THEN
		DELETE FROM dlock.waiters q WHERE q.key = the_key AND q.alive <= moment AND q.owner <> me;
		IF now_capacity <> my_capacity THEN
			IF EXISTS (SELECT FROM dlock.holds h WHERE h.key = the_key)
					OR EXISTS (SELECT FROM dlock.waiters q WHERE q.key = the_key) THEN
				code := -1;
				RETURN;
			END IF;
			UPDATE dlock.keys k SET capacity = my_capacity WHERE k.key = the_key;
		END IF;
		UPDATE dlock.waiters q SET alive = moment + patience_ms * '1 ms'::interval, away = gone
			WHERE q.key = the_key AND q.owner = me RETURNING q.ticket INTO mine;
		known := FOUND;
		IF NOT known THEN
			INSERT INTO dlock.waiters (key, owner, ticket, weight, lease, alive, away, record)
				VALUES (the_key, me, nextval('dlock.numbers'), my_weight, my_lease,
					moment + greatest(patience_ms, 1) * '1 ms'::interval, gone, my_record)
				RETURNING ticket INTO mine;
		END IF;
		PERFORM dlock.serve(the_key, moment);
		UPDATE dlock.holds h SET ends = moment + my_lease WHERE h.key = the_key AND h.owner = me
			RETURNING h.token INTO granted;
	END IF;

	IF granted IS NULL THEN
		code := 0;
		SELECT count(*) INTO place FROM dlock.waiters q WHERE q.key = the_key AND q.ticket <= mine;
		SELECT ceil(1000 * extract(epoch FROM min(h.ends) - moment)) INTO left_ms
			FROM dlock.holds h WHERE h.key = the_key;
		SELECT 1000 * extract(epoch FROM moment - h.since), h.record, dlock.bell(h.owner)
			INTO held_ms, holder, ahead
			FROM dlock.holds h WHERE h.key = the_key ORDER BY h.slot LIMIT 1;
		IF place > 1 THEN
			SELECT dlock.bell(q.owner) INTO ahead FROM dlock.waiters q
				WHERE q.key = the_key AND q.ticket < mine ORDER BY q.ticket DESC LIMIT 1;
		END IF;
		IF patience_ms = 0 THEN
			DELETE FROM dlock.waiters q WHERE q.key = the_key AND q.owner = me;
			RETURN;
		END IF;
		IF known THEN	-- no more than a sign of life: if it gets lost, the next one comes
			PERFORM set_config('synchronous_commit', 'off', true);
		END IF;
		-- From the next statement on, the server notices while we sleep that we are gone.
		IF direct AND my_bell <> 0 AND current_setting('client_connection_check_interval', true) = '0' THEN
			PERFORM set_config('client_connection_check_interval', '1s', false);
		END IF;
	ELSE
		code := 1;
	END IF;
	IF direct AND my_bell <> 0 THEN
		rings := pg_try_advisory_lock(my_bell);
	END IF;
END
$$;

-- Sleeps until whose bell it is has no more of it, `ms` at most.  0: in vain;
-- 1: it rang; 2: it was free from the beginning.  Nothing is locked afterwards.
-- A statement that sleeps keeps a snapshot, for which CREATE INDEX CONCURRENTLY
-- and VACUUM wait: so let ms be small.
CREATE OR REPLACE FUNCTION dlock.await(bell bigint, ms integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_try_advisory_xact_lock_shared(bell) THEN
		RETURN 2;
	END IF;
	PERFORM set_config('lock_timeout', ms::text, true);
	PERFORM pg_advisory_xact_lock_shared(bell);
	RETURN 1;
EXCEPTION WHEN lock_not_available THEN
	RETURN 0;
END
$$;

-- Extends a lease that still runs and is the one granted with this token.
CREATE OR REPLACE FUNCTION dlock.renew(the_key text, me text, my_token bigint, lease_ms bigint,
	client_pid integer, my_bell bigint, OUT code integer, OUT rings boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	UPDATE dlock.holds h SET ends = clock_timestamp() + lease_ms * '1 ms'::interval
		WHERE h.key = the_key AND h.owner = me AND h.token = my_token AND h.ends > clock_timestamp();
	code := CASE WHEN FOUND THEN 1 ELSE 0 END;
	IF FOUND AND my_bell <> 0 AND client_pid = pg_backend_pid() THEN
		rings := pg_try_advisory_lock(my_bell);
	END IF;
END
$$;

-- release(), where others may have to do with the key.
CREATE OR REPLACE FUNCTION dlock.release_among(the_key text, me text, my_bell bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	known boolean;
	held boolean;
	result integer := 0;
BEGIN
	UPDATE dlock.keys k SET decisions = k.decisions + 1 WHERE k.key = the_key;
	known := FOUND;
	-- The next one wakes, and lines up behind us for the key's row while we work.
	PERFORM pg_advisory_unlock(my_bell) WHERE my_bell <> 0;
	DELETE FROM dlock.holds h WHERE h.key = the_key AND h.owner = me
		RETURNING h.ends > clock_timestamp() INTO held;
	IF held THEN
		result := 1;
	ELSE
		DELETE FROM dlock.waiters q WHERE q.key = the_key AND q.owner = me;
		result := CASE WHEN FOUND THEN 2 ELSE 0 END;
	END IF;
	DELETE FROM dlock.keys k WHERE k.key = the_key
		AND NOT EXISTS (SELECT FROM dlock.holds h WHERE h.key = the_key)
		AND NOT EXISTS (SELECT FROM dlock.waiters q WHERE q.key = the_key);
	IF known AND NOT FOUND THEN
		DELETE FROM dlock.holds h WHERE h.key = the_key AND h.ends <= clock_timestamp();
		PERFORM dlock.serve(the_key, clock_timestamp());
	END IF;
	PERFORM set_config('synchronous_commit', 'off', true);
	RETURN result;
END
$$;

REVOKE ALL ON FUNCTION dlock.release_among(text, text, bigint) FROM PUBLIC;

-- Gives back what this owner holds, or its place in the queue, and grants to who
-- is next; and `my_bell`, if the session has it (else 0).  1: held until now; 2: waited;
-- 0: neither.
--
-- It does not wait for the disk: a release that a crash undoes ends with its
-- lease, and a grant made here counts when it has been confirmed, which waits.
--
-- Should somebody decide about the key meanwhile, the deletion of its row finds
-- `decisions` changed, or the row gone, and deletes nothing.
CREATE OR REPLACE FUNCTION dlock.release(the_key text, me text, my_bell bigint) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
	WITH freed AS (
		DELETE FROM dlock.keys k WHERE k.key = the_key AND k.decisions = 0
			AND EXISTS (SELECT FROM dlock.holds h WHERE h.key = the_key AND h.owner = me)
			RETURNING set_config('synchronous_commit', 'off', true),
				CASE WHEN my_bell <> 0 THEN pg_advisory_unlock(my_bell) END
	), held AS (
		DELETE FROM dlock.holds h USING freed WHERE h.key = the_key AND h.owner = me
			RETURNING h.ends > clock_timestamp() AS still
	)
	SELECT h.still::integer FROM held h
	UNION ALL
	SELECT dlock.release_among(the_key, me, my_bell) WHERE NOT EXISTS (SELECT FROM held)
$$;

-- Ends sessions of ours that are left over from a broken connection and keep our
-- bell: who waits for it would wait for nobody.  With the caller's own rights.
CREATE OR REPLACE FUNCTION dlock.hush(me text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
	SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l
	WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND (l.classid::bigint << 32) | l.objid::bigint = dlock.bell(me) AND l.pid <> pg_backend_pid()
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
