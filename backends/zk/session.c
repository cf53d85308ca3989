/* session.c - see session.h. */
#include "session.h"

#include "backends/endpoint.h"
#include "probe.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CARRY(t) ((t) * 3 / 10) /* in which a ping surely went to the leader */
#define PACE(t) ((t) / 12)
#define SILENCE (500 * NS_PER_MS) /* at the start, after which we ask whether it is a ZooKeeper at all */
#define TIMEOUT_MOST (INT_MAX / 4) /* ms; the library multiplies it */

enum { PASTS = 24, ADDRESSES = 64, GATES = 4, TEXT_BYTES = 4096 /* a node's path, or a record */ };

/* One request that was answered. */
struct past {
	instant sent, answered;
};

struct session {
	struct host *host;
	const char *where;
	struct ensemble ensemble; /* a copy: a lookup of names may outlive everything else */
	int64_t asked; /* the timeout we wished for */
	instant began; /* just before the session was asked for */
	int wake_fd;      /* set for whoever waits in a call */
	int alarm;     /* host->alert: set for the keeper between calls */
	struct gate *gate;
	struct socket_address addresses[ADDRESSES];
	size_t naddresses;
	bool probed;

	pthread_mutex_t mutex; /* for what follows, which the library's threads change */
	zhandle_t *zh;
	bool initialised; /* zookeeper_init has returned */
	int init_error;
	int state; /* as the library last told it */
	int64_t id, granted, timeout; /* the timeout: as it was granted, and as we believe it */
	bool shrunk;		      /* it has become shorter */
	struct past pasts[PASTS];
	size_t npasts;
	bool proven; /* it has answered a request */
	bool alone;  /* the server of this connection follows nobody: session.h, 4 */
	bool called, alarmed;
};

enum kind { PLAIN, WATCH, GUARD };

struct call {
	struct session *session;
	enum kind kind;
	int owners;
	bool done;
	int code;
	instant sent;
	struct Stat stat;
	char text[TEXT_BYTES];
	char **names;
	size_t nnames;
};

/* TLS is in some builds of the library only. */
extern zhandle_t *zookeeper_init_ssl(const char *, const char *, watcher_fn, int, const clientid_t *, void *, int)
    __attribute__((weak));

/* ---- what the library says ---- */

/*
 * Where the library is held when it has lost its connection, or not got one: it
 * would try again at once, and so would a thousand others.  It says so in its log
 * first, in its own thread and without a lock (3.8: handle_socket_error_msg), and
 * there it is kept waiting until session_await() lets it try once.
 *
 * A log has no context, so each session has one of several functions for it.  The
 * last few sessions may still be ending when a new one begins.
 */
static struct gate {
	pthread_mutex_t mutex;
	pthread_cond_t opens;
	bool shut;    /* the library waits: there is no connection */
	bool leaving; /* it is to end, and waits no more */
	int error;    /* errno of the last connection that failed */
	int wake_fd, alarm; /* of the session that wants to know; -1 */
} gates[GATES] = {
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
	{PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .wake_fd = -1, .alarm = -1},
};

static void
event_set(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof one) < 0)
		return; /* full: it rings already */
}

/* A session that has expired has no connection to wait for. */
static void
hear_log(struct gate *g, const char *line)
{
	const char *number = strstr(line, "errno=");

	if (!number || strstr(line, "has expired"))
		return;
	pthread_mutex_lock(&g->mutex);
	g->error = atoi(number + strlen("errno="));
	g->shut = !g->leaving;
	event_set(g->wake_fd);
	event_set(g->alarm);
	while (g->shut)
		pthread_cond_wait(&g->opens, &g->mutex);
	pthread_mutex_unlock(&g->mutex);
}

static void
hear_log_0(const char *line)
{
	hear_log(&gates[0], line);
}

static void
hear_log_1(const char *line)
{
	hear_log(&gates[1], line);
}

static void
hear_log_2(const char *line)
{
	hear_log(&gates[2], line);
}

static void
hear_log_3(const char *line)
{
	hear_log(&gates[3], line);
}

