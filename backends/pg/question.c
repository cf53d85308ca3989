/* question.c - sends a statement, and reads the answer until the server has said all. */
#include "question.h"

#include "connection.h"
#include "said.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- sending ---- */

static enum rc
await_socket(struct connection *c, short events, instant until, struct fault *f)
{
	switch (c->db->base.host->wait(
	    c->db->base.host, c->pq->socket(c->pgconn), events, until)) {
	case WOKE_READY:
		return RC_OK;
	case WOKE_TIMEOUT:
		return fault_set(f, RC_AGAIN, "%s does not answer", c->db->where);
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

/* Values as libpq wants them: texts, or NULL. */
struct parameters {
	const char *texts[SQL_VALUES_MAX];
	char numbers[SQL_VALUES_MAX][24];
};

static void
write_parameters(struct parameters *p, const struct question *q)
{
	for (size_t i = 0; i < q->n; i++) {
		p->texts[i] = q->values[i].bytes;
		if (q->values[i].type == SQL_NUMBER) {
			snprintf(p->numbers[i], sizeof p->numbers[i], "%" PRId64,
			    q->values[i].number);
			p->texts[i] = p->numbers[i];
		}
	}
}

static bool
send_with(struct connection *c, const struct question *q)
{
	struct parameters p;

	write_parameters(&p, q);
	return c->pq->sendQueryParams(
	    c->pgconn, q->text, (int)q->n, NULL, p.texts, NULL, NULL, 0);
}

static bool
send_alone(struct connection *c, const struct question *q)
{
	return q->n > 0 ? send_with(c, q) : c->pq->sendQuery(c->pgconn, q->text);
}

/* Both in one packet: if the guard fails, the server skips what follows. */
static bool
send_guarded(struct connection *c, const struct question *q)
{
	return c->pq->enterPipelineMode(c->pgconn) &&
	    c->pq->sendQueryParams(
		c->pgconn, guard_first, 0, NULL, NULL, NULL, NULL, 0) &&
	    send_with(c, q) && c->pq->pipelineSync(c->pgconn);
}

enum rc
question_send(struct sql *db, const struct question *q, instant until, struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;

	c->said.sqlstate[0] = '\0';
	c->said.unreplicated = c->trust.stopped = false;
	wire_asked(&c->wire);
	c->trust.asked = !c->trust.full && !q->harmless;
	if (c->trust.asked ? !send_guarded(c, q) : !send_alone(c, q))
		return connection_broken(c, f);
	c->pending.out = true;
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
			    f, RC_AGAIN, "%s does not come to an end", c->db->where);
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
collect_results(struct connection *c, instant until, struct fault *f)
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
			    f, RC_AGAIN, "%s does not come to an end", c->db->where);
	}
	c->pending.out = false;
	return RC_OK;
}

/* What was asked for: one row, or any, of so many fields; or, for none, that it was done. */
static bool
is_as_asked(struct connection *c, const PGresult *r, const struct question *q)
{
	ExecStatusType status = c->pq->resultStatus(r);

	if (q->fields == 0)
		return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
	return status == PGRES_TUPLES_OK && (q->many || c->pq->ntuples(r) == 1) &&
	    c->pq->nfields(r) == (int)q->fields;
}

static enum rc
judge_answer(struct connection *c, PGresult *r, const struct question *q,
    struct answer *a, struct fault *f)
{
	enum rc rc;

	if (!r || c->wire.endless) {
		c->pq->clear(r);
		return connection_broken(c, f);
	}
	if (c->pq->resultStatus(r) == PGRES_FATAL_ERROR) {
		rc = said_error(c, r, f);
		if (c->pq->status(c->pgconn) != CONNECTION_OK)
			connection_close(c->db);
	} else if (!is_as_asked(c, r, q)) {
		connection_close(c->db);
		rc = fault_set(f, RC_PROTOCOL,
		    "%s gave an answer that dlock's functions do not give", c->db->where);
	} else if (a) {
		a->db = c->db;
		a->result = r;
		a->rows = c->pq->ntuples(r);
		a->next = 0;
		return RC_OK;
	} else {
		rc = RC_OK;
	}
	c->pq->clear(r);
	return rc;
}

enum rc
question_receive(struct sql *db, const struct question *q, instant until,
    struct answer *a, struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	enum rc rc = collect_results(c, until, f);
	PGresult *r = c->pending.kept;

	if (rc != RC_OK)
		return rc;
	c->pending.kept = NULL;
	return judge_answer(c, r, q, a, f);
}

enum rc
question_ask(struct connection *c, const struct question *q, instant until,
    struct answer *a, struct fault *f)
{
	enum rc rc;

	if (a)
		a->sent = instant_now();
	rc = question_send(c->db, q, until, f);
	if (rc == RC_OK)
		rc = question_receive(c->db, q, until, a, f);
	if (c->pending.out)
		connection_close(c->db);
	return rc;
}

static enum rc
run_statements(struct connection *c, const char *script, instant until, struct fault *f)
{
	const struct question q = {.text = script, .harmless = true};

	return question_ask(c, &q, until, NULL, f);
}

enum rc
question_script(struct sql *db, const char *script, instant until, struct fault *f)
{
	struct connection *c = &pg_of(db)->conn;
	enum rc rc = connection_open(c->db, until, f);

	if (rc != RC_OK)
		return rc;
	rc = run_statements(c, script, until, f);
	/* it may have stopped within its transaction; the reason stays */
	if (rc != RC_OK && c->pgconn) {
		char state[sizeof c->said.sqlstate];

		memcpy(state, c->said.sqlstate, sizeof state);
		(void)run_statements(c, "ROLLBACK", until, &(struct fault){""});
		memcpy(c->said.sqlstate, state, sizeof state);
	}
	return rc;
}

/* ---- rows ---- */

bool
question_read_row(struct answer *a, int n)
{
	const struct pq *pq = pg_of(a->db)->conn.pq;
	int fields = pq->nfields(a->result);

	for (int i = 0; i < fields && i < FIELDS_MAX; i++) {
		a->at[i] = pq->getisnull(a->result, n, i) ? NULL
							  : pq->getvalue(a->result, n, i);
		a->lengths[i] = pq->getlength(a->result, n, i);
	}
	return true;
}

void
question_drop(struct answer *a)
{
	pg_of(a->db)->conn.pq->clear(a->result);
}

bool
question_is_pending(const struct sql *db)
{
	return pg_const(db)->conn.pending.out;
}
