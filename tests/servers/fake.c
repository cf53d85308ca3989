/*
 * fake.c - a backend without a server: it answers what a script says.
 *
 * It stands beside the real ones (backends/registry.c, -DWITH_FAKE) in the
 * dlock that the tests build, so that every answer a server could give can be
 * given to the keeper at will.
 *
 *	dlock run -b fake -O script=acquire=ok@200ms,renew=ok,renew=lost ...
 *	dlock run -u 'fake:///?acquire=busy' ...
 *
 * A script is CALL=ANSWER[@DELAY],...  The first `renew=` is for the first
 * renewal and so on; the last of each call is for all that follow, and without
 * any the answer is ok.  ANSWER:
 *
 *	ok again lost revoked denied usage config protocol system   that rc, after DELAY
 *	busy    another has it: until `until`
 *	done    (acquire) the job has been done
 *	away    (acquire) the server does not answer; it is asked again as retry.h says
 *	hang    no answer comes
 *	late    ok after DELAY, even when nobody waits for it any more
 *	die     SIGKILL of the process that asks, after DELAY
 *
 * `open=` takes ok, usage, config and system.  `lease=DURATION` (or inf) is the
 * lease given in place of the ttl, `token=N` the token, `alert=DURATION` alerts
 * the keeper once, so long after the grant; `close=hang` never comes to an end;
 * `anchor=PORT` gives a connection to that local port as the grant's anchor;
 * `kind=exclusive|shared|limit`, `holders=N` and `limit=N` are what is seen of those who
 * have it when another does, `slot=N` the slot that is granted, `not=shared|limit|job|
 * revoke|force` what the store cannot; `notice=TEXT` gives that notice with the first renewal.
 * `-O log=FILE` gets a line "CALL OWNER NANOSECONDS" for every call (of admin_ops: with
 * what is asked for in place of the owner), `-O record=FILE` what others would be shown
 * of us.  What a look shows stands in `-O look=FILE`, see fake_look.c.
 */
#include "backends/backend.h"
#include "backends/common/retry.h"
#include "backends/common/setting.h"
#include "backends/common/identity.h"
#include "backends/common/url.h"
#include "cmd/parse.h"
#include "tests/servers/fake_look.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EACH = 3, REVOKE, FREEZE, THAW, CALLS, ANSWERS = 16 };

static const char *const call_names[CALLS] = {
    "acquire", "renew", "release", "each", "revoke", "freeze", "thaw"};

enum verdict { HANG = 100, LATE, AWAY, DIE };

struct answer {
	int verdict; /* an enum rc, or one of the above */
	int64_t delay;
};

struct fake {
	struct store base;
	const struct claim *claim;
	struct answer script[CALLS][ANSWERS];
	size_t written[CALLS], asked[CALLS];
	instant sent;  /* the last call, which its line in the log tells, too */
	int64_t lease; /* 0: the ttl */
	uint64_t token;
	const char *log, *record, *look;
	char asked_for[600]; /* by admin_ops */
	enum rc on_open;
	int64_t alert_after; /* 0: never */
	bool close_hangs;
	int anchor_port; /* 0: no anchor */
	char notice[64];
	enum lock_kind kind;
	unsigned holders, limit, slot;
	struct retry patience;
};

extern const struct backend fake_backend;

static struct fake *
fake_of(struct store *s)
{
	return (struct fake *)store_of(s, &fake_backend);
}

/* ---- the script ---- */

static bool
parse_verdict(const char *s, size_t n, int *ret)
{
	static const struct {
		const char *name;
		int verdict;
	} words[] = {
	    {"ok", RC_OK},
	    {"busy", RC_BUSY},
	    {"done", RC_DONE},
	    {"again", RC_AGAIN},
	    {"lost", RC_LOST},
	    {"revoked", RC_REVOKED},
	    {"denied", RC_DENIED},
	    {"usage", RC_USAGE},
	    {"config", RC_CONFIG},
	    {"protocol", RC_PROTOCOL},
	    {"system", RC_SYSTEM},
	    {"hang", HANG},
	    {"late", LATE},
	    {"away", AWAY},
	    {"die", DIE},
	};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strlen(words[i].name) == n && strncmp(words[i].name, s, n) == 0) {
			*ret = words[i].verdict;
			return true;
		}
	return false;
}