static const log_callback_fn hearers[GATES] = {hear_log_0, hear_log_1, hear_log_2, hear_log_3};

static struct gate *
gate_take(int wake_fd, int alarm)
{
	static unsigned next;
	struct gate *g = &gates[next++ % GATES];

	pthread_mutex_lock(&g->mutex);
	g->shut = g->leaving = false;
	g->error = 0;
	g->wake_fd = wake_fd;
	g->alarm = alarm;
	pthread_mutex_unlock(&g->mutex);
	return g;
}

static bool
gate_is_shut(struct gate *g)
{
	bool shut;

	pthread_mutex_lock(&g->mutex);
	shut = g->shut;
	pthread_mutex_unlock(&g->mutex);
	return shut;
}

/* Lets the library try once; for good if the session is `leaving`. */
static void
gate_open(struct gate *g, bool leaving)
{
	pthread_mutex_lock(&g->mutex);
	g->shut = false;
	if (leaving) {
		g->leaving = true;
		g->wake_fd = g->alarm = -1;
	}
	pthread_cond_signal(&g->opens);
	pthread_mutex_unlock(&g->mutex);
}

static int
last_error(struct gate *g)
{
	int error;

	pthread_mutex_lock(&g->mutex);
	error = g->error;
	pthread_mutex_unlock(&g->mutex);
	return error;
}

static const char *
last_log_error(struct gate *g)
{
	int error = last_error(g);

	if (error == 0)
		return "no answer";
	if (error == EHOSTDOWN) /* what the library makes of an end of file */
		return "the server closes the connection (has it lost its quorum, or is it no ZooKeeper?)";
	return strerror(error);
}

static void
event_clear(int fd)
{
	uint64_t rang;

	if (read(fd, &rang, sizeof rang) < 0)
		return; /* it did not ring */
}

/* ---- what the library's threads bring ---- */

static bool
is_dead(const struct session *s)
{
	return s->state == ZOO_EXPIRED_SESSION_STATE || s->state == ZOO_AUTH_FAILED_STATE || s->shrunk;
}

/*
 * The timeout that a server grants.  Another one, after the connection to the
 * first was lost, may grant less (its maxSessionTimeout differs); then the session
 * may end before the time that we have promised.  False: that is so.
 */
static bool
take_timeout(struct session *s, int64_t timeout)
{
	if (s->id && timeout < s->granted)
		return false;
	s->granted = timeout;
	/* Nobody asked for ten times as much, and no server should give it. */
	s->timeout = timeout > 10 * s->asked ? s->asked : timeout;
	return true;
}

/* A server with nothing in here hears of us itself; who may not read it knows nothing.  See session.h, 4 and 5. */
static void
on_config(int code, const char *data, int n, const struct Stat *stat, const void *ctx)
{
	struct session *s = (struct session *)ctx;

	(void)data;
	pthread_mutex_lock(&s->mutex);
	s->alone = code == ZOK && n <= 0 && stat && stat->dataLength == 0;
	pthread_mutex_unlock(&s->mutex);
}

/* About the session itself. */
static void
session_event(zhandle_t *zh, int type, int state, const char *path, void *ctx)
{
	struct session *s = ctx;
	bool dead;

	(void)path;
	if (type != ZOO_SESSION_EVENT)
		return;
	pthread_mutex_lock(&s->mutex);
	s->state = state;
	s->alone = false;
	if (state == ZOO_CONNECTED_STATE)
		s->shrunk = !take_timeout(s, zoo_recv_timeout(zh) * NS_PER_MS);
	if (state == ZOO_CONNECTED_STATE)
		s->id = zoo_client_id(zh)->client_id;
	dead = is_dead(s);
	pthread_mutex_unlock(&s->mutex);
	if (state == ZOO_CONNECTED_STATE)
		zoo_awget(zh, ZOO_CONFIG_NODE, NULL, NULL, on_config, s);
	event_set(s->wake_fd);
	if (dead)
		event_set(s->alarm);
}

