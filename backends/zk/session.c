/*
 * session.c - one session with an ensemble: its beginning, what is heard of it, its end.
 */
#include "session.h"

#include "backends/common/libc.h"
#include "backends/common/secret.h"
#include "library.h"
#include "tunnel.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* at the start, after which we ask whether it is a ZooKeeper at all; then after 4 and 16 times that */
#define SILENCE (500 * NS_PER_MS)
enum { PROBES = 3 }; /* so often, if nobody says anything */
/* for a thread of the library to begin */
#define THREAD_PATIENCE (5 * NS_PER_S)
#define TIMEOUT_MOST (INT_MAX / 4) /* ms; the library multiplies it */

struct session {
	struct host *host;
	const char *where;
	const struct ensemble *ensemble;
	struct hosts hosts;
	struct tunnel *tunnel; /* NULL: no TLS */
	zhandle_t *zh;
	struct library *library;
	int wake_fd;     /* set for whoever waits for the session */
	int alarm;       /* host->alert: set for the keeper between calls */
	unsigned probes; /* how often its servers were asked what they are */
	bool refused;    /* no server took the connection, each time that one was tried */
	int64_t limit;   /* so long an answer is awaited; NEVER: as the caller says */
	pthread_mutex_t mutex; /* for what follows, which the library's threads change */
	struct session_view heard;
};

static const char *
last_error(struct session *s)
{
	int error = library_look(s->library).error;

	if (error == 0)
		return "no answer";
	if (library_error(error))
		return library_error(error);
	if (error == EHOSTDOWN) /* what the library makes of an end of file */
		return s->tunnel
		    ? "the server closes the connection (has it lost its quorum, or is it no ZooKeeper?)"
		    : "the server closes the connection (has it lost its quorum, does it want TLS (zks://), or is it no ZooKeeper?)";
	return strerror(error);
}

/* Why there is no connection: what TLS says of the last one, or RC_AGAIN. */
static enum rc
explain_connection(struct session *s, const char *words, struct fault *f)
{
	enum rc rc = library_refusal(s->library, f);

	return rc != RC_OK
	    ? rc
	    : fault_set(f, RC_AGAIN, "%s: %s%s", s->where, words, last_error(s));
}

/* Did TLS refuse the last connection, and will the next? */
static bool
is_refused_by_tls(struct session *s)
{
	struct fault unused;
	enum rc rc = library_refusal(s->library, &unused);

	return rc != RC_OK && rc != RC_AGAIN;
}

static void
event_clear(int fd)
{
	eventfd_t rang;

	if (eventfd_read(fd, &rang) < 0)
		return; /* it did not ring */
}

void
session_quote(const struct session *s, char *out, size_t size, const char *text)
{
	char *whole = strdup(text);

	if (whole)
		secret_blot(whole, ensemble_password(s->ensemble));
	snprintf(out, size, "%s", whole ? whole : "");
	free(whole);
}

/* ---- what the library's threads bring ---- */

static bool
is_over(const struct session_view *v)
{
	return v->state == ZOO_EXPIRED_SESSION_STATE ||
	    v->state == ZOO_AUTH_FAILED_STATE || v->shrunk || v->unfit;
}

/*
 * A server with nothing in here hears of us itself; who may not read it knows nothing.
 * See credit.h, 4 and 5.
 */
static void
on_config(int code, const char *data, int n, const struct Stat *stat, const void *ctx)
{
	struct session *s = (struct session *)ctx;

	(void)data;
	pthread_mutex_lock(&s->mutex);
	credit_set_alone(
	    &s->heard.credit, code == ZOK && n <= 0 && stat && stat->dataLength == 0);
	pthread_mutex_unlock(&s->mutex);
}

/* About the session itself. */
static void
on_session(zhandle_t *zh, int type, int state, const char *path, void *ctx)
{
	struct session *s = ctx;
	struct session_view *h = &s->heard;
	bool dead;

	(void)path;
	if (type != ZOO_SESSION_EVENT)
		return;
	pthread_mutex_lock(&s->mutex);
	h->state = state;
	credit_set_alone(&h->credit, false);
	if (state == ZOO_CONNECTED_STATE) {
		h->shrunk = !credit_grant(&h->credit, zoo_recv_timeout(zh) * NS_PER_MS);
		h->id = zoo_client_id(zh)->client_id;
		h->unfit = !library_look(s->library).initiated;
	}
	dead = is_over(h);
	pthread_mutex_unlock(&s->mutex);
	if (state == ZOO_CONNECTED_STATE)
		zoo_awget(zh, ZOO_CONFIG_NODE, NULL, NULL, on_config, s);
	session_wake(s);
	if (dead)
		eventfd_write(s->alarm, 1);
}