/* "ok@200ms" for one of the calls. */
static bool
add_answer(struct fake *k, int call, const char *value)
{
	size_t n = strcspn(value, "@");
	struct answer a = {0};

	if (k->written[call] == ANSWERS || !parse_verdict(value, n, &a.verdict))
		return false;
	if (value[n] && !parse_duration(value + n + 1, &a.delay))
		return false;
	k->script[call][k->written[call]++] = a;
	return true;
}

static bool
read_kind(struct fake *k, const char *word, const char *value)
{
	unsigned *number = strcmp(word, "holders") == 0 ? &k->holders
	    : strcmp(word, "limit") == 0                ? &k->limit
	    : strcmp(word, "slot") == 0                 ? &k->slot
							: NULL;

	if (number) {
		*number = strtoul(value, NULL, 10);
		return true;
	}
	if (strcmp(word, "kind") == 0) {
		k->kind = *value == 's' ? KIND_SHARED
		    : *value == 'l'     ? KIND_LIMIT
					: KIND_EXCLUSIVE;
		return true;
	}
	if (strcmp(word, "not") == 0) {
		k->base.caps &= ~(*value == 's' ? CAP_SHARED
			: *value == 'l'         ? CAP_LIMIT
			: *value == 'r'         ? CAP_REVOKE
			: *value == 'f'         ? CAP_FORCE | CAP_FREEZE
						: CAP_JOB);
		return true;
	}
	return false;
}

static bool
read_word(struct fake *k, char *word)
{
	char *value = strchr(word, '=');
	int verdict;

	if (!value)
		return false;
	*value++ = '\0';
	for (int call = 0; call < CALLS; call++)
		if (strcmp(word, call_names[call]) == 0)
			return add_answer(k, call, value);
	if (strcmp(word, "lease") == 0)
		return parse_duration(value, &k->lease);
	if (strcmp(word, "open") == 0 && parse_verdict(value, strlen(value), &verdict)) {
		k->on_open = verdict;
		return true;
	}
	if (strcmp(word, "alert") == 0)
		return parse_duration(value, &k->alert_after);
	if (strcmp(word, "anchor") == 0)
		return (k->anchor_port = atoi(value)) > 0;
	if (strcmp(word, "notice") == 0)
		return snprintf(k->notice, sizeof k->notice, "%s", value) <
		    (int)sizeof k->notice;
	if (strcmp(word, "close") == 0)
		return k->close_hangs = strcmp(value, "hang") == 0;
	if (strcmp(word, "token") == 0) {
		k->token = strtoull(value, NULL, 10);
		return true;
	}
	return read_kind(k, word, value);
}

static bool
read_script(struct fake *k, const char *script)
{
	char *copy = strdup(script), *rest, *word;
	bool good = copy != NULL;

	for (word = copy ? strtok_r(copy, ",", &rest) : NULL; word && good;
	     word = strtok_r(NULL, ",", &rest))
		good = read_word(k, word);
	free(copy);
	return good;
}

/* ---- answering ---- */

static struct answer
next_answer(struct fake *k, int call)
{
	size_t i = k->asked[call]++;
	FILE *log = k->log ? fopen(k->log, "ae") : NULL;

	k->sent = instant_now();
	if (log) {
		fprintf(log, "%s %s %" PRId64 "\n", call_names[call],
		    k->claim ? k->claim->owner : k->asked_for, k->sent);
		fclose(log);
	}
	if (k->written[call] == 0)
		return (struct answer){.verdict = RC_OK};
	return k->script[call][i < k->written[call] ? i : k->written[call] - 1];
}

/* Sleeps until `when`.  RC_OK: it has come; RC_AGAIN: `until` came first. */
static enum rc
sleep_until(struct fake *k, instant when, instant until, struct fault *f)
{
	while (instant_now() < when) {
		if (instant_now() >= until)
			return fault_set(
			    f, RC_AGAIN, "the script gives no answer in time");
		if (k->base.host->wait(k->base.host, -1, 0, instant_first(when, until)) ==
		    WOKE_STOP)
			return fault_set(f, RC_STOP, "told to stop");
	}
	return RC_OK;
}