/* About the node ahead of us. */
static void
watch_event(zhandle_t *zh, int type, int state, const char *path, void *ctx)
{
	struct session *s = ctx;

	(void)zh, (void)state, (void)path;
	if (type == ZOO_SESSION_EVENT)
		return;
	pthread_mutex_lock(&s->mutex);
	s->called = true;
	pthread_mutex_unlock(&s->mutex);
	event_set(s->wake_fd);
}

/* About our own node. */
static void
guard_event(zhandle_t *zh, int type, int state, const char *path, void *ctx)
{
	struct session *s = ctx;

	(void)zh, (void)state, (void)path;
	if (type == ZOO_SESSION_EVENT)
		return;
	pthread_mutex_lock(&s->mutex);
	s->alarmed = true;
	pthread_mutex_unlock(&s->mutex);
	event_set(s->wake_fd);
	event_set(s->alarm);
}

/* Answers of a server; the others are the library's, or about the session. */
static bool
is_about_nodes(int code)
{
	return code == ZOK || code == ZNONODE || code == ZNODEEXISTS || code == ZBADVERSION || code == ZUNIMPLEMENTED ||
	    code == ZNOCHILDRENFOREPHEMERALS;
}

/* A burst of requests is one moment: the oldest of it stands for all. */
static void
remember(struct session *s, instant sent, instant answered)
{
	if (s->npasts && answered < s->pasts[s->npasts - 1].answered + PACE(s->timeout) / 4)
		return;
	if (s->npasts == PASTS) {
		memmove(s->pasts, s->pasts + 1, (PASTS - 1) * sizeof *s->pasts);
		s->npasts--;
	}
	s->pasts[s->npasts++] = (struct past){sent, answered};
}

static void
call_free(struct call *c)
{
	for (size_t i = 0; i < c->nnames; i++)
		free(c->names[i]);
	free(c->names);
	free(c);
}

/* What every answer ends with; from here on the library has done with the call. */
static void
settle(struct call *c, int code, const struct Stat *stat)
{
	struct session *s = c->session;
	bool last;

	pthread_mutex_lock(&s->mutex);
	if (stat)
		c->stat = *stat;
	c->code = code;
	c->done = true;
	if (is_about_nodes(code)) {
		s->proven = true;
		remember(s, c->sent, instant_now());
	}
	if (c->kind == GUARD && code == ZNONODE) {
		s->alarmed = true;
		event_set(s->alarm);
	}
	last = --c->owners == 0;
	event_set(s->wake_fd);
	pthread_mutex_unlock(&s->mutex);
	if (last)
		call_free(c);
}

static void
take_text(struct call *c, const char *text, size_t n)
{
	n = n < sizeof c->text ? n : sizeof c->text - 1;
	memcpy(c->text, text, n);
	c->text[n] = '\0';
}

static void
on_text_stat(int code, const char *text, const struct Stat *stat, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	if (text)
		take_text(c, text, strlen(text));
	settle(c, code, stat);
}

static void
on_data(int code, const char *data, int n, const struct Stat *stat, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	if (data && n > 0)
		take_text(c, data, n);
	settle(c, code, stat);
}

static void
on_names(int code, const struct String_vector *names, const struct Stat *stat, const void *ctx)
{
	struct call *c = (struct call *)ctx;

	if (code == ZOK && names && names->count > 0) {
		c->names = calloc(names->count, sizeof *c->names);
		for (int i = 0; c->names && i < names->count; i++) {
			c->names[i] = strdup(names->data[i]);
			if (!c->names[i])
				break;
			c->nnames++;
		}
		if (c->nnames < (size_t)names->count)
			code = ZSYSTEMERROR;
	}
	settle(c, code, stat);
}

/* Of a node that is watched, which has no children. */
static void
on_no_names(int code, const struct String_vector *names, const void *ctx)
{
	(void)names;
	settle((struct call *)ctx, code, NULL);
}

static void
on_stat(int code, const struct Stat *stat, const void *ctx)
{
	settle((struct call *)ctx, code, stat);
}

static void
on_nothing(int code, const void *ctx)
{
	settle((struct call *)ctx, code, NULL);
}

