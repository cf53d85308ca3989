/* ask.c - asks, and asks again where that is safe. */
#include "ask.h"

#include "guard.h"

#include <string.h>

#define RACES (2 * NS_PER_S) /* so long a transaction may lose races against others */

enum rc
ask_here(struct connection *c, const struct question *q, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *f)
{
	enum rc rc = RC_OK;

	said_set(c, NULL);
	if (!connection_is_open(c))
		return connection_broken(c, f);
	if (q->prepare)
		q->prepare(q->ctx);
	if (!c->trust.full && !q->harmless && guard_is_needed(c))
		rc = guard_inspect(c, until, f);
	if (rc == RC_OK)
		rc = question_ask(c, q, fields, until, sent, ret, f);
	if (!c->trust.stopped)
		return rc;
	c->trust.stopped = false;
	rc = guard_inspect(c, until, f);
	return rc == RC_OK ? question_ask(c, q, fields, until, sent, ret, f) : rc;
}

/*
 * Serialization, deadlock; and, where the default isolation is stricter than dlock
 * needs, a slot that it could not see taken.
 */
static bool
is_lost_race(const struct connection *c)
{
	return said_state(c, "40001") || said_state(c, "40P01") || said_state(c, "23505");
}

/*
 * A transaction has lost a race, and changed nothing: a moment, not the same for all,
 * before the next attempt.
 */
static bool
stopped_after_race(struct connection *c)
{
	instant now = instant_now();

	return c->host->wait(c->host, -1, 0,
		   now + 2 * NS_PER_MS + now % (18 * NS_PER_MS)) == WOKE_STOP;
}

/*
 * An answer that a fail-over may undo is none: the same again writes, and waits, again.
 */
static enum rc
distrust(struct connection *c, PGresult **ret, struct fault *f)
{
	if (ret)
		c->pq->clear(*ret);
	return fault_set(f, RC_AGAIN, "%s does not wait for its standby", c->where);
}

enum rc
ask_server(struct connection *c, const struct question *q, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *f)
{
	instant races_end = instant_first(until, instant_now() + RACES);
	bool was_open;
	enum rc rc;

	c->pending.again = false;
	for (;;) {
		was_open = connection_is_open(c);
		c->said.sqlstate[0] = '\0';
		c->said.unreplicated = false;
		rc = connection_open(c, until, f);
		if (rc == RC_OK)
			rc = ask_here(c, q, fields, until, sent, ret, f);
		if (rc == RC_OK && c->said.unreplicated)
			rc = distrust(c, ret, f);
		if (rc != RC_AGAIN || instant_now() >= until)
			return rc;
		if (c->said.unreplicated)
			continue;
		if (is_lost_race(c) && instant_now() < races_end) {
			if (stopped_after_race(c))
				return RC_STOP;
		} else if (was_open && !c->pgconn && !c->pending.again) {
			/* the connection was only found broken */
			c->pending.again = true;
		} else {
			return rc;
		}
	}
}

static enum rc
run(struct connection *c, const char *script, instant until, struct fault *f)
{
	const struct question q = {.sql = script, .harmless = true};
	instant sent;

	return question_ask(c, &q, 0, until, &sent, NULL, f);
}

enum rc
ask_script(struct connection *c, const char *script, instant until, struct fault *f)
{
	enum rc rc = connection_open(c, until, f);

	if (rc != RC_OK)
		return rc;
	rc = run(c, script, until, f);
	/* it may have stopped within its transaction; the reason stays */
	if (rc != RC_OK && c->pgconn) {
		char state[sizeof c->said.sqlstate];

		memcpy(state, c->said.sqlstate, sizeof state);
		(void)run(c, "ROLLBACK", until, &(struct fault){""});
		memcpy(c->said.sqlstate, state, sizeof state);
	}
	return rc;
}
