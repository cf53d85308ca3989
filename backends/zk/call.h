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

struct call;

/* Makes a node; mode as in zookeeper.h; `open`: everybody may use it, else we alone. */
struct call *call_create(
    struct session *, const char *path, const char *data, int mode, bool open);
/* and what is known of the path */
struct call *call_list(struct session *, const char *path);
struct call *call_exists(struct session *, const char *path); /* the latter alone */
struct call *call_get(struct session *, const char *path);
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

enum { CHANGES_MAX = 8 };

/*
 * All of them, or none.  call_text(): the name that the first CREATE got; call_stat():
 * what SET has left; call_failed(): which one was refused, if *code is not ZOK.
 */
struct call *call_multi(struct session *, const struct change *, size_t n, bool open);
size_t call_failed(const struct call *);

/*
 * Lets this server catch up with the leader: what is read after the answer is not older
 * than the request.
 */
struct call *call_sync(struct session *, const char *path);

/*
 * Notes when a node is gone: `called` in session_look() then.  It is done by asking for
 * the node's children, of which it has none: a watch on data would be set off by
 * each renewal of its owner, one on its existence would outlive it.
 */
struct call *call_watch(struct session *, const char *path);

/*
 * The same when a node's data change, or it goes; and when children of it come or go
 * (and its list).
 */
struct call *call_watch_data(struct session *, const char *path);
struct call *call_watch_list(struct session *, const char *path);

/* The same for our own node, and for the keeper: raises its alert; `alarmed`. */
struct call *call_guard(struct session *, const char *path);

/*
 * The answer, waited for until `until`.  RC_OK: *code is ZOK, or one of the
 * answers that say something about nodes: ZNONODE, ZNODEEXISTS, ZBADVERSION,
 * ZUNIMPLEMENTED, ZNOCHILDRENFOREPHEMERALS.  RC_AGAIN: no connection, or no
 * answer in time.  RC_LOST: no session any more.
 */
enum rc call_await(struct call *, instant until, int *code, struct fault *);

/* The same where nothing else of the answer is wanted: drops the call. */
enum rc call_finish(struct call *, instant until, int *code, struct fault *);

/* When it was sent; what was answered.  Valid from call_await's RC_OK to call_drop. */
instant call_sent(const struct call *);
const struct Stat *call_stat(const struct call *);
/* a node's name, or the beginning of its data */
const char *call_text(const struct call *);
const char *const *call_names(const struct call *, size_t *n);

/*
 * What kind of node has that: one that ends with its session; one that has, or had,
 * children.
 */
bool stat_is_ephemeral(const struct Stat *);
bool stat_is_directory(const struct Stat *);

/* To be called once for each call, answered or not, and once for each time that it was kept. */
void call_drop(struct call *);
struct call *call_keep(const struct call *);

#endif