static void
on_text(int code, const char *text, const void *ctx)
{
	(void)text;
	settle((struct call *)ctx, code, NULL);
}

/* ---- making requests ---- */

static struct call *
call_new(struct session *s, enum kind kind)
{
	struct call *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->session = s;
	c->kind = kind;
	c->owners = 2;
	c->sent = instant_now();
	pthread_mutex_lock(&s->mutex);
	if (kind == WATCH)
		s->called = false;
	if (kind == GUARD)
		s->alarmed = false;
	pthread_mutex_unlock(&s->mutex);
	return c;
}

/* What the library does not take it will not answer either. */
static struct call *
sent(struct call *c, int code)
{
	if (code != ZOK)
		settle(c, code, NULL);
	return c;
}

struct call *
session_create(struct session *s, const char *path, const char *data, int mode, bool open)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_acreate2(s->zh, path, data, (int)strlen(data),
			       open ? &ZOO_OPEN_ACL_UNSAFE : &ZOO_CREATOR_ALL_ACL, mode, on_text_stat, c))
		 : NULL;
}

struct call *
session_list(struct session *s, const char *path)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_aget_children2(s->zh, path, 0, on_names, c)) : NULL;
}

struct call *
session_look(struct session *s, const char *path)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_aexists(s->zh, path, 0, on_stat, c)) : NULL;
}

struct call *
session_get(struct session *s, const char *path)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_awget(s->zh, path, NULL, NULL, on_data, c)) : NULL;
}

struct call *
session_watch(struct session *s, const char *path)
{
	struct call *c = call_new(s, WATCH);

	return c ? sent(c, zoo_awget_children(s->zh, path, watch_event, s, on_no_names, c)) : NULL;
}

struct call *
session_guard(struct session *s, const char *path)
{
	struct call *c = call_new(s, GUARD);

	return c ? sent(c, zoo_awget_children(s->zh, path, guard_event, s, on_no_names, c)) : NULL;
}

struct call *
session_set(struct session *s, const char *path, const char *data, int version)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_aset(s->zh, path, data, (int)strlen(data), version, on_stat, c)) : NULL;
}

struct call *
session_delete(struct session *s, const char *path, int version)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_adelete(s->zh, path, version, on_nothing, c)) : NULL;
}

struct call *
session_sync(struct session *s, const char *path)
{
	struct call *c = call_new(s, PLAIN);

	return c ? sent(c, zoo_async(s->zh, path, on_text, c)) : NULL;
}

bool
session_was_called(struct session *s)
{
	bool called;

	pthread_mutex_lock(&s->mutex);
	called = s->called;
	pthread_mutex_unlock(&s->mutex);
	return called;
}

bool
session_was_alarmed(struct session *s)
{
	bool alarmed;

	pthread_mutex_lock(&s->mutex);
	alarmed = s->alarmed;
	s->alarmed = false;
	pthread_mutex_unlock(&s->mutex);
	return alarmed;
}

/* ---- answers ---- */

static bool
is_proven(struct session *s)
{
	bool proven;

	pthread_mutex_lock(&s->mutex);
	proven = s->proven;
	pthread_mutex_unlock(&s->mutex);
	return proven;
}

/*
 * Before its first answer, a server that is silent or breaks off may be none: the
 * library takes anything for the beginning of a session.  RC_OK: it may be one.
 */
static enum rc
doubt(struct session *s, struct fault *f)
{
	enum probed answer = PROBE_UNKNOWN;

	if (s->probed || is_proven(s) || last_error(s->gate) == ECONNREFUSED)
		return RC_OK;
	s->probed = true;
	for (size_t i = 0; i < s->naddresses && answer != PROBE_ZOOKEEPER && answer != PROBE_STOP; i++)
		answer = probe(s->host, &s->addresses[i]);
	if (answer == PROBE_STOP)
		return RC_STOP;
	return answer == PROBE_OTHER
	    ? fault_set(f, RC_PROTOCOL, "%s: that is no answer of a ZooKeeper: is this a ZooKeeper?", s->where) : RC_OK;
}

