-- What version 8 had otherwise than version 9, to be run in a schema of version 9.
BEGIN;

COMMENT ON SCHEMA dlock IS 'dlock 8: locks for commands, see dlock(1)';
DROP FUNCTION dlock.enter_fully(text, text, text, bigint, bigint, text, integer, text, bigint, integer, boolean);
DROP FUNCTION dlock.settle();

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

CREATE OR REPLACE FUNCTION dlock.enter(the_key text, me text, my_record text, lease_ms bigint, patience_ms bigint,
	my_kind text, my_room integer, my_once text, cooldown_ms bigint, session integer, had_own boolean,
	OUT code integer, OUT token bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT is_next boolean,
	OUT ahead bigint, OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT record text,
	OUT direct boolean, OUT has_own boolean, OUT is_listening boolean, OUT moment bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
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
	joined boolean := false;
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
		PERFORM dlock.enter(E'\001' || me, me, NULL, 0, 0, NULL, 0, NULL, 0, 0, false);
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
		UPDATE dlock.claims c SET alive = dead, direct = enter.direct WHERE c.key = the_key AND c.ticket = mine.ticket
			AND (c.direct <> enter.direct OR c.alive IS DISTINCT FROM dead);
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
				enter.direct, dead, t, "left"(my_record, 1023)
			WHERE code = 0 AND my_kind IS NOT NULL
			RETURNING * INTO mine;
		joined := FOUND AND patience_ms > 0;
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
	IF NOT joined AND my_kind IS NOT NULL THEN	-- a new place is to outlive a crash of the server, so that the order does
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.await(the_key text, me text, ahead bigint, ms integer, had_own boolean,
	OUT code integer, OUT token bigint, OUT slot integer, OUT place bigint, OUT left_ms bigint, OUT held_ms bigint,
	OUT holder text, OUT holders bigint, OUT held_kind text, OUT held_room integer, OUT is_next boolean, OUT has_own boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ticket bigint;	-- ours, if it waits
	unlistens boolean;
	gave boolean;
	holds_owner text;
BEGIN
	has_own := had_own OR pg_try_advisory_lock(dlock.wake_lock(me));
	IF current_setting('dlock.rehearsed', true) IS DISTINCT FROM 'yes' THEN
		PERFORM set_config('dlock.rehearsed', 'yes', false), dlock.renew(E'\001' || me, me, 0, 0, 0),
			dlock.release(E'\001' || me, me, NULL, NULL, false), dlock.await(E'\001' || me, me, dlock.wake_lock(me), 1, true);
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

CREATE OR REPLACE FUNCTION dlock.renew(the_key text, me text, my_token bigint, lease_ms bigint, session integer,
	OUT code integer, OUT wanted_by text, OUT has_own boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
DECLARE
	my_kind text;
BEGIN
	PERFORM dlock.flush();
	UPDATE dlock.claims c SET ends = clock_timestamp() + lease_ms * '1 ms'::interval
		WHERE c.key = the_key AND c.owner = me AND c.token = my_token AND c.ends > clock_timestamp()
		RETURNING 1, "left"(c.wanted_by, 1023), c.kind INTO code, wanted_by, my_kind;
	IF code IS NULL THEN
		code := 0;
		IF my_token > 0 THEN
			SELECT "left"(b.record, 1023) INTO wanted_by FROM dlock.broken b WHERE b.token = my_token AND b.key = the_key;
		END IF;
	ELSIF session = pg_backend_pid() AND my_kind = 'exclusive' THEN
		has_own := pg_try_advisory_lock(dlock.wake_lock(me));
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION dlock.release(the_key text, me text, my_status integer, my_once text, had_own boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
	mine dlock.claims;
	moment timestamptz;
BEGIN
	PERFORM dlock.lock_key(the_key);
	DELETE FROM dlock.claims c WHERE c.key = the_key AND c.owner = me RETURNING * INTO mine;
	PERFORM dlock.serve(the_key, NULL, clock_timestamp());
	moment := clock_timestamp();
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

COMMIT;
