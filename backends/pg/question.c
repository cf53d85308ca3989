/* question.c - sends a statement, and reads the answer until the server has said all. */
#include "question.h"

#include "guard.h"

#include <poll.h>

/* ---- sending ---- */

static enum rc
await_socket(struct connection *c, short events, instant until, struct fault *f)
{
	switch (c->host->wait(c->host, c->pq->socket(c->pgconn), events, until)) {
	case WOKE_READY:
		return RC_OK;
	case WOKE_TIMEOUT:
		return fault_set(f, RC_AGAIN, "%s does not answer", c->where);
	case WOKE_STOP:
		break;
	}
	return RC_STOP;
}

/* Everything out onto the wire; seldom more than one packet. */
static enum rc
push(struct connection *c, instant until, struct fault *f)
{
	int left;
	enum rc rc;

	while ((left = c->pq->flush(c->pgconn)) > 0) {
		rc = await_socket(c, POLLIN | POLLOUT, until, f);
		if (rc != RC_OK)
			return rc;
		if (!c->pq->consumeInput(c->pgconn))
			return connection_broken(c, f);
	}
	return left == 0 ? RC_OK : connection_broken(c, f);
}

static bool
send_alone(struct connection *c, const struct question *q)
{
	return q->n > 0 ? c->pq->sendQueryParams(
			      c->pgconn, q->sql, q->n, NULL, q->values, NULL, NULL, 0)
			: c->pq->sendQuery(c->pgconn, q->sql);
}

/* Both in one packet: if the guard fails, the server skips what follows. */
static bool
send_guarded(struct connection *c, const struct question *q)
{
	return c->pq->enterPipelineMode(c->pgconn) &&
	    c->pq->sendQueryParams(
		c->pgconn, guard_first, 0, NULL, NULL, NULL, NULL, 0) &&
	    c->pq->sendQueryParams(
		c->pgconn, q->sql, q->n, NULL, q->values, NULL, NULL, 0) &&
	    c->pq->pipelineSync(c->pgconn);
}

enum rc
question_send(
    struct connection *c, const struct question *q, instant until, struct fault *f)
{
	c->said.sqlstate[0] = '\0';
	c->said.unreplicated = c->trust.stopped = false;
	wire_asked(&c->wire);
	c->trust.asked = !c->trust.full && !q->harmless;
	if (c->trust.asked ? !send_guarded(c, q) : !send_alone(c, q))
		return connection_broken(c, f);
	c->pending.out = true;
	c->pending.many = q->many;
	return push(c, until, f);
}

/* Of several results the first error counts, or else the last one. */
static void
keep_result(struct connection *c, PGresult *r)
{
	if (c->pending.kept &&
	    c->pq->resultStatus(c->pending.kept) == PGRES_FATAL_ERROR) {
		c->pq->clear(r);
		return;
	}
	c->pq->clear(c->pending.kept);
	c->pending.kept = r;
}

/* The guard's answer comes first. */
static void
note_guard(struct connection *c, const PGresult *r)
{
	if (c->pending.kept || c->pq->resultStatus(r) != PGRES_FATAL_ERROR)
		return;
	said_set(c, c->pq->resultErrorField(r, PG_DIAG_SQLSTATE));
	c->trust.stopped = said_state(c, GUARD_STOPS);
}

/* The end of what was sent together; the connection is as ever again. */
static void
end_guarded(struct connection *c, PGresult *r)
{
	c->pq->clear(r);
	c->trust.asked = false;
	c->trust.full = c->pq->exitPipelineMode(c->pgconn) && !c->trust.stopped;
}

static bool
is_copy(const struct connection *c, const PGresult *r)
{
	ExecStatusType status = c->pq->resultStatus(r);

	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
	    status == PGRES_COPY_BOTH;
}

/*
 * Is the time over, and is more to be read?  What has come is taken, however late we look
 * at it: this process may have been stopped meanwhile.
 */