/* What became of a request that says nothing about nodes. */
static enum rc
judge(struct session *s, int code, struct fault *f)
{
	enum rc rc = code == ZNOAUTH ? RC_OK : doubt(s, f);

	if (rc != RC_OK)
		return rc;
	switch (code) {
	case ZCONNECTIONLOSS:
	case ZRUNTIMEINCONSISTENCY:
	case ZOPERATIONTIMEOUT:
	case ZCLOSING:
	case ZSESSIONMOVED:
	case ZTHROTTLEDOP:
		return fault_set(f, RC_AGAIN, "%s: connection lost: %s", s->where, last_log_error(s->gate));
	case ZSESSIONEXPIRED:
	case ZINVALIDSTATE:
		return fault_set(f, RC_LOST, "%s: the session has expired, or another server has shortened it", s->where);
	case ZAUTHFAILED:
		return fault_set(f, RC_DENIED, "%s: authentication failed", s->where);
	case ZNOAUTH:
		return fault_set(f, RC_DENIED, "%s: no permission (whose ACL is on the lock's nodes? -O acl, user:password)",
		    s->where);
	case ZNOTREADONLY:
		return fault_set(f, RC_AGAIN, "%s: the server is read-only, it has lost its quorum", s->where);
	case ZBADARGUMENTS:
		return fault_set(f, RC_USAGE, "%s does not take this path (chroot, or -O path)", s->where);
	case ZSYSTEMERROR:
	case ZMARSHALLINGERROR:
		return fault_set(f, RC_SYSTEM, "descriptors or memory have run out");
	default:
		return fault_set(f, RC_PROTOCOL, "%s answers: %s", s->where, zerror(code));
	}
}

static bool
is_done(struct call *c)
{
	bool done;

	pthread_mutex_lock(&c->session->mutex);
	done = c->done;
	pthread_mutex_unlock(&c->session->mutex);
	return done;
}

enum rc
session_sleep(struct session *s, instant until, struct fault *f)
{
	switch (s->host->wait(s->host, s->wake_fd, POLLIN, until)) {
	case WOKE_STOP:
		return RC_STOP;
	case WOKE_TIMEOUT:
		return fault_set(f, RC_AGAIN, "%s: no answer in time", s->where);
	case WOKE_READY:
		event_clear(s->wake_fd);
	}
	return RC_OK;
}

/* The same; before the first answer a silence is reason to ask what this is. */
static enum rc
sleep_in_doubt(struct session *s, instant until, struct fault *f)
{
	instant suspicious = s->probed || is_proven(s) ? NEVER : s->began + SILENCE;
	enum rc rc = session_sleep(s, instant_first(until, suspicious), f);

	return rc == RC_AGAIN && (suspicious < until || suspicious == until) ? doubt(s, f) : rc;
}

enum rc
call_await(struct call *c, instant until, int *code, struct fault *f)
{
	enum rc rc = RC_OK;

	if (!c)
		return fault_set(f, RC_SYSTEM, "out of memory");
	while (rc == RC_OK && !is_done(c)) {
		if (gate_is_shut(c->session->gate))
			return judge(c->session, ZCONNECTIONLOSS, f);
		rc = sleep_in_doubt(c->session, until, f);
	}
	if (rc != RC_OK)
		return rc;
	*code = c->code;
	return is_about_nodes(c->code) ? RC_OK : judge(c->session, c->code, f);
}

instant
call_sent(const struct call *c)
{
	return c->sent;
}

const struct Stat *
call_stat(const struct call *c)
{
	return &c->stat;
}

const char *
call_text(const struct call *c)
{
	return c->text;
}

const char *const *
call_names(const struct call *c, size_t *n)
{
	*n = c->nnames;
	return (const char *const *)c->names;
}

void
call_drop(struct call *c)
{
	bool last;

	if (!c)
		return;
	pthread_mutex_lock(&c->session->mutex);
	last = --c->owners == 0;
	pthread_mutex_unlock(&c->session->mutex);
	if (last)
		call_free(c);
}

