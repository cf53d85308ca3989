-- schema_5.sql - the schema dlock of version 5, as its last release had it, without the comments between
-- the functions.  What it says is never changed: servers have it.

BEGIN;

SET LOCAL client_min_messages = warning;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(7235142765483); END $$;

CREATE SCHEMA IF NOT EXISTS dlock;

DO $$
DECLARE
	its_version integer := (SELECT substring(obj_description(n.oid, 'pg_namespace') FROM '^dlock ([0-9]{1,9}):')
		FROM pg_namespace n WHERE n.nspname = 'dlock');
BEGIN
	IF its_version > 5 THEN
		RAISE feature_not_supported USING MESSAGE = 'a newer dlock has made the schema dlock: use that one';
	ELSIF its_version < 4 OR to_regclass('dlock.holds') IS NOT NULL THEN
		RAISE feature_not_supported USING MESSAGE = 'the schema dlock is of a dlock that was never released: drop it';
	END IF;
END
$$;

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

COMMENT ON SCHEMA dlock IS 'dlock 5: locks for commands, see dlock(1)';

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
END
$$;

DO $$
BEGIN
	IF pg_catalog.to_regclass('dlock.numbers') IS NULL THEN
		EXECUTE pg_catalog.format('CREATE SEQUENCE dlock.numbers START WITH %s',
			(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.version() RETURNS integer
LANGUAGE sql IMMUTABLE AS 'SELECT 5';

CREATE OR REPLACE FUNCTION dlock.serves_5() RETURNS void
LANGUAGE sql IMMUTABLE AS 'SELECT';

CREATE OR REPLACE FUNCTION dlock.number() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
	SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;
	SELECT nextval('dlock.numbers')
$$;

CREATE OR REPLACE FUNCTION dlock.wake_lock(owner text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT ('x' || pg_catalog."left"(owner, 16))::bit(64)::bigint $$;

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

CREATE OR REPLACE FUNCTION dlock.serve_readers(the_key text, first bigint, me text, held bigint, moment timestamptz,
	OUT granted bigint, OUT last bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION dlock.serve(the_key text, me text, moment timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION dlock.take_unclaimed(the_key text, me text, my_record text, my_lease interval,
	client_pid integer, my_wake bigint, OUT granted bigint, OUT direct boolean, OUT wakes boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
	INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, lease, direct, token, slot, seal, leads, ends, since, record)
		SELECT the_key, n.n, me, 'exclusive', 0, my_lease, client_pid = pg_backend_pid(), n.n, 0, 'exclusive 0 0', true,
			clock_timestamp() + my_lease, clock_timestamp(), "left"(my_record, 1023)
		FROM (SELECT nextval('dlock.numbers') FROM (SELECT pg_advisory_xact_lock(1684828011, hashtext(the_key)),
			CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
			OFFSET 0) l OFFSET 0) n(n)
		WHERE NOT EXISTS (SELECT FROM dlock.claims o WHERE o.key = the_key)
	ON CONFLICT DO NOTHING
	RETURNING c.token, c.direct, CASE WHEN c.direct AND my_wake <> 0 THEN pg_try_advisory_lock(my_wake) END
$$;

CREATE OR REPLACE FUNCTION dlock.look(the_key text, mine bigint, moment timestamptz,
	OUT place bigint, OUT left_ms bigint, OUT held_ms bigint, OUT holder text, OUT holders bigint, OUT held_kind text,
	OUT held_room integer, OUT holds_direct boolean, OUT holds_owner text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

CREATE OR REPLACE FUNCTION dlock.find_run(the_key text, my_once text, cooldown_ms bigint, moment timestamptz,
	OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT who text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r dlock.runs;
BEGIN
	SELECT * INTO r FROM dlock.runs u WHERE u.key = the_key AND u.id = my_once AND u.status = 0 LIMIT 1;
	IF FOUND THEN
		done_by := 'once';
	ELSIF cooldown_ms > 0 THEN
		SELECT * INTO r FROM dlock.runs u WHERE u.key = the_key AND u.status = 0 AND u.began < moment + '1 day'::interval
			ORDER BY u.began DESC LIMIT 1;
		IF moment - r.began < cooldown_ms * '1 ms'::interval THEN
			done_by := 'cooldown';
		END IF;
	END IF;
	began_ms := 1000 * extract(epoch FROM r.began);
	age_ms := greatest(0, 1000 * extract(epoch FROM moment - r.began));
	who := substring("left"(r.record, 1023) FROM '"who":"([^"\\[:cntrl:]]{1,100})"');
END
$$;
REVOKE ALL ON FUNCTION dlock.find_run(text, text, bigint, timestamptz) FROM PUBLIC;

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

CREATE OR REPLACE FUNCTION dlock.enter_queue(the_key text, me text, my_record text, lease_ms bigint,
	patience_ms bigint, my_kind text, my_room integer, client_pid integer, my_wake bigint,
	my_once text DEFAULT NULL, cooldown_ms bigint DEFAULT 0,
	OUT code integer, OUT granted bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT next boolean,
	OUT ahead bigint, OUT listening boolean, OUT direct boolean, OUT wakes boolean,
	OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT who text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	my_lease interval := lease_ms * '1 ms'::interval;
	mine dlock.claims;
	w dlock.claims;
	dead timestamptz;
	last bigint;
	last_exclusive bigint;
	together boolean := false;	-- we fit beside all between us and an exclusive one
	p record;
	rehearsal boolean;
	joined boolean := false;
	a_key text;
BEGIN
	patience_ms := least(patience_ms, 60000);
	direct := client_pid = pg_backend_pid();
	listening := false;
	IF my_kind <> 'exclusive' AND current_setting('transaction_isolation') <> 'read committed' THEN
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
		IF my_once IS NOT NULL OR cooldown_ms > 0 THEN
			SELECT * INTO p FROM dlock.find_run(a_key, my_once, cooldown_ms, moment);
			IF p.done_by IS NOT NULL THEN
				code := 2;
				granted := mine.ticket;
				done_by := p.done_by;
				began_ms := p.began_ms;
				age_ms := p.age_ms;
				who := p.who;
				PERFORM dlock.serve(a_key, me, moment);
				RETURN;
			END IF;
		END IF;
		IF mine.slot IS NULL THEN
			IF mine.ticket IS NULL AND my_kind <> 'exclusive' THEN
				LOOP
					SELECT * INTO w FROM dlock.claims c WHERE c.key = a_key AND c.kind <> 'exclusive'
						AND c.kind <> 'freeze' AND (c.kind <> my_kind OR c.room <> my_room) ORDER BY c.ticket LIMIT 1;
					EXIT WHEN w.ticket IS NULL;
					IF w.slot IS NOT NULL OR NOT dlock.is_away(w, moment) THEN
						code := -1;
						held_kind := w.kind;
						held_room := w.room;
						PERFORM dlock.serve(a_key, me, moment);
						RETURN;
					END IF;
					DELETE FROM dlock.claims c WHERE c.key = a_key AND c.ticket = w.ticket;
				END LOOP;
			END IF;
			dead := CASE WHEN NOT direct THEN moment + greatest(patience_ms, 1) * '1 ms'::interval END;
			IF mine.ticket IS NULL THEN
				INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, seal, lease, direct, alive, since, record)
					SELECT a_key, nextval('dlock.numbers'), me, my_kind, my_room, my_kind || ' ' || my_room || ' -1', my_lease, enter_queue.direct, dead, moment, "left"(my_record, 1023)
					WHERE NOT rehearsal
					RETURNING * INTO mine;
				joined := FOUND AND patience_ms > 0;
			ELSIF mine.direct <> direct OR mine.alive IS DISTINCT FROM dead THEN
				UPDATE dlock.claims c SET alive = dead, direct = enter_queue.direct
					WHERE c.key = a_key AND c.ticket = mine.ticket;
			END IF;
			PERFORM dlock.serve(a_key, me, moment);
			SELECT c.token, c.slot INTO granted, slot FROM dlock.claims c WHERE c.key = a_key AND c.ticket = mine.ticket;
		ELSE
			UPDATE dlock.claims c SET ends = moment + my_lease WHERE c.key = a_key AND c.ticket = mine.ticket
				RETURNING c.token, c.slot INTO granted, slot;
			PERFORM dlock.serve(a_key, me, moment);	-- a hold that has run out may have been the leader's
		END IF;

		IF granted IS NOT NULL THEN
			code := 1;
			IF current_setting('synchronous_commit') = 'off' THEN
				PERFORM set_config('synchronous_commit', 'on', true);
			END IF;
			IF mine.kind <> 'exclusive' AND direct AND (wakes OR my_wake = 0) THEN
				PERFORM pg_advisory_unlock(dlock.wake_lock(me));
			END IF;
			IF mine.listens AND direct THEN
				EXECUTE 'UNLISTEN *';
			END IF;
			RETURN;
		END IF;
		code := 0;
		SELECT * INTO p FROM dlock.look(a_key, mine.ticket, moment);
		place := p.place;
		left_ms := p.left_ms;
		held_ms := p.held_ms;
		holder := p.holder;
		holders := p.holders;
		held_kind := p.held_kind;
		held_room := p.held_room;
		IF mine.kind <> 'exclusive' THEN
			SELECT max(c.ticket) INTO last_exclusive FROM dlock.claims c
				WHERE c.key = a_key AND c.slot IS NULL AND c.ticket < mine.ticket AND c.kind = 'exclusive';
			together := (last_exclusive IS NOT NULL OR p.held_kind = 'exclusive') AND (mine.kind = 'shared' OR mine.room >
				(SELECT count(*) FROM dlock.claims c WHERE c.key = a_key AND c.slot IS NULL AND c.ticket < mine.ticket
					AND c.ticket > coalesce(last_exclusive, 0)));
		END IF;
		last := mine.ticket;
		FOR n IN 1..4 LOOP	-- not all: after a restart hundreds are away at once, and come back
			SELECT * INTO w FROM dlock.claims c WHERE c.key = a_key AND c.ticket < last AND c.slot IS NULL
				AND (NOT together OR c.kind = 'exclusive')
				ORDER BY c.ticket DESC LIMIT 1;
			EXIT WHEN NOT dlock.is_away(w, moment) OR w.ticket IS NULL;
			last := w.ticket;
		END LOOP;
		EXIT WHEN NOT rehearsal;
		rehearsal := false;
	END LOOP;
	next := w.ticket IS NULL;
	IF next AND p.held_kind <> 'exclusive' THEN
		IF direct AND patience_ms > 0 THEN
			EXECUTE format('LISTEN %I', 'dlock_' || me);
			UPDATE dlock.claims c SET listens = true WHERE c.key = the_key AND c.ticket = mine.ticket AND NOT c.listens;
			listening := true;
		END IF;
	ELSIF (CASE WHEN next THEN p.holds_direct ELSE w.direct END) THEN
		ahead := dlock.wake_lock(coalesce(w.owner, p.holds_owner));
	END IF;
	IF patience_ms = 0 THEN
		DELETE FROM dlock.claims c WHERE c.key = the_key AND c.ticket = mine.ticket;
	END IF;
	IF NOT joined THEN	-- a new place is to outlive a crash of the server, so that the order does
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.await(the_key text, me text, ahead bigint, ms integer, my_wake bigint, rehearse boolean,
	OUT code integer, OUT granted bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT next boolean, OUT wakes boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ticket bigint;	-- ours, if it waits
	unlistens boolean;
	gave boolean;
	p record;
BEGIN
	IF my_wake <> 0 THEN
		wakes := pg_try_advisory_lock(my_wake);
	END IF;
	IF rehearse THEN
		PERFORM dlock.renew(E'\001' || me, me, 0, 0, 0, 0), dlock.release_among(E'\001' || me, me, 0),
			dlock.await(E'\001' || me, me, dlock.wake_lock(me), 1, 0, false);
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
	-- One statement, all of which the rehearsal has run: each more would be the first of its kind here.
	SELECT CASE WHEN c.runs THEN c.token END, CASE WHEN c.runs THEN c.slot END, CASE WHEN c.slot IS NULL THEN c.ticket END,
			c.runs AND c.listens, CASE WHEN c.runs AND c.kind <> 'exclusive' AND (wakes OR my_wake = 0)
				THEN pg_advisory_unlock(dlock.wake_lock(me)) END
		INTO granted, slot, ticket, unlistens, gave
		FROM (SELECT o.*, o.ends > clock_timestamp() AS runs FROM dlock.claims o
			WHERE o.key = the_key AND o.owner = me OFFSET 0) c;
	IF unlistens THEN
		EXECUTE 'UNLISTEN *';
	END IF;
	IF code = 0 AND ticket IS NOT NULL THEN
		SELECT * INTO p FROM dlock.look(the_key, ticket, clock_timestamp());
		place := p.place;
		left_ms := p.left_ms;
		held_ms := p.held_ms;
		holder := p.holder;
		holders := p.holders;
		held_kind := p.held_kind;
		held_room := p.held_room;
		next := coalesce(dlock.wake_lock(p.holds_owner) = ahead, false);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.renew(the_key text, me text, my_token bigint, lease_ms bigint,
	client_pid integer, my_wake bigint, OUT code integer, OUT wakes boolean, OUT wanted_by text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	UPDATE dlock.claims c SET ends = clock_timestamp() + lease_ms * '1 ms'::interval
		WHERE c.key = the_key AND c.owner = me AND c.token = my_token AND c.ends > clock_timestamp()
		RETURNING 1, "left"(c.wanted_by, 1023) INTO code, wanted_by;
	IF code IS NULL THEN
		code := 0;
		IF my_token > 0 THEN
			SELECT "left"(b.record, 1023) INTO wanted_by FROM dlock.broken b WHERE b.token = my_token AND b.key = the_key;
		END IF;
	ELSIF my_wake <> 0 AND client_pid = pg_backend_pid() THEN
		wakes := pg_try_advisory_lock(my_wake);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.release_among(the_key text, me text, my_wake bigint,
	my_status integer DEFAULT NULL, my_once text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	mine dlock.claims;
	moment timestamptz;
BEGIN
	PERFORM pg_advisory_xact_lock(1684828011, hashtext(the_key));
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me RETURNING * INTO mine;
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL AND c.ends <= clock_timestamp();
	PERFORM dlock.serve(the_key, NULL, clock_timestamp());
	moment := clock_timestamp();
	IF my_wake <> 0 THEN
		PERFORM pg_advisory_xact_lock(my_wake), pg_advisory_unlock(my_wake);
	END IF;
	IF my_status IS NOT NULL AND mine.ends > moment THEN
		INSERT INTO dlock.runs (key, id, began, ended, status, token, record)
			VALUES (the_key, my_once, mine.since, moment, my_status, mine.token, mine.record);
		DELETE FROM dlock.runs u WHERE u.ctid = ANY (ARRAY(SELECT o.ctid FROM dlock.runs o
			WHERE o.ended < moment - '400 days'::interval ORDER BY o.ended LIMIT 100));
		IF current_setting('synchronous_commit') = 'off' THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
	ELSE
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	RETURN CASE WHEN mine.ends > moment THEN 1 WHEN mine.ticket IS NOT NULL AND mine.slot IS NULL THEN 2 ELSE 0 END;
END
$$;

CREATE OR REPLACE FUNCTION dlock.release(the_key text, me text, my_wake bigint) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
	WITH alone AS (
		DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me AND c.slot IS NOT NULL AND c.kind = 'exclusive'
			AND NOT EXISTS (SELECT FROM dlock.claims o WHERE o.key = the_key AND o.owner <> me)
		RETURNING c.ends > clock_timestamp() AS still, set_config('synchronous_commit', 'off', true),
			CASE WHEN my_wake <> 0 THEN pg_advisory_xact_lock(my_wake) IS NULL END,
			CASE WHEN my_wake <> 0 THEN pg_advisory_unlock(my_wake) END
	)
	SELECT a.still::integer FROM alone a
	UNION ALL
	SELECT dlock.release_among(the_key, me, my_wake) WHERE NOT EXISTS (SELECT FROM alone)
$$;

CREATE OR REPLACE FUNCTION dlock.end_old_sessions(me text) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
	SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l
	WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND (l.classid::bigint << 32) | l.objid::bigint = dlock.wake_lock(me) AND l.pid <> pg_backend_pid()
		AND l.pid IN (SELECT a.pid FROM pg_stat_activity a WHERE a.usename = current_user)
$$;

CREATE OR REPLACE FUNCTION dlock.add_row(the_key text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ INSERT INTO dlock.rows (key) VALUES (the_key) ON CONFLICT DO NOTHING $$;

CREATE OR REPLACE FUNCTION dlock.lock_row(the_key text, lease_ms bigint, patient boolean, name text, shared boolean,
	OUT code integer, OUT granted bigint, OUT transaction bigint, OUT waiting bigint, OUT holder integer,
	OUT holders bigint, OUT is_shared boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	old dlock.rows;
	locker xid;
	place tid;
	one integer := hashtext(the_key);
	two integer := hashtext(the_key || E'\001');
	got boolean := true;
BEGIN
	PERFORM set_config('application_name', name, true);
	PERFORM set_config('idle_in_transaction_session_timeout', lease_ms::text, true);
	IF patient AND shared THEN
		PERFORM pg_advisory_xact_lock_shared(one, two);
		SELECT * INTO old FROM dlock.rows r WHERE r.key = the_key FOR SHARE;
	ELSIF patient THEN
		PERFORM pg_advisory_xact_lock(one, two);
		SELECT * INTO old FROM dlock.rows r WHERE r.key = the_key FOR UPDATE;
	ELSIF shared THEN
		got := pg_try_advisory_xact_lock_shared(one, two);
		SELECT * INTO old FROM dlock.rows r WHERE got AND r.key = the_key FOR SHARE SKIP LOCKED;
	ELSE
		got := pg_try_advisory_xact_lock(one, two);
		SELECT * INTO old FROM dlock.rows r WHERE got AND r.key = the_key FOR UPDATE SKIP LOCKED;
	END IF;
	IF FOUND THEN
		code := 1;
		IF shared THEN	-- one at a time; nothing in here can wait or fail but the first lock
			SELECT CASE WHEN pg_advisory_lock(1684828012, 0) IS NOT NULL THEN setval('dlock.numbers', greatest(old.token + 1,
				nextval('dlock.numbers'), (1000000 * extract(epoch FROM clock_timestamp()))::bigint)) END,
				pg_advisory_unlock(1684828012, 0) INTO granted, got;
		ELSE
			granted := greatest(old.token + 1, nextval('dlock.numbers'),
				(1000000 * extract(epoch FROM clock_timestamp()))::bigint);
			UPDATE dlock.rows r SET token = granted WHERE r.key = the_key;
		END IF;
		transaction := txid_current();
		PERFORM set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);
		RETURN;
	END IF;
	-- Whoever locked the row left his transaction's number in it.  Others than dlock's
	-- wait for that transaction, or for the place of the row.
	SELECT r.xmax, r.ctid INTO locker, place FROM dlock.rows r WHERE r.key = the_key;
	code := CASE WHEN FOUND THEN 0 ELSE -1 END;
	SELECT min(l.pid), count(*), bool_or(l.mode = 'ShareLock') INTO holder, holders, is_shared FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND l.classid::bigint = one::bigint & 4294967295 AND l.objid::bigint = two::bigint & 4294967295 AND l.objsubid = 2
		AND l.granted AND l.pid <> pg_backend_pid();
	IF holder IS NULL THEN
		SELECT l.pid, 1 INTO holder, holders FROM pg_locks l
			WHERE l.locktype = 'transactionid' AND l.transactionid = locker AND l.granted;
		is_shared := false;
	END IF;
	SELECT count(DISTINCT l.pid) INTO waiting FROM pg_locks l WHERE NOT l.granted
		AND ((l.locktype = 'transactionid' AND l.transactionid = locker)
		OR (l.locktype = 'tuple' AND l.relation = 'dlock.rows'::regclass
			AND format('(%s,%s)', l.page, l.tuple)::tid = place)
		OR (l.locktype = 'advisory' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
			AND l.classid::bigint = one::bigint & 4294967295 AND l.objid::bigint = two::bigint & 4294967295 AND l.objsubid = 2));
END
$$;

CREATE OR REPLACE FUNCTION dlock.microseconds(t timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN isfinite(t) THEN (1000000 * extract(epoch FROM t))::bigint END $$;

CREATE OR REPLACE FUNCTION dlock.list_claims(the_key text, after_key text, after_turn integer, after_number bigint, most integer,
	OUT key text, OUT turn integer, OUT number bigint, OUT kind text, OUT room integer, OUT token bigint, OUT slot integer,
	OUT since bigint, OUT ends bigint, OUT moment bigint, OUT is_wanted boolean, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
	WITH n AS (SELECT clock_timestamp() AS moment)
	SELECT t.key, t.turn, t.number, t.kind, t.room, t.token, t.slot, dlock.microseconds(t.since), dlock.microseconds(t.ends),
		dlock.microseconds(n.moment), t.wanted_by IS NOT NULL, "left"(t.record, 1023)
	FROM n, (
		SELECT c.*, CASE WHEN c.kind = 'freeze' THEN 2 WHEN c.slot IS NULL THEN 1 ELSE 0 END AS turn, coalesce(c.token, c.ticket) AS number
		FROM dlock.claims c
		WHERE c.key BETWEEN after_key AND coalesce(the_key, (SELECT max(l.key) FROM dlock.claims l)) AND octet_length(c.key) <= 512) t
	WHERE (t.key, t.turn, t.number) > (after_key, after_turn, after_number)
		AND CASE WHEN t.slot IS NOT NULL THEN t.ends > n.moment
			WHEN t.direct AND NOT pg_is_in_recovery() THEN dlock.wake_lock(t.owner) IN (
				SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_locks l
				WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1
				AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
			ELSE coalesce(t.alive > n.moment, true) END
	ORDER BY t.key, t.turn, t.number LIMIT least(most, 1000)
$$;

CREATE OR REPLACE FUNCTION dlock.last_run(the_key text,
	OUT id text, OUT began bigint, OUT ended bigint, OUT status integer, OUT token bigint, OUT moment bigint, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
	SELECT u.id, dlock.microseconds(u.began), dlock.microseconds(u.ended), u.status, u.token,
		dlock.microseconds(clock_timestamp()), "left"(u.record, 1023)
	FROM dlock.runs u WHERE u.key = the_key ORDER BY u.ended DESC, u.token DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION dlock.ask_back(the_key text, the_token bigint, the_owner text, the_record text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
	UPDATE dlock.claims c SET wanted_by = "left"(the_record, 1023)
		WHERE c.key = the_key AND c.token = the_token AND c.owner = coalesce(the_owner, c.owner)
		AND c.kind <> 'freeze' AND c.ends > clock_timestamp();
	RETURN FOUND;
END
$$;

CREATE OR REPLACE FUNCTION dlock.wake_sleepers(wake bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM pg_cancel_backend(l.pid) FROM pg_locks l
		WHERE l.locktype = 'advisory' AND NOT l.granted AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = wake
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
EXCEPTION WHEN insufficient_privilege THEN
	NULL;
END
$$;
REVOKE ALL ON FUNCTION dlock.wake_sleepers(bigint) FROM PUBLIC;

CREATE OR REPLACE FUNCTION dlock.take_away(the_key text, the_token bigint, the_owner text, the_record text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	gone dlock.claims;
	a_record text := "left"(the_record, 1023);
BEGIN
	PERFORM pg_advisory_xact_lock(1684828011, hashtext(the_key));
	moment := clock_timestamp();
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.token = the_token AND c.owner = coalesce(the_owner, c.owner)
		AND c.kind <> 'freeze' AND c.ends > moment RETURNING * INTO gone;
	IF gone.key IS NULL THEN
		RETURN EXISTS (SELECT FROM dlock.broken b WHERE b.token = the_token AND b.key = the_key AND b.record = a_record);
	END IF;
	PERFORM set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
	DELETE FROM dlock.broken b WHERE b.at < moment - '1 day'::interval;
	INSERT INTO dlock.broken (token, key, at, record) VALUES (the_token, the_key, moment, a_record) ON CONFLICT DO NOTHING;
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL AND c.ends <= moment;
	PERFORM dlock.serve(the_key, NULL, moment), dlock.wake_sleepers(dlock.wake_lock(gone.owner));
	RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION dlock.freeze(the_key text, the_record text, length interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	an_end timestamptz := 'infinity';
BEGIN
	PERFORM set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
	PERFORM pg_advisory_xact_lock(1684828011, hashtext(the_key));
	moment := clock_timestamp();
	IF length < '100 years'::interval THEN
		an_end := moment + length;
	END IF;
	UPDATE dlock.claims c SET leads = false WHERE c.key = the_key AND c.leads;
	INSERT INTO dlock.claims AS c (key, ticket, owner, kind, room, lease, direct, token, slot, seal, leads, ends, since, record)
		VALUES (the_key, 0, md5(random()::text || moment || random()), 'freeze', 0, '0', false, nextval('dlock.numbers'), 0,
			'freeze 0 0', true, an_end, moment, "left"(the_record, 1023))
		ON CONFLICT (key, ticket) DO UPDATE SET (leads, ends, since, record) = (true, excluded.ends, excluded.since, excluded.record);
	-- The first in line may wait for another end than it has now.
	PERFORM pg_notify('dlock_' || c.owner, '') FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NULL AND c.listens;
END
$$;

CREATE OR REPLACE FUNCTION dlock.thaw(the_key text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	moment timestamptz;
	gone dlock.claims;
BEGIN
	PERFORM pg_advisory_xact_lock(1684828011, hashtext(the_key));
	moment := clock_timestamp();
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.kind = 'freeze' RETURNING * INTO gone;
	IF gone.key IS NULL THEN
		RETURN false;
	END IF;
	PERFORM set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.slot IS NOT NULL AND c.ends <= moment;
	PERFORM dlock.serve(the_key, NULL, moment);
	RETURN gone.ends > moment;
END
$$;

CREATE OR REPLACE FUNCTION dlock.list_rows(the_key text, after_key text, most integer,
	OUT key text, OUT pid integer, OUT waits boolean, OUT shared boolean, OUT came bigint)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
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

COMMIT;