void
session_wake(struct session *s)
{
	eventfd_write(s->wake_fd, 1);
}

void
session_answered(struct session *s, instant sent)
{
	pthread_mutex_lock(&s->mutex);
	s->heard.proven = true;
	credit_answer(&s->heard.credit, sent, instant_now());
	pthread_mutex_unlock(&s->mutex);
}

void
session_note(struct session *s, enum watched w, bool gone)
{
	pthread_mutex_lock(&s->mutex);
	*(w == WATCHED_OWN ? &s->heard.alarmed : &s->heard.called) = gone;
	pthread_mutex_unlock(&s->mutex);
	if (gone)
		session_wake(s);
	if (gone && w == WATCHED_OWN)
		eventfd_write(s->alarm, 1);
}

/* ---- what is known of it ---- */

zhandle_t *
session_handle(struct session *s)
{
	return s->zh;
}

struct session_view
session_look(struct session *s)
{
	struct session_view v;

	pthread_mutex_lock(&s->mutex);
	v = s->heard;
	pthread_mutex_unlock(&s->mutex);
	v.held = library_look(s->library).held;
	v.unfit = v.unfit || library_look(s->library).bypasses;
	v.connected = v.state == ZOO_CONNECTED_STATE && !v.held;
	v.dead = is_over(&v);
	return v;
}

void
session_clear_alarm(struct session *s)
{
	event_clear(s->alarm);
	session_note(s, WATCHED_OWN, false);
}

/*
 * Before its first answer, a server that is silent or breaks off may be none: the
 * library takes anything for the beginning of a session.  RC_OK: it may be one.
 */
static enum rc
session_doubt(struct session *s, struct fault *f)
{
	bool speaks_tls;
	enum rc rc;

	if (s->probes == PROBES || session_look(s).proven)
		return RC_OK;
	s->probes++;
	if (is_refused_by_tls(s) || library_look(s->library).error == ECONNREFUSED)
		return RC_OK;
	rc = hosts_probe(&s->hosts, s->host, s->ensemble->tls, &speaks_tls);
	if (rc != RC_AGAIN)
		s->probes = PROBES;
	if (rc != RC_PROTOCOL)
		return rc == RC_AGAIN ? RC_OK : rc;
	return fault_set(f, rc,
	    speaks_tls ? "%s answers in TLS: is that its TLS port (zks://)?"
		       : "%s does not answer as ZooKeeper does: is this a ZooKeeper?",
	    s->where);
}

/* Codes that this library may have no name for, but servers do. */
enum {
	UNKNOWN_SESSION = -12,
	LOCAL_SESSION = -120,
	NO_SASL = -124,
	QUOTA_EXCEEDED = -125,
	THROTTLED = -127
};

/* The connection tells what became of the request: last_error() says more. */
static const char lost[] = "connection lost";
static const char expired[] =
    "the session has expired, or another server has shortened it";
static const char no_room[] = "no file descriptor, or no memory, is left";

static const struct meaning {
	int code;
	enum rc rc;
	const char *words; /* NULL: what the library calls it */
} meanings[] = {
    {ZCONNECTIONLOSS, RC_AGAIN, lost},
    {ZRUNTIMEINCONSISTENCY, RC_AGAIN, lost},
    {ZOPERATIONTIMEOUT, RC_AGAIN, lost},
    {ZCLOSING, RC_AGAIN, lost},
    {ZSESSIONMOVED, RC_AGAIN, lost},
    {THROTTLED, RC_AGAIN, "the server has too much to do (requestThrottleLimit)"},
    {QUOTA_EXCEEDED, RC_AGAIN,
	"a quota above the lock's nodes is used up (enforceQuota): setquota raises it"},
    {ZNOTREADONLY, RC_AGAIN, "the server is read-only, because it has lost its quorum"},
    {ZSESSIONEXPIRED, RC_LOST, expired},
    {ZINVALIDSTATE, RC_LOST, expired},
    {UNKNOWN_SESSION, RC_LOST, expired},
    {ZAUTHFAILED, RC_DENIED, "authentication failed"},
    {NO_SASL, RC_DENIED,
	"the server wants a login by SASL, which dlock cannot do (enforce.auth.schemes)"},
    {ZNOAUTH, RC_DENIED,
	"no permission: the ACL of the lock's nodes is another user's (see -O acl and -O auth-file)"},
    {ZINVALIDACL, RC_CONFIG,
	"it takes no ACL of this user: does it know logins by digest? -O acl=open does without"},
    {LOCAL_SESSION, RC_CONFIG,
	"sessions are local there, and have no ephemeral nodes (localSessionsUpgradingEnabled)"},
    {ZBADARGUMENTS, RC_USAGE,
	"it refuses this path: check the chroot in the URL, and -O path"},
    {ZSYSTEMERROR, RC_SYSTEM, no_room},
    {ZMARSHALLINGERROR, RC_SYSTEM, no_room},
    {ZDATAINCONSISTENCY, RC_PROTOCOL, NULL}, /* a list that was cut short */
    {ZNOTEMPTY, RC_PROTOCOL,
	"another program keeps nodes below one that is to be deleted"},
};