/* ---- the session ---- */

static int
state_of(struct session *s)
{
	int state;

	pthread_mutex_lock(&s->mutex);
	state = s->state;
	pthread_mutex_unlock(&s->mutex);
	return state;
}

bool
session_is_connected(struct session *s)
{
	return state_of(s) == ZOO_CONNECTED_STATE && !gate_is_shut(s->gate);
}

bool
session_is_dead(struct session *s)
{
	bool dead;

	pthread_mutex_lock(&s->mutex);
	dead = is_dead(s);
	pthread_mutex_unlock(&s->mutex);
	return dead;
}

void
session_clear_alarm(struct session *s)
{
	event_clear(s->alarm);
}

int64_t
session_id(struct session *s)
{
	int64_t id;

	pthread_mutex_lock(&s->mutex);
	id = s->id;
	pthread_mutex_unlock(&s->mutex);
	return id;
}

/* When the newest request was sent of which the leader surely knew when one sent then reached it: session.h, 2 and 3. */
static instant
known_to_leader(struct session *s, instant sent_at)
{
	if (s->alone)
		return sent_at;
	for (size_t i = s->npasts; i > 0; i--)
		if (s->pasts[i - 1].answered <= sent_at - CARRY(s->timeout))
			return s->pasts[i - 1].sent;
	return s->began; /* a session is begun by the leader itself */
}

int64_t
session_lease(struct session *s, instant sent_at)
{
	int64_t left;

	pthread_mutex_lock(&s->mutex);
	left = s->timeout - (sent_at - known_to_leader(s, sent_at));
	pthread_mutex_unlock(&s->mutex);
	return instant_first(left, session_steady(s));
}

/* One request more than CARRY old is always known: with one pace between two of them, and one to spare. */
int64_t
session_steady(struct session *s)
{
	int64_t steady;

	pthread_mutex_lock(&s->mutex);
	steady = s->alone ? s->timeout : s->timeout - CARRY(s->timeout) - 2 * PACE(s->timeout);
	pthread_mutex_unlock(&s->mutex);
	return steady;
}

int64_t
session_pace(struct session *s)
{
	int64_t pace;

	pthread_mutex_lock(&s->mutex);
	pace = PACE(s->timeout);
	pthread_mutex_unlock(&s->mutex);
	return pace;
}

int64_t
session_life(struct session *s)
{
	int64_t life;

	pthread_mutex_lock(&s->mutex);
	life = s->alone ? s->timeout / 4 : 2 * PACE(s->timeout);
	pthread_mutex_unlock(&s->mutex);
	return life;
}

/* The library has gone to try; until it has said what became of it, there is no connection. */
static void
let_try(struct session *s)
{
	pthread_mutex_lock(&s->mutex);
	if (!is_dead(s))
		s->state = ZOO_CONNECTING_STATE;
	pthread_mutex_unlock(&s->mutex);
	gate_open(s->gate, false);
}

/* Of several addresses, the library leaves out every other one in its first round. */
enum rc
session_await(struct session *s, instant until, struct fault *f)
{
	size_t most = s->naddresses > 1 ? 2 * s->naddresses : 1, tries = gate_is_shut(s->gate) ? 0 : 1;
	enum rc rc = RC_OK;

	while (rc == RC_OK && (session_is_dead(s) || !session_is_connected(s))) {
		if (session_is_dead(s))
			return judge(s, state_of(s) == ZOO_AUTH_FAILED_STATE ? ZAUTHFAILED : ZSESSIONEXPIRED, f);
		if (!gate_is_shut(s->gate))
			rc = sleep_in_doubt(s, until, f);
		else if (tries++ < most && (tries == 1 || instant_now() < until))
			let_try(s);
		else
			rc = judge(s, ZCONNECTIONLOSS, f);
	}
	return rc == RC_AGAIN ? fault_set(f, rc, "%s: %s", s->where, last_log_error(s->gate)) : rc;
}

