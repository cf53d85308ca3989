/*
 * call.h - one request to a ZooKeeper, and its answer.
 *
 * A call has two owners, whoever made it and the library; the last one frees
 * it.  So an answer that comes when nobody waits any more does no harm.  Makers may
 * give NULL, for want of memory; call_await and call_drop cope.
 */
#ifndef DLOCK_ZK_CALL_H
#define DLOCK_ZK_CALL_H

#include "session.h"

#include <stdatomic.h>

enum {
	TEXT_BYTES = 4096, /* a node's path, or a record */
	CHANGES_MAX = 8,
};

struct call {
	/* the answer, from call_await()'s RC_OK to call_drop(): */
	int code;              /* ZOK, or what a server says of nodes */
	instant sent;          /* just before the request left */
	struct Stat stat;      /* what is known of the path */
	char text[TEXT_BYTES]; /* a node's name, or the beginning of its data */
	/* of children, in no order; whoever has asked may put them into one, or leave some out */
	const char **names;
	size_t nnames;
	size_t failed; /* of a transaction: which change was refused, if not ZOK */
	/* call.c's own: */
	struct session *session; /* outlives the library's part in this */
	bool own_end;
	atomic_int owners;
	atomic_bool done; /* the answer is there */
	size_t nresults;
	zoo_op_result_t results[CHANGES_MAX];
};

/* What may be asked about a path. */
enum ask {
	ASK_LIST,   /* its children, and what is known of it */
	ASK_EXISTS, /* the latter alone */
	ASK_GET,    /* its data, too */
	/* lets this server catch up with the leader: what is read after the answer is not
	 * older than the request */
	ASK_SYNC,
	/*
	 * Notes when a node is gone: `called` in session_look() then.  It is done by asking
	 * for the node's children, of which it has none: a watch on data would be set off
	 * by each renewal of its owner, one on its existence would outlive it.
	 */
	ASK_END,
	ASK_CHANGE,   /* the same when its data change, or it goes; as ASK_GET */
	ASK_CHILDREN, /* and when children of it come or go; as ASK_LIST */
	/* of our own node, also for the keeper: raises its alert; `alarmed` */
	ASK_OWN_END,
};

struct call *call_ask(struct session *, enum ask, const char *path);

/* Makes a node; mode as in zookeeper.h; `open`: everybody may use it, else we alone. */
struct call *call_create(
    struct session *, const char *path, const char *data, int mode, bool open);
struct call *call_set(struct session *, const char *path, const char *data, int version);
struct call *call_delete(struct session *, const char *path, int version); /* -1: any */

/* One step of a transaction.  Text that it points to need not outlive call_multi(). */
struct change {
	enum { CHANGE_CREATE, CHANGE_SET, CHANGE_DELETE, CHANGE_CHECK } what;
	const char *path;
	const char *data; /* of CREATE and SET */
	int mode;         /* of CREATE */
	int version;      /* of the others; -1: any */
};

/*
 * All of them, or none.  The call's text is the name that the first CREATE got, its stat what
 * SET has left.
 */
struct call *call_multi(struct session *, const struct change *, size_t n, bool open);

/*
 * The answer, waited for until `until`.  RC_OK: its code is ZOK, or one of the
 * answers that say something about nodes: ZNONODE, ZNODEEXISTS, ZBADVERSION,
 * ZUNIMPLEMENTED, ZNOCHILDRENFOREPHEMERALS.  RC_AGAIN: no connection, or no
 * answer in time.  RC_LOST: no session any more.
 */
enum rc call_await(struct call *, instant until, struct fault *);

/* The same where nothing but the code (or NULL) is wanted: drops the call. */
enum rc call_finish(struct call *, instant until, int *code, struct fault *);

/* To be called once for each call, answered or not. */
void call_drop(struct call *);

/*
 * What kind of node has that: one that ends with its session; one that has, or had,
 * children.
 */
bool stat_is_ephemeral(const struct Stat *);
bool stat_is_directory(const struct Stat *);

/* A server's time, ms, in ns since 1970; -1 if it makes no sense. */
int64_t stat_time(int64_t ms);

/* A path, put together for as long as an expression lasts. */
struct path {
	char at[TEXT_BYTES];
};

struct path path_of(const char *form, ...) __attribute__((format(printf, 1, 2)));

#endif