/* One call: waits as its script says, gives what it says. */
static enum rc
perform(struct fake *k, int call, instant until, struct fault *f)
{
	struct answer a = next_answer(k, call);
	enum rc rc;

	if (a.verdict == HANG)
		return sleep_until(k, NEVER, until, f);
	rc = sleep_until(
	    k, instant_after(k->sent, a.delay), a.verdict == LATE ? NEVER : until, f);
	if (rc != RC_OK || a.verdict == RC_OK || a.verdict == LATE)
		return rc;
	if (a.verdict == DIE)
		raise(SIGKILL);
	if (a.verdict == RC_DONE)
		return fault_set(f, RC_DONE, "ID x was run by another@fake");
	if (a.verdict == AWAY)
		return fault_set(f, RC_AGAIN, "cannot reach \33[2J the server");
	return fault_set(f, a.verdict, "the script says %s", fault_rc_name(a.verdict));
}

/* ---- the calls ---- */

static enum rc
set_script(struct store *s, const char *value, struct fault *f)
{
	return read_script(fake_of(s), value)
	    ? RC_OK
	    : fault_set(f, RC_USAGE, "the script makes no sense");
}

static enum rc
set_log(struct store *s, const char *value, struct fault *f)
{
	(void)f;
	fake_of(s)->log = value;
	return RC_OK;
}

static enum rc
set_record(struct store *s, const char *value, struct fault *f)
{
	(void)f;
	fake_of(s)->record = value;
	return RC_OK;
}

static enum rc
set_look(struct store *s, const char *value, struct fault *f)
{
	(void)f;
	fake_of(s)->look = value;
	return RC_OK;
}

static const struct setting_row settings[] = {
    {"script", "SCRIPT", "what to answer", set_script},
    {"log", "FILE", "where to write each call", set_log},
    {"record", "FILE", "where to write what others would be shown of us", set_record},
    {"look", "FILE", "what a look shows", set_look},
    {0},
};

static enum rc
fake_open(struct store **ret, struct host *host, const struct site *site, struct fault *f)
{
	const char *query = site->url ? strchr(site->url, '?') : NULL;
	struct fake *k = calloc(1, sizeof *k);
	enum rc rc;

	if (!k)
		return fault_set(f, RC_SYSTEM, "no memory");
	*k = (struct fake){
	    .base = {&fake_backend, host, "fake",
		CAP_FAIR | CAP_DURABLE | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE |
		    CAP_FORCE | CAP_FREEZE},
	    .token = 1,
	};
	retry_init(&k->patience);
	rc = !query || read_script(k, query + 1)
	    ? RC_OK
	    : fault_set(f, RC_USAGE, "the script makes no sense");
	if (rc == RC_OK)
		rc = setting_read(&k->base, site, f);
	if (rc == RC_OK && k->on_open != RC_OK)
		rc = fault_set(f, k->on_open, "the script has open refused");
	if (rc == RC_OK)
		*ret = &k->base;
	else
		free(k);
	return rc;
}

/* Another has it; for good, as far as this script goes. */
static enum rc
wait_for_another(struct fake *k, instant until, struct fault *f)
{
	k->base.host->seen.position = 1;
	k->base.host->seen.holding.held = NS_PER_S;
	k->base.host->seen.holding.kind = k->kind;
	k->base.host->seen.holding.holders = k->holders;
	k->base.host->seen.holding.limit = k->limit;
	strcpy(k->base.host->seen.holding.record,
	    "{\"who\":\"another@fake\",\"pid\":7,\"command\":\"true\"}");
	if (until != 0 && sleep_until(k, NEVER, until, f) == RC_STOP)
		return RC_STOP;
	return fault_set(f, RC_BUSY, "another has it");
}