/* One more for a list of addresses, without brackets, which the library does not know. */
static int
add_address(struct session *s, char *out, size_t size, const char *number, int port)
{
	size_t used = strlen(out);

	if (used + strlen(number) + 8 >= size || s->naddresses == ADDRESSES ||
	    !socket_address(&s->addresses[s->naddresses], number, port))
		return 0;
	s->naddresses++;
	snprintf(out + used, size - used, "%s%s:%d", used ? "," : "", number, port);
	return 1;
}

/* Adds what "host:port", n bytes, stands for. */
static int
add_host(struct session *s, char *out, size_t size, const char *text, size_t n)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP, .ai_flags = AI_ADDRCONFIG};
	struct addrinfo *found;
	struct endpoint e;
	char number[64];
	int count = 0;

	if (endpoint_parse(&e, text, n, 1))
		return 0;
	if (!s->ensemble.named)
		return add_address(s, out, size, e.host, e.port);
	if (getaddrinfo(e.host, NULL, &hints, &found) != 0)
		return 0;
	for (struct addrinfo *a = found; a; a = a->ai_next)
		if (getnameinfo(a->ai_addr, a->ai_addrlen, number, sizeof number, NULL, 0, NI_NUMERICHOST) == 0)
			count += add_address(s, out, size, number, e.port);
	freeaddrinfo(found);
	return count;
}

/*
 * The hosts as the library is to have them.  As addresses: it would look names up
 * in the thread that has to keep the session alive, and spin while that fails.
 * And an odd number of them: it goes on by two after each that fails; with an even
 * number it never comes to half of them, nor to the end of the list where it would
 * pause (3.8 to 3.9: handle_error and zoo_cycle_next_server each take a step).  So
 * one is named twice.
 */
static void
name_hosts(struct session *s, char *out, size_t size)
{
	const char *text = s->ensemble.hosts;
	int count = 0;

	out[0] = '\0';
	for (size_t n; *text; text += n + (text[n] == ',')) {
		n = strcspn(text, ",");
		count += add_host(s, out, size, text, n);
	}
	if (count > 0 && count % 2 == 0 && 2 * strlen(out) + 2 < size) {
		size_t first = strcspn(out, ","), used = strlen(out);

		out[used] = ',';
		memcpy(out + used + 1, out, first);
		out[used + 1 + first] = '\0';
	}
}