enum rc
session_meaning(int code, const char **words)
{
	*words = NULL;
	for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
		if (meanings[i].code == code) {
			*words = meanings[i].words;
			return meanings[i].rc;
		}
	return RC_AGAIN;
}

enum rc
session_judge(struct session *s, int code, struct fault *f)
{
	enum rc rc = code == ZNOAUTH ? RC_OK : session_doubt(s, f);
	const char *words;

	if (rc != RC_OK)
		return rc;
	rc = session_meaning(code, &words);
	if (words == no_room)
		return fault_set(f, rc, "%s", words);
	if (words == lost) {
		explain_connection(s, "connection lost: ", f);
		return rc;
	}
	return words
	    ? fault_set(f, rc, "%s: %s", s->where, words)
	    : fault_set(f, rc, "%s answers: %s (%d)", s->where, zerror(code), code);
}

/* ---- waiting ---- */

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
	struct session_view v = session_look(s);
	bool asks = s->probes < PROBES && !v.proven;
	instant suspicious = asks ? v.credit.began + (SILENCE << 2 * s->probes) : NEVER;
	enum rc rc = session_sleep(s, instant_first(until, suspicious), f);

	return rc == RC_AGAIN && suspicious <= until ? session_doubt(s, f) : rc;
}

enum rc
session_await_answer(struct session *s, instant until, struct fault *f)
{
	return library_look(s->library).held ? session_judge(s, ZCONNECTIONLOSS, f)
					     : sleep_in_doubt(s, until, f);
}

/* Its answers would not be looked at before it reads them. */
static enum rc
refuse_library(struct fault *f)
{
	return fault_set(f, RC_CONFIG,
	    "dlock cannot use this libzookeeper: it does not report its connections as versions 3.8 and 3.9 do");
}

/* Until it has said what became of that, there is no connection. */
static void
let_try(struct session *s)
{
	pthread_mutex_lock(&s->mutex);
	if (!is_over(&s->heard))
		s->heard.state = ZOO_CONNECTING_STATE;
	pthread_mutex_unlock(&s->mutex);
	library_let_try(s->library);
}

/*
 * Of several addresses, the library leaves out every other one in its first round.  What TLS says
 * counts where it says so of all that were tried: another server may be let in later.
 */
enum rc
session_await(struct session *s, instant until, struct fault *f)
{
	size_t most = s->hosts.n > 1 ? 2 * s->hosts.n : 1,
	       tries = library_look(s->library).held ? 0 : 1;
	bool hope = false, again = false;
	enum rc rc = RC_OK;

	s->refused = true;
	while (rc == RC_OK) {
		struct session_view v = session_look(s);

		if (v.unfit)
			return refuse_library(f);
		if (v.dead)
			return session_judge(s,
			    v.state == ZOO_AUTH_FAILED_STATE ? ZAUTHFAILED
							     : ZSESSIONEXPIRED,
			    f);
		if (v.connected)
			return RC_OK;
		if (v.held && library_look(s->library).error != ECONNREFUSED)
			s->refused = false;
		if (!v.held) {
			rc = sleep_in_doubt(s, until, f);
			hope = hope || rc == RC_AGAIN;
		} else if (!again && s->tunnel && tunnel_can_retry(s->tunnel)) {
			again = true; /* TCP may fail first, each time */
			let_try(s);
		} else {
			bool all = tries >= most,
			     late = tries > 0 && instant_now() >= until;

			hope = hope || (late && !all) ||
			    (tries > 0 && !is_refused_by_tls(s));
			tries++;
			if (all || late)
				rc = session_judge(s, ZCONNECTIONLOSS, f);
			else
				let_try(s);
		}
	}
	if (rc != RC_AGAIN)
		return rc;
	rc = explain_connection(s, "", f);
	return hope ? RC_AGAIN : rc;
}

bool
session_is_refused(const struct session *s)
{
	return s->refused;
}

void
session_limit(struct session *s, int64_t most)
{
	s->limit = most;
}