static void
set_alert(struct fake *k)
{
	struct itimerspec at = {
	    .it_value = {k->alert_after / NS_PER_S, k->alert_after % NS_PER_S}};

	if (k->alert_after) {
		k->base.host->alert = timerfd_create(
		    CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
		timerfd_settime(k->base.host->alert, 0, &at, NULL);
	}
}

static int
make_anchor(struct fake *k)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
	    .sin_port = htons(k->anchor_port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = k->anchor_port ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;

	if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
		abort();
	return fd;
}

/* The next answer that is not "away", or how the patience ended. */
static enum rc
ask_to_acquire(struct fake *k, instant until, struct fault *f)
{
	size_t last = k->written[0] ? k->written[0] - 1 : 0;

	for (;;) {
		bool away =
		    k->script[0][k->asked[0] < last ? k->asked[0] : last].verdict == AWAY;
		enum rc rc;

		rc = perform(k, 0, until == 0 ? NEVER : until, f);
		if (!away)
			retry_end_outage(&k->patience);
		if (!away || rc != RC_AGAIN)
			return rc;
		rc = retry_wait(&k->patience, k->base.host, rc, false, until);
		if (rc != RC_OK)
			return rc;
	}
}

static void
write_record(const struct fake *k)
{
	FILE *f = k->record ? fopen(k->record, "we") : NULL;

	if (f) {
		fputs(k->claim->record, f);
		fclose(f);
	}
}

static int64_t
lease_of(const struct fake *k)
{
	return k->lease ? k->lease : k->claim->ttl;
}

static enum rc
fake_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *f)
{
	struct fake *k = fake_of(s);
	enum rc rc;

	k->claim = claim;
	retry_begin(&k->patience, claim);
	s->host->seen.holding.held = -1;
	rc = ask_to_acquire(k, until, f);
	if (rc == RC_BUSY)
		return wait_for_another(k, until, f);
	if (rc == RC_OK) {
		write_record(k);
		*g = (struct grant){.token = k->token,
		    .slot = k->slot,
		    .sent = k->sent,
		    .lease = lease_of(k),
		    .anchor = make_anchor(k)};
		set_alert(k);
	}
	return rc;
}

static enum rc
fake_renew(struct store *s, instant until, struct grant *g, struct fault *f)
{
	struct fake *k = fake_of(s);
	uint64_t rang;
	enum rc rc;

	if (s->host->alert >= 0 && read(s->host->alert, &rang, sizeof rang) > 0)
		rang = 0;
	if (*k->notice)
		fault_set(&s->host->notice, RC_OK, "%s", k->notice);
	k->notice[0] = '\0';
	rc = perform(k, 1, until, f);
	if (rc == RC_OK || rc == RC_REVOKED) {
		g->sent = k->sent;
		g->lease = lease_of(k);
	}
	return rc;
}

static enum rc
fake_release(struct store *s, struct outcome o, instant until, struct fault *f)
{
	(void)o;
	return perform(fake_of(s), 2, until, f);
}

/* A script says what becomes of calls, not which lock it is. */
static enum rc
fake_identify(struct store *s, struct identity *id, struct fault *f)
{
	(void)s, (void)id, (void)f;
	return RC_OK;
}

static void
fake_close(struct store *s)
{
	while (s && fake_of(s)->close_hangs)
		pause();
	free(s);
}

static enum rc
fake_each(struct store *s, const struct look *look, struct fault *f)
{
	struct fake *k = fake_of(s);
	enum rc rc;

	snprintf(k->asked_for, sizeof k->asked_for, "%s", look->key ? look->key : "-");
	rc = perform(k, EACH, look->until, f);
	return rc == RC_OK ? fake_look(s, k->look, look, f) : rc;
}

static enum rc
fake_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *f)
{
	struct fake *k = fake_of(s);

	snprintf(k->asked_for, sizeof k->asked_for, "%s,%" PRIu64 ",%s,%s,%s", t->key,
	    t->token, t->owner ? t->owner : "-", force ? "force" : "polite", record);
	return perform(k, REVOKE, until, f);
}

static enum rc
fake_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *f)
{
	struct fake *k = fake_of(s);

	snprintf(
	    k->asked_for, sizeof k->asked_for, "%s,%" PRId64 ",%s", key, length, record);
	return perform(k, FREEZE, until, f);
}

static enum rc
fake_thaw(struct store *s, const char *key, instant until, struct fault *f)
{
	struct fake *k = fake_of(s);

	snprintf(k->asked_for, sizeof k->asked_for, "%s", key);
	return perform(k, THAW, until, f);
}

const struct backend fake_backend = {
    .name = "fake",
    .schemes = (const char *const[]){"fake", NULL},
    .settings = settings,
    .url_help = "fake:///?SCRIPT, see tests/servers/fake.c",
    .open = fake_open,
    .close = fake_close,
    .identify = fake_identify,
    .lock = &(const struct lock_ops){fake_acquire, fake_renew, fake_release},
    .admin = &(const struct admin_ops){fake_each, fake_revoke, fake_freeze, fake_thaw,
	NULL, NULL, NULL},
};
