/* bound.c - keeps a lock that ends with its session. */
#include "bound.h"

void
bound_watch(struct pg *pg, struct bound *b)
{
	b->held = true;
	pg->base.host->alert = pg->conn.pq->socket(pg->conn.pgconn);
}

enum rc
bound_lost(struct pg *pg, struct fault *f)
{
	const struct connection *c = &pg->conn;

	return fault_set(f, RC_LOST,
	    "the session at %s has ended, and the lock with it%s%s", c->where,
	    *c->said.last_words ? ": " : "", c->said.last_words);
}

/* Is what we were told the end of the hold, or may it be heard later? */
static enum rc
weigh_answer(struct pg *pg, enum rc rc, bool errors_end, struct fault *f)
{
	if (rc == RC_OK || rc == RC_STOP)
		return rc;
	if (!pg->conn.pgconn)
		return bound_lost(pg, f);
	if (errors_end && *pg->conn.said.sqlstate)
		return RC_LOST; /* with the server's own words */
	return RC_AGAIN;
}

static enum rc
read_ours(struct pg *pg, const PGresult *r, struct fault *f)
{
	bool ours;

	if (!field_boolean(pg->conn.pq, r, 0, &ours))
		return fault_set(f, RC_AGAIN, "%s gave no sense", pg->conn.where);
	return ours
	    ? RC_OK
	    : fault_set(f, RC_LOST, "%s no longer has it as ours", pg->conn.where);
}

/* The heartbeat that is out is the one we wait for; otherwise there goes one. */
static enum rc
send_beat(struct pg *pg, struct bound *b, const struct question *q, instant until,
    PGresult **r, struct fault *f)
{
	struct connection *c = &pg->conn;
	enum rc rc = RC_OK;

	if (!connection_is_open(c))
		return RC_AGAIN;
	if (!c->pending.out) {
		b->beat_sent = instant_now();
		rc = question_send(c, q, until, f);
	}
	return rc == RC_OK ? question_receive(c, 1, until, r, f) : rc;
}

enum rc
bound_renew(struct pg *pg, struct bound *b, const struct question *q, bool errors_end,
    instant until, struct grant *g, struct fault *f)
{
	struct host *host = pg->base.host;
	PGresult *r = NULL;
	enum rc rc;

	host->alert = -1;
	rc = weigh_answer(pg, send_beat(pg, b, q, until, &r, f), errors_end, f);
	if (rc == RC_OK)
		rc = read_ours(pg, r, f);
	pg->conn.pq->clear(r);
	if (rc == RC_OK) {
		g->sent = b->beat_sent;
		g->lease = pg->claim->ttl;
	}
	if (rc != RC_LOST)
		bound_watch(pg, b);
	return rc;
}

enum rc
bound_settle(struct pg *pg, instant until, struct fault *f)
{
	struct connection *c = &pg->conn;
	PGresult *r = NULL;
	enum rc rc = RC_OK;

	pg->base.host->alert = -1;
	if (!connection_is_open(c))
		return bound_lost(pg, f);
	if (c->pending.out)
		rc = question_receive(c, 1, until, &r, f);
	c->pq->clear(r);
	if (!c->pgconn)
		return bound_lost(pg, f);
	return c->pending.out ? rc : RC_OK;
}

enum rc
bound_refuse(struct pg *pg, const char *why, struct fault *f)
{
	connection_close(&pg->conn);
	return fault_set(f, RC_CONFIG, "%s %s", pg->conn.where, why);
}

bool
bound_see(struct pg *pg, const PGresult *r, int first)
{
	struct host *host = pg->base.host;
	struct fields room;
	struct row row = field_row(pg->conn.pq, r, 0, &room);
	int64_t waiting, holders = 0;
	bool shared;

	if (!row_integer(&row, first, 0, INT64_MAX, &waiting))
		return false;
	host->seen.position = waiting < 1000000 ? waiting + 1 : 0;
	host->seen.holding.held = -1;
	if (!row_text(&row, first + 1, host->seen.holding.record,
		sizeof host->seen.holding.record))
		host->seen.holding.record[0] = '\0';
	if (!row_integer(&row, first + 2, 0, INT32_MAX, &holders))
		holders = 0;
	host->seen.holding.holders = holders;
	host->seen.holding.kind = row_boolean(&row, first + 3, &shared) && shared
	    ? KIND_SHARED
	    : KIND_EXCLUSIVE;
	return true;
}
