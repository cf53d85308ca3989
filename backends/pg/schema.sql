-- schema.sql - what lease mode keeps in the database.  Version 11.  (schema_calls.sql goes on.)
--
--	dlock help pg-schema | psql --dbname=DATABASE      creates it, or brings it up to date
--	GRANT USAGE ON SCHEMA dlock TO ROLE                is all that a role needs to use it
--
-- The interface is the functions take, enter, await, renew, release and release_alone; those
-- that look and steer, and those of mode=row, are at the end.  Those that touch tables run with
-- the rights of the owner (SECURITY DEFINER), so that nobody else needs any right on the tables
-- and nobody can tamper with another's hold; their search_path is fixed.  Each is one statement
-- and one transaction for its caller.  mysql/schema.sql has the same ones.
--
-- In a new session, which a short command has, PL/pgSQL costs 3 ms.  So where nobody else has to
-- do with a key, take (which asks first) and release_alone are a single SQL statement inside.
--
-- A record is cut to 1023 characters when it comes and when it goes: whoever may call the
-- functions could otherwise fill the memory of all who wait or look.
--
-- Everything about a key is a row of `claims`, one for each owner who holds or waits.  What
-- holds between two transactions:
--  1. One exclusive claim holds under a key, or any number of shared ones, or up to `room` of a
--     limit: whoever grants or gives back has the key's advisory lock (of the transaction, so
--     until what was done is visible), and decides by what can be seen from then on, in read
--     committed.
--  2. Where somebody holds, exactly one of them leads, and a unique index sees to that.  An
--     exclusive claim is granted as the leader only.  So what is decided by an older snapshot
--     (take, and every function under a stricter isolation) that index refuses.  When a leader
--     among others goes, serve() makes another one the leader, under the key's lock.  Claims of
--     other kinds are asked for in read committed only; a release by a stricter one may grant to
--     them, but only to rows that are as its snapshot has them, in the order of their tickets,
--     and whoever was granted since then was before these or is one of them.
--  3. release_alone() takes no lock of the key.  It deletes an exclusive holder alone: beside
--     that nobody leads or can be granted, so there is nobody to lead next.
--  4. A hold counts until its row is gone, whatever `ends` says: a renewal takes no lock but the
--     row's, and DELETE looks at the newest version of it.
--  5. Where a living waiter fits, it has been granted: there is no free lock with a queue, so
--     nobody needs to look in vain and nobody can barge in.  (But a waiter that has lost its
--     session keeps its place for some seconds, and is passed over until it asks again.  And a
--     release may overlook one that came at the same moment: that one wakes, and asks.)
--  6. A freeze is a hold of nobody's, of a kind that goes with no other, beside those who hold:
--     it leads until it ends, and so nobody can be granted.  Its ticket is 0, so that there is
--     one of it.
--
-- Time is the server's, clock_timestamp() throughout: now() would be the time at which a
-- transaction began that may have waited since.
--
-- A waiter on a direct connection keeps an advisory lock of the session, derived from the
-- owner's name: its wake-up lock.  An exclusive claim keeps it as long as it holds; the others
-- give it back when they know that they have been granted.  A waiter sleeps in await() on that
-- of the claim behind which its turn can come:
--  * the exclusive one that is next before it, of those who wait or holds, if everybody in
--    between fits beside it: so one release wakes all whom it grants;
--  * otherwise the waiter next before it, which wakes it when it is granted or leaves;
--  * the first in line, where the holders are not exclusive, LISTENs: whoever grants sends it a
--    notification.  Of waiters only these listen, one a key, since a NOTIFY makes every session
--    of the database run that does.
-- A release takes its wake-up lock once more for the transaction and then gives back the
-- session's share: so it is free at the moment when what the transaction has granted can be
-- seen.  It only wakes; what is true stands in the table.
BEGIN;

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;

-- Two that come here at once take turns.
DO $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(7235142765483); END $$;

CREATE SCHEMA IF NOT EXISTS dlock;

