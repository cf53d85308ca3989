/* message.c - reads requests and answers, as zookeeper.jute has them. */
#include "library.h"

#include <zookeeper/proto.h>

enum { FAILED = -1 /* in the place of a step's number */ };
enum { XID_EVENT = -1, XID_PING = -2, XID_AUTH = -4, XID_WATCHES = -8 };
enum { WELCOME = 37, OLD_WELCOME = 36, STAT = 68, NAME_COST = 64 };

/* What has not been read yet; `wrong` from the first thing on that was not there. */
struct reading {
	const unsigned char *at;
	size_t n;
	bool wrong;
};

static void
skip(struct reading *r, size_t n)
{
	r->wrong = r->wrong || n > r->n;
	if (r->wrong)
		return;
	r->at += n;
	r->n -= n;
}

static int32_t
read_int(struct reading *r)
{
	const unsigned char *b = r->at;

	skip(r, 4);
	return r->wrong ? 0
			: (int32_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 |
			      (uint32_t)b[2] << 8 | b[3]);
}

/* Bytes after their number; `least` -1: there may be none. */
static void
read_bytes(struct reading *r, int32_t least)
{
	int32_t n = read_int(r);

	r->wrong = r->wrong || n < least;
	skip(r, r->wrong || n < 0 ? 0 : (size_t)n);
}

/* Each of them takes memory, however short it is. */
static void
read_names(struct reading *r)
{
	int32_t n = read_int(r);

	r->wrong = r->wrong || n < -1 || n > MESSAGE_MOST / NAME_COST;
	for (int32_t i = 0; i < n && !r->wrong; i++)
		read_bytes(r, 0);
}

static void
read_acl(struct reading *r)
{
	int32_t n = read_int(r);

	for (int32_t i = 0; i < n && !r->wrong; i++) {
		read_int(r);
		read_bytes(r, 0);
		read_bytes(r, 0);
	}
}

/* What is sent with a request that is a step of a transaction, and what it brings. */
static const struct op {
	int32_t op;
	const char *step, *result; /* step NULL: it is none */
} ops[] = {
    {ZOO_CREATE_OP, "sbai", "s"},
    {ZOO_SETDATA_OP, "sbi", "S"},
    {ZOO_DELETE_OP, "si", ""},
    {ZOO_CHECK_OP, "si", ""},
    {ZOO_SYNC_OP, NULL, "s"},
    {ZOO_CREATE2_OP, NULL, "sS"},
    {ZOO_CREATE_CONTAINER_OP, NULL, "sS"},
    {ZOO_CREATE_TTL_OP, NULL, "sS"},
    {ZOO_GETDATA_OP, NULL, "bS"},
    {ZOO_EXISTS_OP, NULL, "S"},
    {ZOO_GETCHILDREN_OP, NULL, "n"},
    {ZOO_GETCHILDREN2_OP, NULL, "nS"},
};

/* Others bring nothing that is read. */
static const struct op *
op_of(int32_t op)
{
	static const struct op other = {0, NULL, ""};

	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (ops[i].op == op)
			return &ops[i];
	return &other;
}

static void
read_form(struct reading *r, const char *form)
{
	for (; *form; form++)
		switch (*form) {
		case 's':
			read_bytes(r, 0);
			break;
		case 'b':
			read_bytes(r, -1);
			break;
		case 'a':
			read_acl(r);
			break;
		case 'i': /* flags, or a version */
			read_int(r);
			break;
		case 'n':
			read_names(r);
			break;
		default:
			skip(r, STAT);
		}
}

/* ---- requests ---- */

/* The head of a step, in a request and in its answer. */
static int32_t
read_head(struct reading *r, bool *last)
{
	int32_t op = read_int(r);
	const unsigned char *b = r->at;

	skip(r, 1);
	*last = !r->wrong && *b;
	read_int(r);
	return op;
}

static bool
is_news(int32_t xid)
{
	return xid == XID_EVENT || xid == XID_PING || xid == XID_AUTH ||
	    xid == XID_WATCHES;
}

bool
message_request(struct request *q, const unsigned char *bytes, size_t n)
{
	struct reading r = {bytes, n, false};
	bool last = false;

	*q = (struct request){.xid = read_int(&r), .op = 0};
	q->op = read_int(&r);
	q->in_line = !is_news(q->xid);
	q->login = q->xid == XID_AUTH;
	while (q->op == ZOO_MULTI_OP && !r.wrong && !last) {
		int32_t op = read_head(&r, &last);

		if (last)
			break;
		if (!op_of(op)->step || q->nsteps == MESSAGE_STEPS)
			return false;
		q->steps[q->nsteps++] = op;
		read_form(&r, op_of(op)->step);
	}
	return !r.wrong;
}

/* ---- answers ---- */

bool
message_is_welcome(size_t n)
{
	return n == WELCOME || n == OLD_WELCOME;
}

/* As many as were asked for, each of its kind, or failed. */
static void
read_results(struct reading *r, const struct request *q)
{
	bool last = false;

	for (size_t i = 0; i < q->nsteps && !r->wrong; i++) {
		int32_t op = read_head(r, &last);

		r->wrong = r->wrong || last;
		if (op == FAILED)
			read_int(r);
		else
			read_form(r, op_of(q->steps[i])->result);
	}
	read_head(r, &last);
	r->wrong = r->wrong || !last;
}

enum answered
message_answers(const unsigned char *bytes, size_t n, const struct request *due)
{
	struct reading r = {bytes, n, false};
	int32_t xid = read_int(&r), error;

	skip(&r, 8);
	error = read_int(&r);
	if (xid == XID_EVENT) {
		r.wrong = read_int(&r) < 1 ||
		    r.wrong; /* of sessions, the library itself tells */
		read_int(&r);
		read_bytes(&r, 0);
	}
	if (is_news(xid) && !r.wrong && n <= MESSAGE_NEWS_MOST)
		return xid == XID_AUTH ? ANSWER_LOGIN : ANSWER_NEWS;
	if (is_news(xid) || !due || due->xid != xid)
		return ANSWER_WRONG;
	if (error == 0 && due->op == ZOO_MULTI_OP)
		read_results(&r, due);
	else if (error == 0)
		read_form(&r, op_of(due->op)->result);
	return r.wrong ? ANSWER_WRONG : ANSWER_DUE;
}