static bool
is_endless(const struct connection *c, instant until)
{
	return instant_now() >= until && c->pq->isBusy(c->pgconn);
}

/*
 * Until there is a result to be taken, or none will come: the reason comes as a result,
 * too.
 */
static enum rc
wait_for_result(struct connection *c, instant until, struct fault *f)
{
	enum rc rc;

	while (c->pq->isBusy(c->pgconn)) {
		rc = await_socket(c, POLLIN, until, f);
		if (rc != RC_OK)
			return rc;
		if (!c->pq->consumeInput(c->pgconn))
			return RC_OK;
		if (is_endless(c, until))
			return fault_set(
			    f, RC_AGAIN, "%s does not come to an end", c->where);
	}
	return RC_OK;
}

/* Keeps a result; true: it was the last one. */
static bool
take_result(struct connection *c, PGresult *r)
{
	bool endless = is_copy(c, r);

	if (c->pq->resultStatus(r) == PGRES_PIPELINE_SYNC) {
		end_guarded(c, r);
		return true;
	}
	if (c->trust.asked)
		note_guard(c, r);
	keep_result(c, r);
	/* libpq would give the same one for ever */
	return endless || c->pq->status(c->pgconn) != CONNECTION_OK;
}

/* Reads until the server has said all. */
static enum rc
collect(struct connection *c, instant until, struct fault *f)
{
	for (;;) {
		enum rc rc = wait_for_result(c, until, f);
		PGresult *r;

		if (rc != RC_OK)
			return rc;
		r = c->pq->getResult(c->pgconn);
		if (!r && c->trust.asked && c->pq->status(c->pgconn) == CONNECTION_OK &&
		    !is_endless(c, until))
			continue; /* between the guard and the question */
		if (!r || take_result(c, r))
			break;
		if (is_endless(c, until))
			return fault_set(
			    f, RC_AGAIN, "%s does not come to an end", c->where);
	}
	c->pending.out = false;
	return RC_OK;
}

/* What was asked for: one row, or any, of so many fields; or, for none, that it was done. */
static bool
is_as_asked(struct connection *c, const PGresult *r, int fields)
{
	ExecStatusType status = c->pq->resultStatus(r);

	if (fields == 0)
		return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	return status == PGRES_TUPLES_OK && (c->pending.many || c->pq->ntuples(r) == 1) &&
	    c->pq->nfields(r) == fields;
}

static enum rc
judge_answer(
    struct connection *c, PGresult *r, int fields, PGresult **ret, struct fault *f)
{
	enum rc rc;

	if (!r || c->wire.endless) {
		c->pq->clear(r);
		return connection_broken(c, f);
	}
	if (c->pq->resultStatus(r) == PGRES_FATAL_ERROR) {
		rc = said_error(c, r, f);
		if (c->pq->status(c->pgconn) != CONNECTION_OK)
			connection_close(c);
	} else if (!is_as_asked(c, r, fields)) {
		connection_close(c);
		rc = fault_set(f, RC_PROTOCOL,
		    "%s gave an answer that dlock's functions do not give", c->where);
	} else if (ret) {
		*ret = r;
		return RC_OK;
	} else {
		rc = RC_OK;
	}
	c->pq->clear(r);
	return rc;
}

enum rc
question_receive(
    struct connection *c, int fields, instant until, PGresult **ret, struct fault *f)
{
	enum rc rc = collect(c, until, f);
	PGresult *r = c->pending.kept;

	if (rc != RC_OK)
		return rc;
	c->pending.kept = NULL;
	return judge_answer(c, r, fields, ret, f);
}

enum rc
question_ask(struct connection *c, const struct question *q, int fields, instant until,
    instant *sent, PGresult **ret, struct fault *f)
{
	enum rc rc;

	*sent = instant_now();
	rc = question_send(c, q, until, f);
	if (rc == RC_OK)
		rc = question_receive(c, fields, until, ret, f);
	if (c->pending.out)
		connection_close(c);
	return rc;
}