-- A version is for all that is in here, the functions' bodies too: whoever changes one, raises
-- it, and so a change reaches servers.  A client of version N uses a schema that has serves_N().
-- Where that is missing, a client of the schema's owner runs this script.  Version 7 has what lists
-- and forgets runs beside all of 6, so that its clients need no more than that for all else, and are
-- told to run this script where it is not there.  Version 8 has asker() besides, without which a look
-- does; version 9 does with less what it did; version 10 has another rule
-- for clocks that were wrong (find_done), and is refused where a policy hides rows (row_security); version 11 has besides what
-- keeps the runs of --no-retry that failed and those of --remember (ended), of which clients of before know nothing.  None takes anything away:
-- the functions of version 5 that have another name now stay where they are, for their clients.
DO $$
DECLARE
	its_version integer := (SELECT substring(obj_description(n.oid, 'pg_namespace') FROM '^dlock ([0-9]{1,9}):')
		FROM pg_namespace n WHERE n.nspname = 'dlock');
BEGIN
	IF its_version > 11 THEN
		RAISE feature_not_supported USING MESSAGE = 'a newer dlock has made the schema dlock: use that one';
	ELSIF its_version < 4 OR to_regclass('dlock.holds') IS NOT NULL THEN
		RAISE feature_not_supported USING MESSAGE = 'the schema dlock is of a dlock that was never released: drop it';
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

COMMENT ON SCHEMA dlock IS 'dlock 11: locks for commands, see dlock(1)';

