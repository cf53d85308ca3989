/*
 * cluster.h - calls to an etcd cluster by its JSON gateway, and a watch of some keys.
 *
 * Several calls go in one packet and are answered in their order.  A member that does not
 * answer in time costs its share of it: the next one is asked the same.  So every call must
 * bear being made twice; one that was given up may still be done, seconds later.
 *
 * The transport was chosen by measurement: reference probes (bare C, grant and put, delete and
 * revoke, Debian 12's etcd 3.4.23) took 5.2 ms with HTTP/1.1 and 4.2 ms with gRPC over HTTP/2
 * by hand, where flock takes 2.1 ms; libcurl took 14.4 ms.  gRPC by hand needs HPACK, flow
 * control and protobuf, which is two more libraries or a thousand more lines; JSON needs
 * http.c, and jansson, which dlock has anyway.
 *
 * Functions that return an rc have closed the connection whenever that is not RC_OK.
 */
#ifndef DLOCK_ETCD_CLUSTER_H
#define DLOCK_ETCD_CLUSTER_H

#include "backends/common/stream.h"
#include "backends/common/tls.h"
#include "backends/common/endpoint.h"
#include "kv.h"

/* ---- http.c ---- */

/* One way to one member, and the reply that comes by it. */
struct connection {
	struct stream stream;
	size_t at, used; /* what has not been read yet of `in` */
	char in[4096];
	int status;   /* 0: nothing of the reply has been read */
	int64_t date; /* seconds since 1970, as the server says; -1: it does not */
	bool ends;    /* the server closes the connection behind it */
	bool chunked;
	size_t length; /* of a body that is not in chunks */
	char *body;    /* NULL: nothing has come of it */
	size_t n, room;
};

/* Reads one whole reply. */
enum rc http_read(struct connection *, instant until, struct fault *);

/* The next piece of one, which has begun to come: its head, a chunk, a body without chunks. */
enum rc http_read_piece(struct connection *, bool *whole, instant until, struct fault *);

/* Closes it; what NULL: it has sent nonsense. */
enum rc http_fail(struct connection *, enum rc, const char *what, struct fault *);
void http_close(struct connection *);

/* ---- cluster.c: members ---- */

enum { MEMBERS_MOST = 16, TOKEN_BYTES = 2048 };

#define ANSWER_MOST (5 * NS_PER_S) /* for an answer while waiting */

/* Where the members are, and who we are to them. */
struct address {
	size_t n;
	struct endpoint at[MEMBERS_MOST];
	char user[128], password[256]; /* "": none */
	bool secure;
	struct tls *tls; /* NULL: plainly; not owned */
};

struct cluster {
	const struct address *address; /* not owned */
	struct connection calls, watch;
	size_t member;           /* that is asked */
	size_t watched;          /* that has the watch */
	char token[TOKEN_BYTES]; /* of our login; "": none */
	int64_t id;              /* of the cluster; 0: not known */
	/* the server's clock said `date` (s) in an answer that came at `dated` */
	int64_t date;
	instant dated;
	/*
	 * The calls of a packet are served one after the other, so on a busy server each of
	 * them takes as long as the first one: who waits gives each answer behind the first
	 * ANSWER_MOST, but not beyond this; 0: all have to come by the call's `until`
	 */
	instant answer_by;
	/* of the last calls */
	instant sent;  /* just before they left; 0: they did not */
	bool repeated; /* they may have arrived more than once */
	bool full;     /* one was refused since the database is full */
};

void cluster_close(struct cluster *);

/* The server's clock, in microseconds: to the second, or better where ours agrees with it. */
int64_t cluster_time(const struct cluster *);

/* ---- calls ---- */

/* gRPC's codes that say what came of a call.  All others are failures, also a full database. */
enum { CODE_OK = 0, CODE_NOT_FOUND = 5, CODE_EXISTS = 9, CODE_COMPACTED = 11 };

/* What an error means; RC_OK: it is one of those. */
enum rc code_meaning(int code, const char *message, const char **hint);

struct call {
	const char *path; /* "/v3/kv/txn" */
	struct text ask;  /* empty: {} */
	json_t *answer;   /* with CODE_OK */
	int code;
};

/* To grant a lease for so long; keepalive, revoke or timetolive; a range; a transaction. */
struct call call_grant(int64_t lease, int64_t ns);
struct call call_lease(const char *path, int64_t lease);
struct call call_range(const struct kv_range *);
struct call call_txn(struct txn *);

/* Were the conditions of a transaction true? */
bool call_has_succeeded(const struct call *);

/*
 * Makes `n` calls, of which nothing may go missing: RC_OK if each of them has one of the
 * codes above.  Of calls that gave another rc nothing is known.
 */
enum rc cluster_calls(
    struct cluster *, struct call *, int n, instant until, struct fault *);

/*
 * Makes one call and frees it: its answer, which the caller frees; NULL: *rc says why, also with
 * a code that is not CODE_OK (RC_AGAIN).  While the members elect a leader it is made again.
 */
json_t *cluster_answer(
    struct cluster *, struct call, instant until, enum rc *, struct fault *);

/* One call to this member and no other, which is asked from now on. */
enum rc cluster_ask(
    struct cluster *, size_t member, struct call *, instant until, struct fault *);

void calls_free(struct call *, int n);

/* The next calls are asked of another member, if there is one. */
void cluster_turn(struct cluster *);

/* ---- a watch ---- */

struct watched {
	const char *key, *end; /* end NULL: this key only */
	bool puts;             /* too, not only deletions */
};

/*
 * Begins to watch two keys, or ranges of them, from a revision on, by c->watch, whose stream is
 * polled for reading; it ends with http_close().
 */
enum rc watch_begin(struct cluster *, const struct watched[2], int64_t revision,
    instant until, struct fault *);

/*
 * Takes in what has come; what has come in part is awaited.  RC_OK: *events, has anything
 * happened?  RC_AGAIN: the watch has ended.
 */
enum rc watch_read(struct cluster *, bool *events, instant until, struct fault *);

#endif
