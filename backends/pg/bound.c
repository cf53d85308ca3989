/* bound.c - see bound.h. */
#include "bound.h"

void
bound_watch(struct pg *pg)
{
	pg->held = true;
	pg->base.host->alert = pg->session.pq->socket(pg->session.conn);
}

enum rc
bound_lost(struct pg *pg, struct fault *f)
{
	const struct session *s = &pg->session;

	return fault_set(f, RC_LOST, "the session at %s has ended, and the lock with it%s%s", s->where,
	    *s->last_words ? ": " : "", s->last_words);
}

/* Is what we were told the end of the hold, or may it be heard later? */
static enum rc
weigh(struct pg *pg, enum rc rc, bool errors_end, struct fault *f)
{
	if (rc == RC_OK || rc == RC_STOP)
		return rc;
	if (!pg->session.conn)
		return bound_lost(pg, f);
	if (errors_end && *pg->session.sqlstate)
		return RC_LOST; /* with the server's own words */
	return RC_AGAIN;
}

static enum rc
read_ours(struct pg *pg, const PGresult *r, struct fault *f)
{
	bool ours;

	if (!field_boolean(&pg->session, r, 0, &ours))
		return fault_set(f, RC_AGAIN, "%s gave no sense", pg->session.where);
	return ours ? RC_OK : fault_set(f, RC_LOST, "%s no longer has it as ours", pg->session.where);
}

/* The heartbeat that is out is the one we wait for; otherwise there goes one. */
static enum rc
beat(struct pg *pg, const struct question *q, instant until, PGresult **r, struct fault *f)
{
	struct session *s = &pg->session;
	enum rc rc = RC_OK;

	if (!session_is_open(s))
		return RC_AGAIN;
	if (!s->pending) {
		pg->beat_sent = instant_now();
		rc = session_send(s, q, until, f);
	}
	return rc == RC_OK ? session_receive(s, 1, until, r, f) : rc;
}

enum rc
bound_renew(struct pg *pg, const struct question *q, bool errors_end, instant until, struct grant *g,
    struct fault *f)
{
	struct host *host = pg->base.host;
	PGresult *r = NULL;
	enum rc rc;

	host->alert = -1;
	rc = weigh(pg, beat(pg, q, until, &r, f), errors_end, f);
	if (rc == RC_OK)
		rc = read_ours(pg, r, f);
	pg->session.pq->clear(r);
	if (rc == RC_OK) {
		g->sent = pg->beat_sent;
		g->lease = pg->claim->ttl;
	}
	if (rc != RC_LOST)
		bound_watch(pg);
	return rc;
}

enum rc
bound_settle(struct pg *pg, instant until, struct fault *f)
{
	struct session *s = &pg->session;
	PGresult *r = NULL;
	enum rc rc = RC_OK;

	pg->base.host->alert = -1;
	if (!session_is_open(s))
		return bound_lost(pg, f);
	if (s->pending)
		rc = session_receive(s, 1, until, &r, f);
	s->pq->clear(r);
	if (!s->conn)
		return bound_lost(pg, f);
	return s->pending ? rc : RC_OK;
}

enum rc
bound_refuse(struct pg *pg, const char *why, struct fault *f)
{
	session_close(&pg->session);
	return fault_set(f, RC_CONFIG, "%s %s", pg->session.where, why);
}

bool
bound_see(struct pg *pg, const PGresult *r, int first)
{
	struct host *host = pg->base.host;
	int64_t waiting;

	if (!field_integer(&pg->session, r, first, 0, INT64_MAX, &waiting))
		return false;
	host->seen.position = waiting < 1000000 ? waiting + 1 : 0;
	host->seen.held = -1;
	if (!field_text(&pg->session, r, first + 1, host->seen.holder, sizeof host->seen.holder))
		host->seen.holder[0] = '\0';
	return true;
}