CREATE TABLE IF NOT EXISTS dlock.claims (
	key text COLLATE "C",
	ticket bigint,				-- served in this order
	owner text NOT NULL CHECK (owner ~ '^[0-9a-f]{32}$'),
	kind text NOT NULL CHECK (kind IN ('exclusive', 'shared', 'limit', 'freeze')),
	room integer NOT NULL CHECK (CASE kind WHEN 'limit' THEN room BETWEEN 1 AND 100000 ELSE room = 0 END),	-- the limit
	lease interval NOT NULL CHECK (lease BETWEEN '0' AND '100 years'),
	direct boolean NOT NULL,		-- while it waits: lives while its wake-up lock is held
	listens boolean NOT NULL DEFAULT false,	-- a notification wakes it
	alive timestamptz,			-- as a waiter counts as dead after this; NULL: not known to be away
	token bigint,				-- of the grant: the version that renewals compare; NULL: it waits
	slot integer CHECK (slot >= 0 AND slot < greatest(room, 1)),	-- 0 without a limit; NULL: it waits
	seal text NOT NULL CHECK (seal = kind || ' ' || room || ' ' || coalesce(slot, -1)),	-- who alters one alone is refused
	leads boolean NOT NULL DEFAULT false,	-- of those who hold, this one stands for all
	ends timestamptz,			-- when the lease has run out
	since timestamptz NOT NULL,		-- granted; who waits: came
	record text NOT NULL,			-- who that is, JSON, for people
	wanted_by text,				-- who asks the holder to give it up; NULL: nobody
	PRIMARY KEY (key, ticket),
	CHECK ((kind = 'freeze') = (ticket = 0)),
	CHECK (slot IS NOT NULL OR NOT leads),
	CHECK (octet_length(key) <= 512 AND octet_length(record) <= 4096 AND octet_length(wanted_by) <= 4096),
	CHECK ((slot IS NULL) = (token IS NULL) AND (slot IS NULL) = (ends IS NULL))
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS dlock.runs (		-- of jobs: --once, --cooldown
	key text COLLATE "C",
	id text COLLATE "C" CHECK (octet_length(id) BETWEEN 1 AND 200),	-- of --once; NULL: had none
	began timestamptz NOT NULL CHECK (isfinite(began)),
	ended timestamptz NOT NULL CHECK (isfinite(ended)),
	status integer NOT NULL CHECK (status BETWEEN 0 AND 255),
	token bigint,
	record text NOT NULL,
	CHECK (octet_length(key) <= 512 AND octet_length(record) <= 4096),
	PRIMARY KEY (key, ended, token)		-- the last one of a key is the newest by its end
);

CREATE TABLE IF NOT EXISTS dlock.ended (	-- what runs does not have to have: of each key and ID one
	key text COLLATE "C",
	id text COLLATE "C" CHECK (octet_length(id) <= 200),	-- of --once --no-retry, ended otherwise than with 0; '': of --remember
	began timestamptz NOT NULL CHECK (isfinite(began)),
	ended timestamptz NOT NULL CHECK (isfinite(ended)),
	status integer NOT NULL CHECK (status BETWEEN 0 AND 255),
	token bigint,
	record text NOT NULL,
	CHECK (octet_length(key) <= 512 AND octet_length(record) <= 4096),
	PRIMARY KEY (key, id)
);

CREATE TABLE IF NOT EXISTS dlock.broken (	-- holds that were taken away by force, for a day
	token bigint PRIMARY KEY,
	key text NOT NULL,
	at timestamptz NOT NULL,
	record text NOT NULL,			-- of who did it
	CHECK (octet_length(record) <= 4096)
);

CREATE TABLE IF NOT EXISTS dlock.rows (		-- mode=row: to be locked
	key text COLLATE "C" PRIMARY KEY CHECK (octet_length(key) <= 512),
	token bigint NOT NULL DEFAULT 0		-- of the last hold that ended well
) WITH (fillfactor = 50);

-- Also where the index is there, CREATE INDEX waits for all who write, and everybody for it.
DO $$
BEGIN
	IF to_regclass('dlock.claims_leads') IS NULL THEN
		CREATE UNIQUE INDEX claims_leads ON dlock.claims (key) WHERE leads;
		CREATE UNIQUE INDEX claims_slots ON dlock.claims (key, slot) WHERE kind = 'limit' AND slot IS NOT NULL;
		CREATE UNIQUE INDEX claims_by_owner ON dlock.claims (key, owner);
	END IF;
	IF to_regclass('dlock.runs_done') IS NULL THEN
		CREATE INDEX runs_done ON dlock.runs (key, id) WHERE status = 0;
		CREATE INDEX runs_begun ON dlock.runs (key, began) WHERE status = 0;
		CREATE INDEX runs_ended ON dlock.runs (ended);
	END IF;
	IF to_regclass('dlock.ended_ended') IS NULL THEN
		CREATE INDEX ended_ended ON dlock.ended (ended);
	END IF;
END
$$;

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

-- Never called: that it is there tells clients of version 6, and of those since, that they are served.
CREATE OR REPLACE FUNCTION dlock.serves_6() RETURNS void
LANGUAGE sql IMMUTABLE AS 'SELECT';

-- ---- what the others are made of ----
--
-- Those of one SELECT have no rights and no path of their own, so that the server writes them
-- into the statement that calls them.

-- From here on the caller's transaction is on disk before its end is answered.
CREATE OR REPLACE FUNCTION dlock.flush() RETURNS text
LANGUAGE sql VOLATILE
AS $$ SELECT CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off'
	THEN pg_catalog.set_config('synchronous_commit', 'on', true) END $$;

-- A token or ticket.
CREATE OR REPLACE FUNCTION dlock.number() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$ SELECT dlock.flush(); SELECT nextval('dlock.numbers') $$;

-- The lock of a key, until the end of the transaction.
CREATE OR REPLACE FUNCTION dlock.lock_key(the_key text) RETURNS void
LANGUAGE sql VOLATILE
AS $$ SELECT pg_catalog.pg_advisory_xact_lock(1684828011, pg_catalog.hashtext(the_key)) $$;

-- An owner's wake-up lock: the first half of its 128 bits.
CREATE OR REPLACE FUNCTION dlock.wake_lock(owner text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('x' || pg_catalog."left"(owner, 16))::bit(64)::bigint $$;

-- The advisory locks of this database, held or waited for: `number` is that of one of 64 bits,
-- `form` 2 is one of two times 32.
CREATE OR REPLACE FUNCTION dlock.advisory_locks(OUT form smallint, OUT number bigint, OUT pid integer, OUT mode text, OUT granted boolean)
RETURNS SETOF record
LANGUAGE sql STABLE
AS $$ SELECT l.objsubid, (l.classid::bigint << 32) | l.objid::bigint, l.pid, l.mode, l.granted FROM pg_catalog.pg_locks l
	WHERE l.locktype = 'advisory'
	AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) $$;

CREATE OR REPLACE FUNCTION dlock.microseconds(t timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN isfinite(t) THEN (1000000 * extract(epoch FROM t))::bigint END $$;

-- Is this waiter, another than we, to be passed over?  One that lacks its session is
-- given some seconds to come back to its place.
CREATE OR REPLACE FUNCTION dlock.is_away(w dlock.claims, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
BEGIN
	IF (CASE WHEN w.direct THEN NOT pg_try_advisory_xact_lock_shared(dlock.wake_lock(w.owner))
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

-- Grants to `first`, a waiter that shares the key, and to all such behind it, up to the next that
-- waits for something else; passes over those away.  One statement, for they may be hundreds,
-- and all of them sleep until it is done; `n` is of its own in it, and so is run once, not for each
-- row with which it is joined.  Returns how many it were, and as `last` the ticket of the last one
-- looked at.
CREATE OR REPLACE FUNCTION dlock.serve_readers(the_key text, first bigint, me text, held bigint, moment timestamptz,
	OUT granted bigint, OUT last bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
	stop bigint := (SELECT min(c.ticket) FROM dlock.claims c
		WHERE c.key = the_key AND c.slot IS NULL AND c.ticket > first AND c.kind <> 'shared');
	most bigint;
BEGIN
	SELECT max(c.ticket), count(*) INTO last, most FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NULL
		AND c.ticket >= first AND c.ticket < coalesce(stop, 9223372036854775807);
	WITH n AS (
		SELECT o.ticket, nextval('dlock.numbers') AS token FROM (SELECT w.ticket FROM dlock.claims w
			WHERE w.key = the_key AND w.slot IS NULL AND w.ticket BETWEEN first AND serve_readers.last
				AND (w.ticket = first OR w.owner = me OR NOT dlock.is_away(w, moment))
			ORDER BY w.ticket) o
	), served AS (
		UPDATE dlock.claims c SET token = n.token, since = moment, alive = NULL, leads = held = 0 AND c.ticket = first,
				ends = moment + CASE WHEN c.owner = me THEN c.lease
					ELSE least(c.lease, '3 s'::interval + (held + most) * '10 ms'::interval) END,
				slot = 0, seal = 'shared 0 0'
			FROM n WHERE c.key = the_key AND c.ticket = n.ticket
			RETURNING CASE WHEN c.listens AND c.owner IS DISTINCT FROM me THEN pg_notify('dlock_' || c.owner, '') END)
	SELECT count(*) INTO granted FROM served;
END
$$;
REVOKE ALL ON FUNCTION dlock.serve_readers(text, bigint, text, bigint, timestamptz) FROM PUBLIC;

-- Drops the holds that have run out, sees to it that one of those who hold leads, and grants to
-- those who wait, in order, as long as they fit; passes over those away.  A waiter that is granted
-- so has 3 s, and 10 ms more for each who runs at the same time, to ask again, by which it takes
-- up its lease; `me` is asking.  The caller has the key's lock.  What grants one is run in any case,
-- so that a rehearsal has run it.
CREATE OR REPLACE FUNCTION dlock.serve(the_key text, me text, moment timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
	held bigint;
	led boolean;
	a_kind text;	-- of all who hold; NULL: they do not agree, and nobody fits
	a_room integer;
	a_slot integer;	-- the lowest that is free; 0 without a limit
	w dlock.claims;
	last bigint := 0;
	there boolean;
	fits boolean;
BEGIN
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL AND c.ends <= moment;
	SELECT count(*), bool_or(c.leads), CASE WHEN min(c.kind) = max(c.kind) AND min(c.room) = max(c.room) THEN min(c.kind) END,
		min(c.room) INTO held, led, a_kind, a_room FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL;
	IF NOT led THEN
		UPDATE dlock.claims c SET leads = true WHERE c.key = the_key AND c.ticket =
			(SELECT min(h.ticket) FROM dlock.claims h WHERE h.key = the_key AND h.slot IS NOT NULL);
	END IF;
	LOOP
		SELECT * INTO w FROM dlock.claims c WHERE c.key = the_key AND c.ticket > last AND c.slot IS NULL
			ORDER BY c.ticket LIMIT 1;
		fits := w.ticket IS NOT NULL AND (held = 0 OR coalesce(w.kind <> 'exclusive' AND w.kind = a_kind AND w.room = a_room
			AND (w.kind = 'shared' OR held < w.room), false));
		there := fits AND (coalesce(w.owner = me, false) OR NOT dlock.is_away(w, moment));
		IF there AND w.kind = 'shared' THEN
			SELECT held + r.granted, r.last INTO held, last FROM dlock.serve_readers(the_key, w.ticket, me, held, moment) r;
			a_kind := w.kind;
			a_room := w.room;
			CONTINUE;
		END IF;
		a_slot := CASE WHEN there AND w.kind = 'limit' THEN (SELECT min(s) FROM generate_series(0, held) s
			WHERE NOT EXISTS (SELECT FROM dlock.claims h WHERE h.key = the_key AND h.slot = s)) ELSE 0 END;
		UPDATE dlock.claims c SET token = nextval('dlock.numbers'), since = moment, alive = NULL, leads = held = 0,
				ends = moment + CASE WHEN w.owner = me THEN w.lease ELSE least(w.lease, '3 s'::interval + held * '10 ms'::interval) END,
				slot = a_slot, seal = w.kind || ' ' || w.room || ' ' || a_slot
			WHERE c.key = the_key AND c.ticket = w.ticket AND there;
		IF there THEN
			IF w.listens AND w.owner IS DISTINCT FROM me THEN
				PERFORM pg_notify('dlock_' || w.owner, '');
			END IF;
			held := held + 1;
			a_kind := w.kind;
			a_room := w.room;
		END IF;
		EXIT WHEN NOT fits OR (there AND w.kind = 'exclusive');
		last := w.ticket;
	END LOOP;
END
$$;
REVOKE ALL ON FUNCTION dlock.serve(text, text, timestamptz) FROM PUBLIC;

-- Where a waiter is in the queue, and who holds: until when at least (or a day), since when
-- and who is the first of them, how many they are and of what kind; where nobody does, the
-- same of a freeze.
CREATE OR REPLACE FUNCTION dlock.look(the_key text, mine bigint, moment timestamptz,
	OUT place bigint, OUT left_ms bigint, OUT held_ms bigint, OUT holder text, OUT holders bigint, OUT held_kind text,
	OUT held_room integer, OUT holds_direct boolean, OUT holds_owner text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
BEGIN
	SELECT count(*) INTO place FROM dlock.claims c WHERE c.key = the_key AND c.ticket <= mine AND c.slot IS NULL
			AND (c.alive IS NULL OR c.alive > moment);
	SELECT ceil(1000 * extract(epoch FROM least(min(c.ends), moment + '1 day'::interval) - moment)),
		count(*) FILTER (WHERE c.kind <> 'freeze') INTO left_ms, holders
		FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL;
	SELECT 1000 * extract(epoch FROM moment - c.since), "left"(c.record, 1023), c.kind, c.room, c.direct, c.owner
		INTO held_ms, holder, held_kind, held_room, holds_direct, holds_owner
		FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL ORDER BY c.kind = 'freeze', c.token LIMIT 1;
END
$$;
REVOKE ALL ON FUNCTION dlock.look(text, bigint, timestamptz) FROM PUBLIC;

-- The run because of which a job is done: one with its ID that ended with 0, or the one that
-- ended with 0 and began last, if that is younger than the cooldown.  A run that is dated further
-- ahead than the cooldown is long proves nothing.
CREATE OR REPLACE FUNCTION dlock.find_done(the_key text, my_once text, cooldown_ms bigint, moment timestamptz,
	OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT record text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
	r dlock.runs;
BEGIN
	SELECT * INTO r FROM dlock.runs u WHERE u.key = the_key AND u.id = my_once AND u.status = 0 LIMIT 1;
	IF FOUND THEN
		done_by := 'once';
	ELSIF cooldown_ms > 0 THEN
		SELECT * INTO r FROM dlock.runs u WHERE u.key = the_key AND u.status = 0 AND u.began < moment + cooldown_ms * '1 ms'::interval
			ORDER BY u.began DESC LIMIT 1;
		IF moment - r.began < cooldown_ms * '1 ms'::interval THEN
			done_by := 'cooldown';
		END IF;
	END IF;
	began_ms := 1000 * extract(epoch FROM r.began);
	age_ms := greatest(0, 1000 * extract(epoch FROM moment - r.began));
	record := "left"(r.record, 1023);
END
$$;
REVOKE ALL ON FUNCTION dlock.find_done(text, text, bigint, timestamptz) FROM PUBLIC;

-- Makes a session fit for long waits; it is this waiter's alone.  The server is to notice while we
-- sleep that we are gone, also by an unplugged cable.
CREATE OR REPLACE FUNCTION dlock.settle() RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
	SELECT set_config(s.name, s.value, false) FROM (VALUES ('client_connection_check_interval', '2s'), ('tcp_keepalives_idle', '4'),
		('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '4'), ('statement_timeout', '0'), ('transaction_timeout', '0'),
		('default_transaction_isolation', 'read committed'), ('plan_cache_mode', 'force_generic_plan')) s(name, value)
		WHERE current_setting(s.name, true) IS NOT NULL	-- older servers lack some
		AND (s.name <> 'client_connection_check_interval' OR current_setting(s.name, true) = '0');
	SELECT
$$;
REVOKE ALL ON FUNCTION dlock.settle() FROM PUBLIC;

-- enter() for whatever is asked, and whatever it finds.
--
-- A session that does this for the first time takes 10 ms for what will be 1 ms.  Not while it has
-- the key: so all is done once for a key that cannot be, of no kind.
CREATE OR REPLACE FUNCTION dlock.enter_fully(the_key text, me text, my_record text, lease_ms bigint, patience_ms bigint,
	my_kind text, my_room integer, my_once text, cooldown_ms bigint, session integer, had_own boolean,
	OUT code integer, OUT token bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT is_next boolean,
	OUT ahead bigint, OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT record text,
	OUT direct boolean, OUT has_own boolean, OUT is_listening boolean, OUT moment bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
	t timestamptz;
	my_lease interval := lease_ms * '1 ms'::interval;
	mine dlock.claims;
	w dlock.claims;
	dead timestamptz;
	last bigint;
	last_exclusive bigint;
	together boolean := false;	-- we fit beside all between us and an exclusive one
	holds_direct boolean;
	holds_owner text;
BEGIN
	direct := session = pg_backend_pid();
	has_own := had_own;
	is_listening := false;
	IF my_kind <> 'exclusive' AND current_setting('transaction_isolation') <> 'read committed' THEN
		RAISE feature_not_supported USING MESSAGE = 'more than one holder needs default_transaction_isolation = read committed';
	END IF;
	IF direct AND NOT had_own THEN
		has_own := pg_try_advisory_lock(dlock.wake_lock(me));
		PERFORM dlock.settle();
		PERFORM dlock.enter_fully(E'\001' || me, me, NULL, 0, 0, NULL, 0, NULL, 0, 0, false);
	END IF;
	PERFORM dlock.lock_key(the_key);
	t := clock_timestamp();
	moment := dlock.microseconds(t);
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL AND c.ends <= t;
	SELECT * INTO mine FROM dlock.claims c WHERE c.key = the_key AND c.owner = me;
	IF my_once IS NOT NULL OR cooldown_ms > 0 THEN
		SELECT d.done_by, d.began_ms, d.age_ms, d.record INTO done_by, began_ms, age_ms, record
			FROM dlock.find_done(the_key, my_once, cooldown_ms, t) d;
	END IF;

	code := 0;
	dead := CASE WHEN NOT direct THEN t + greatest(least(patience_ms, 60000), 1) * '1 ms'::interval END;
	IF done_by IS NOT NULL THEN
		code := 2;
	ELSIF mine.slot IS NOT NULL THEN
		UPDATE dlock.claims c SET ends = t + my_lease WHERE c.key = the_key AND c.ticket = mine.ticket;
	ELSIF mine.ticket IS NOT NULL THEN
		UPDATE dlock.claims c SET alive = dead, direct = enter_fully.direct WHERE c.key = the_key AND c.ticket = mine.ticket
			AND (c.direct <> enter_fully.direct OR c.alive IS DISTINCT FROM dead);
	ELSE
		WHILE my_kind <> 'exclusive' AND code = 0 LOOP
			SELECT * INTO w FROM dlock.claims c WHERE c.key = the_key AND c.kind <> 'exclusive'
				AND c.kind <> 'freeze' AND (c.kind <> my_kind OR c.room <> my_room) ORDER BY c.ticket LIMIT 1;
			EXIT WHEN w.ticket IS NULL;
			IF w.slot IS NOT NULL OR NOT dlock.is_away(w, t) THEN
				code := -1;
				held_kind := w.kind;
				held_room := w.room;
			ELSE
				DELETE FROM dlock.claims c WHERE c.key = the_key AND c.ticket = w.ticket;
			END IF;
		END LOOP;
		INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, seal, lease, direct, alive, since, record)
			SELECT the_key, nextval('dlock.numbers'), me, my_kind, my_room, my_kind || ' ' || my_room || ' -1', my_lease,
				enter_fully.direct, dead, t, "left"(my_record, 1023)
			WHERE code = 0 AND my_kind IS NOT NULL
			RETURNING * INTO mine;
	END IF;
	PERFORM dlock.serve(the_key, me, t);
	IF code <> 0 THEN
		token := mine.ticket;
		RETURN;
	END IF;
	SELECT c.token, c.slot INTO token, slot FROM dlock.claims c WHERE c.key = the_key AND c.ticket = mine.ticket;
	IF token IS NOT NULL THEN
		code := 1;
		PERFORM dlock.flush();
		IF mine.kind <> 'exclusive' AND has_own THEN
			PERFORM pg_advisory_unlock(dlock.wake_lock(me));
			has_own := false;
		END IF;
		IF mine.listens AND direct THEN
			EXECUTE 'UNLISTEN *';
		END IF;
		RETURN;
	END IF;

	SELECT * INTO place, left_ms, held_ms, holder, holders, held_kind, held_room, holds_direct, holds_owner
		FROM dlock.look(the_key, mine.ticket, t);
	IF mine.kind <> 'exclusive' THEN
		SELECT max(c.ticket) INTO last_exclusive FROM dlock.claims c
			WHERE c.key = the_key AND c.slot IS NULL AND c.ticket < mine.ticket AND c.kind = 'exclusive';
		together := (last_exclusive IS NOT NULL OR held_kind = 'exclusive') AND (mine.kind = 'shared' OR mine.room >
			(SELECT count(*) FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NULL AND c.ticket < mine.ticket
				AND c.ticket > coalesce(last_exclusive, 0)));
	END IF;
	last := mine.ticket;
	FOR n IN 1..4 LOOP	-- not all: after a restart hundreds are away at once, and come back
		SELECT * INTO w FROM dlock.claims c WHERE c.key = the_key AND c.ticket < last AND c.slot IS NULL
			AND (NOT together OR c.kind = 'exclusive')
			ORDER BY c.ticket DESC LIMIT 1;
		EXIT WHEN NOT dlock.is_away(w, t) OR w.ticket IS NULL;
		last := w.ticket;
	END LOOP;
	is_next := w.ticket IS NULL;
	IF is_next AND held_kind <> 'exclusive' THEN
		IF direct AND patience_ms > 0 THEN
			EXECUTE format('LISTEN %I', 'dlock_' || me);
			UPDATE dlock.claims c SET listens = true WHERE c.key = the_key AND c.ticket = mine.ticket AND NOT c.listens;
			is_listening := true;
		END IF;
	ELSIF (CASE WHEN is_next THEN holds_direct ELSE w.direct END) THEN
		ahead := dlock.wake_lock(coalesce(w.owner, holds_owner));
	END IF;
	IF patience_ms = 0 THEN
		DELETE FROM dlock.claims c WHERE c.key = the_key AND c.ticket = mine.ticket;
	END IF;
	IF my_kind IS NOT NULL AND (patience_ms = 0 OR mine.since < now()) THEN	-- a new place is to outlive a crash of the server, so that the order does
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END
$$;
REVOKE ALL ON FUNCTION dlock.enter_fully(text, text, text, bigint, bigint, text, integer, text, bigint, integer, boolean) FROM PUBLIC;