instant
session_answer_by(const struct session *s, instant until)
{
	return instant_first(until, instant_after(instant_now(), s->limit));
}

void
session_poison(struct session *s)
{
	library_break(s->library);
}

/* ---- its beginning ---- */

/* Its thread goes through the tunnel, before it connects: only then is it told a password. */
static enum rc
await_tunnel(struct session *s, struct fault *f)
{
	instant until = instant_now() + THREAD_PATIENCE;
	enum rc rc = RC_OK;

	while (rc == RC_OK && !library_look(s->library).tunneled)
		rc = session_sleep(s, until, f);
	return rc == RC_AGAIN ? refuse_library(f) : rc;
}

/* With addresses for hosts, this blocks nowhere. */
static enum rc
start_library(struct session *s, int64_t asked, struct fault *f)
{
	int timeout = asked / NS_PER_MS < TIMEOUT_MOST ? (int)(asked / NS_PER_MS)
						       : TIMEOUT_MOST;
	const char *hosts = s->hosts.list;
	const char *login = s->ensemble->login;
	enum rc rc = RC_OK;

	zoo_deterministic_conn_order(1); /* the order is ours to choose */
	/* or it does not say when it connects; and with TLS, that its thread begins */
	zoo_set_debug_level(s->tunnel ? ZOO_LOG_LEVEL_DEBUG : ZOO_LOG_LEVEL_INFO);
	credit_begin(&s->heard.credit, asked, instant_now());
	errno = ENOENT;
	s->zh = zookeeper_init2(hosts, on_session, timeout, NULL, s, ZOO_NO_LOG_CLIENTENV,
	    library_log(s->library));
	if (!s->zh && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return fault_set(f, RC_SYSTEM, "%s", strerror(errno));
	if (!s->zh)
		return fault_set(f, RC_AGAIN, "%s: %s", s->where,
		    errno == EINVAL || errno == ENOENT ? "unknown host"
						       : strerror(errno));
	if (!library_look(s->library).written)
		return refuse_library(f);
	if (s->tunnel)
		rc = await_tunnel(s, f);
	zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
	if (rc != RC_OK)
		return rc;
	zoo_set_servers_resolution_delay(s->zh, -1); /* addresses do not change */
	if (*login)
		zoo_add_auth(s->zh, "digest", login, (int)strlen(login), NULL, NULL);
	return RC_OK;
}

enum rc
session_begin(struct session **ret, struct host *host, const char *where,
    const struct ensemble *e, int64_t timeout, instant until, struct fault *f)
{
	struct session *s = calloc(1, sizeof *s);
	enum rc rc;

	if (!s)
		return fault_set(f, RC_SYSTEM, "out of memory");
	/* or each thread of the library maps and unmaps megabytes for one */
	libc_share_heap();
	s->host = host;
	s->where = where;
	s->ensemble = e;
	s->limit = NEVER;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->alarm = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&s->mutex, NULL);
	if (s->wake_fd < 0 || s->alarm < 0)
		rc = fault_set(
		    f, RC_SYSTEM, "cannot open an eventfd: %s", strerror(errno));
	else
		rc = e->tls ? tunnel_open(&s->tunnel, e->tls, &s->hosts, f) : RC_OK;
	s->library = library_take(s->wake_fd, s->alarm, s->tunnel);
	host->alert = s->alarm;
	if (rc == RC_OK)
		rc = hosts_find(&s->hosts, host, e, where, until, f);
	if (rc == RC_OK)
		rc = start_library(s, timeout, f);
	if (rc == RC_OK)
		*ret = s;
	else
		session_end(s, false);
	return rc;
}

/* ---- its end ---- */

/* The keeper and the library's log know of it no more; once. */
static void
session_detach(struct session *s)
{
	if (!s->host)
		return;
	if (s->host->alert == s->alarm)
		s->host->alert = -1;
	s->host = NULL;
	library_leave(s->library); /* the next session may have it */
}

void
session_end(struct session *s, bool depends)
{
	if (!s)
		return;
	session_detach(s);
	if (s->zh)
		library_close(s->zh, s->tunnel, !depends);
	tunnel_close(s->tunnel);
	close(s->wake_fd);
	close(s->alarm);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

static void *
end_session(void *ctx)
{
	session_end(ctx, true);
	return NULL;
}

void
session_abandon(struct session *s)
{
	pthread_t thread;

	if (!s)
		return;
	/* here, not in the thread: the next session may begin at once */
	session_detach(s);
	if (pthread_create(&thread, NULL, end_session, s) == 0)
		pthread_detach(thread);
}