/* May block in DNS. */
static void *
initialise(void *ctx)
{
	char hosts[8192];
	struct session *s = ctx;
	int timeout = s->asked / NS_PER_MS < TIMEOUT_MOST ? (int)(s->asked / NS_PER_MS) : TIMEOUT_MOST;
	const struct ensemble *e = &s->ensemble;
	zhandle_t *zh;

	name_hosts(s, hosts, sizeof hosts);
	errno = ENOENT;
	if (!*hosts)
		zh = NULL;
	else if (e->tls)
		zh = zookeeper_init_ssl(hosts, e->tls_files, session_event, timeout, NULL, s, ZOO_NO_LOG_CLIENTENV);
	else
		zh = zookeeper_init2(hosts, session_event, timeout, NULL, s, ZOO_NO_LOG_CLIENTENV, hearers[s->gate - gates]);
	if (zh) /* addresses do not change */
		zoo_set_servers_resolution_delay(zh, -1);
	if (zh && *e->login)
		zoo_add_auth(zh, "digest", e->login, (int)strlen(e->login), NULL, NULL);
	pthread_mutex_lock(&s->mutex);
	s->zh = zh;
	s->init_error = zh ? 0 : errno;
	s->initialised = true;
	event_set(s->wake_fd);
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

static bool
is_initialised(struct session *s)
{
	bool yes;

	pthread_mutex_lock(&s->mutex);
	yes = s->initialised;
	pthread_mutex_unlock(&s->mutex);
	return yes;
}

/* The library keeps its socket to itself; it is the only one of ours with that peer. */
void
session_poison(struct session *s)
{
	struct sockaddr_storage peer, other;
	socklen_t n = sizeof peer;

	if (!session_is_connected(s) || !zookeeper_get_connected_host(s->zh, (struct sockaddr *)&peer, &n))
		return;
	for (int fd = 0; fd < 256; fd++) {
		socklen_t m = sizeof other;

		if (getpeername(fd, (struct sockaddr *)&other, &m) == 0 && m == n && memcmp(&peer, &other, n) == 0)
			shutdown(fd, SHUT_RDWR);
	}
}

/* Why the library would not begin. */
static enum rc
judge_init(struct session *s, struct fault *f)
{
	if (s->init_error == EMFILE || s->init_error == ENFILE || s->init_error == ENOMEM)
		return fault_set(f, RC_SYSTEM, "%s", strerror(s->init_error));
	if (s->init_error == EINVAL || s->init_error == ENOENT)
		return fault_set(f, RC_AGAIN, "%s: unknown host", s->where);
	return fault_set(f, RC_AGAIN, "%s: %s", s->where, strerror(s->init_error));
}

/* Host names are looked up beside us: it can take longer than anybody wants to wait. */
static enum rc
start_library(struct session *s, instant until, struct fault *f)
{
	pthread_t thread;
	enum rc rc = RC_OK;

	zoo_deterministic_conn_order(1); /* the order is ours to choose */
	mallopt(M_ARENA_MAX, 1); /* or each thread of the library maps and unmaps megabytes for one */
	zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
	if (!s->ensemble.named)
		initialise(s);
	else if (pthread_create(&thread, NULL, initialise, s) == 0)
		pthread_detach(thread);
	else
		return fault_set(f, RC_SYSTEM, "cannot start a thread");
	while (rc == RC_OK && !is_initialised(s))
		rc = session_sleep(s, until, f);
	if (rc == RC_AGAIN)
		return fault_set(f, rc, "%s: its name was not resolved in time", s->where);
	return rc == RC_OK && !s->zh ? judge_init(s, f) : rc;
}

static struct session *
session_new(struct host *host, const char *where, const struct ensemble *e, int64_t timeout)
{
	struct session *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	*s = (struct session){.host = host, .where = where, .ensemble = *e, .asked = timeout};
	s->began = instant_now();
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->alarm = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&s->mutex, NULL);
	s->gate = gate_take(s->wake_fd, s->alarm);
	host->alert = s->alarm;
	return s;
}

enum rc
session_begin(struct session **ret, struct host *host, const char *where, const struct ensemble *e, int64_t timeout,
    instant until, struct fault *f)
{
	struct session *s;
	enum rc rc;

	if (e->tls && !zookeeper_init_ssl)
		return fault_set(f, RC_CONFIG, "this libzookeeper has no TLS: use zk:// through stunnel or another tunnel");
	s = session_new(host, where, e, timeout);
	if (!s || s->wake_fd < 0 || s->alarm < 0)
		rc = fault_set(f, RC_SYSTEM, "cannot open an eventfd: %s", strerror(errno));
	else
		rc = start_library(s, until, f);
	if (rc == RC_OK)
		*ret = s;
	else
		session_end(s);
	return rc;
}

/* The keeper and the library's log know of it no more. */
static void
detach(struct session *s)
{
	if (s->host && s->host->alert == s->alarm)
		s->host->alert = -1;
	s->host = NULL;
	gate_open(s->gate, true);
}

void
session_end(struct session *s)
{
	if (!s)
		return;
	detach(s);
	if (!is_initialised(s) && s->ensemble.named)
		return; /* DNS still has it: left to the end of the process, which is near */
	if (s->zh)
		zookeeper_close(s->zh);
	close(s->wake_fd);
	close(s->alarm);
	pthread_mutex_destroy(&s->mutex);
	explicit_bzero(&s->ensemble, sizeof s->ensemble);
	free(s);
}

static void *
end_session(void *ctx)
{
	session_end(ctx);
	return NULL;
}

void
session_abandon(struct session *s)
{
	pthread_t thread;

	if (!s)
		return;
	detach(s); /* here, not in the thread: the next session may begin at once */
	if (pthread_create(&thread, NULL, end_session, s) == 0)
		pthread_detach(thread);
}
