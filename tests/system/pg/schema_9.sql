-- What schema.sql of version 9 had otherwise than version 10 has it: it believed a run that was dated up to a day ahead.
COMMENT ON SCHEMA dlock IS 'dlock 9: locks for commands, see dlock(1)';

CREATE OR REPLACE FUNCTION dlock.find_done(the_key text, my_once text, cooldown_ms bigint, moment timestamptz,
	OUT done_by text, OUT began_ms bigint, OUT age_ms bigint, OUT record text)
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
	record := "left"(r.record, 1023);
END
$$;

CREATE OR REPLACE FUNCTION dlock.list_jobs(the_key text, after_key text, most integer,
	OUT key text, OUT turn integer, OUT id text, OUT began bigint, OUT ended bigint, OUT status integer, OUT token bigint,
	OUT moment bigint, OUT record text)
RETURNS SETOF record
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2500ms' AS $$
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
		(SELECT 1, u.* FROM dlock.runs u WHERE u.key = k.key AND u.status = 0 AND u.began < clock_timestamp() + '1 day'::interval
			ORDER BY u.ended DESC, u.token DESC LIMIT 1)) r
	ORDER BY k.key, r.turn
$$;
