/*
 * doctor.c - dlock doctor: is this machine, and this server, fit for locks?
 *
 *	config      which files were read, and who has named the server
 *	machine     what a run here needs: /proc, descriptors, processes
 *	server      what the backend knows to be dangerous (backend.h, check)
 *	rights      what run, look, break and freeze do is done to a probe: a key that
 *	            nobody else uses, locked with the lease of a run
 *	round trip  of 20 renewals of the probe, against the time that one renewal has
 *	clock       the server's time of the grant against ours
 *	sweep       nothing of the probe stays (check, too)
 *
 * Two stores are open, since a store that serves a claim is asked nothing else: one takes the
 * probe, the other looks and steers.  A signal that would end us waits until the probe is gone.
 * Findings are written only then as well, since a slow reader could hold us up with the probe
 * locked.  Only KILL leaves something: a lease, which ends, or a freeze of some seconds.
 *
 * Two kinds of store get no probe: one in which every key means the same lock, since others may
 * use that lock; and one where the first use makes something that stays.
 *
 * A notice of the store with the probe (host.notice) is dropped, since check() has found the
 * same.
 */
#include "cmd.h"

#include "backends/common/checkup.h"
#include "backends/common/digits.h"
#include "backends/common/libc.h"

#include "cmd/supervise/tree.h"
#include "conf.h"
#include "exit.h"
#include "held.h"
#include "look.h"
#include "json.h"
#include "options.h"
#include "parse.h"
#include "record.h"
#include "say.h"
#include "text.h"
#include "variables.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FREEZE (10 * NS_PER_S) /* ends by itself, should we be killed */
#define SAMPLING (10 * NS_PER_S)
#define SKEW 5e6             /* us */
#define OUTERMOST 0xeffffffc /* pid namespace: its inode */

enum {
	SAMPLES = 20,
	PREFIX_CHARS = 48, /* of a key that is named, before the name of the probe */
	SPARE = 4,         /* round trips that a renewal should have time for */
	FILES_LEAST = 64,
	TASKS_LEAST = 32, /* processes and threads of some runs */
};

struct doctor {
	struct checkup checkup; /* must be first, for show_finding() */
	struct looker looker;
	const struct params *params;
	bool probing;             /* nothing is written meanwhile */
	unsigned seen[UNFIT + 1]; /* how many findings there were of each fitness */
	enum rc rc;               /* why no lock can be had; RC_OK */
	char probe[KEY_BYTES + 1];
	/* the probe's: */
	char owner[OWNER_CHARS + 1], record[RECORD_BYTES];
	struct host host;
	struct claim claim;
	struct store *store;
	struct grant grant;
	int64_t before, after; /* us since the epoch: it was granted in between */
	struct view view;      /* and as a look shows it */
	enum rc unseen;        /* why a look has failed; RC_OK */
	struct fault unseen_why;
	bool looked, broke; /* tried, or said why not */
	bool taken;         /* by force: there is nothing to be given back */
	bool touched;       /* something of the probe may have been written */
};

/* ---- signals ---- */

static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

enum { ENDING = sizeof ending / sizeof *ending };

/*
 * Blocks or unblocks the signals that end us.  They are blocked while there is a probe, and from
 * before libraries start threads, which inherit the mask.
 */
static sigset_t
hold_signals(int how)
{
	sigset_t set, before;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	for (size_t i = 0; i < ENDING; i++)
		sigaddset(&set, ending[i]);
	sigprocmask(how, &set, &before);
	return before;
}

/* Does a signal wait, or is the server silent?  Then doctor begins nothing more and tidies up. */
static bool
is_finished(const struct doctor *d)
{
	bool one_waits = false;
	sigset_t set;

	sigpending(&set);
	for (size_t i = 0; i < ENDING; i++)
		one_waits |= sigismember(&set, ending[i]);
	return one_waits || d->rc == RC_AGAIN;
}

/* ---- findings ---- */

static void
show_finding(struct checkup *c, const struct finding *f)
{
	static const char *const words[] = {"OK", "WARN", "FAIL"}, /* by fitness */
	    *const levels[] = {"ok", "warn", "fail"};
	struct doctor *d = (struct doctor *)c;
	sigset_t before;
	struct json o;

	d->seen[f->fitness]++;
	if (d->params->look.json) {
		json_begin_stream(&o, stdout);
		json_put_number(&o, "v", 1);
		json_put_string(&o, "check", f->name);
		json_put_string(&o, "level", levels[f->fitness]);
		json_put_string(&o, "fact", f->fact);
		json_put_string(&o, "advice", f->advice);
		json_end(&o);
	} else {
		printf("%-5s %-13s %s\n", words[f->fitness], f->name,
		    text_shown(f->fact).text);
		if (f->advice)
			printf("%-5s %-13s -> %s\n", "", "", f->advice);
	}
	if (d->probing)
		return;
	before = hold_signals(SIG_UNBLOCK); /* a reader may keep us for ever */
	fflush(stdout);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Tells a finding of our own as checkup_tell() does; its advice is shown where it is not FIT. */
#define tell(d, fitness, name, advice, ...) \
	checkup_tell(&(d)->checkup, fitness, name, (fitness) == FIT ? NULL : (advice), \
	    __VA_ARGS__)

/*
 * Takes the probe's name out of a text: what is said of the probe holds for KEY, or for any key.
 */
static void
forget_probe(const struct doctor *d, char *text)
{
	const char *tail = strstr(d->probe, "dlock-doctor-");
	size_t n = tail ? strlen(tail) : 0;
	bool named = tail > d->probe; /* "KEY-dlock-doctor-..." */

	for (char *at = text; n > 0 && (at = strstr(at, tail));) {
		char *from = named && at > text && at[-1] == '-' ? at - 1 : at;
		char *to = from;

		if (!named)
			*to++ = '*';
		memmove(to, at + n, strlen(at + n) + 1);
		at = to;
	}
}

/* Tells what came of one thing that was tried on the probe; `why` says why it has failed. */
static void
tell_right(struct doctor *d, const char *name, enum rc rc, const struct fault *why)
{
	char page[sizeof "see SETTING UP in dlock-(7)" + 32];
	const char *advice = rc == RC_AGAIN
	    ? "see whether the server runs, or name another (-u)"
	    : rc == RC_DENIED ? page
			      : "see dlock-troubleshooting(7)";
	struct fault shown;

	if (rc == RC_OK) {
		tell(d, FIT, name, NULL, "tried on a probe");
		return;
	}
	snprintf(page, sizeof page, "see SETTING UP in dlock-%.30s(7)",
	    d->params->site.backend->name);
	shown = *why;
	forget_probe(d, shown.text);
	tell(d, UNFIT, name, advice, "%s", *shown.text ? shown.text : fault_rc_name(rc));
}

/* Notes why a run would not get its lock.  The first reason counts: a run would end with it. */
static void
note_refusal(struct doctor *d, enum rc rc)
{
	if (d->rc == RC_OK)
		d->rc = rc;
}

/* Tells that something has failed which a run needs. */
static void
tell_failure(struct doctor *d, const char *name, enum rc rc, const struct fault *f)
{
	note_refusal(d, rc);
	tell_right(d, name, rc, f);
}

/* ---- the configuration ---- */

/* Tells which files were read.  `why`: the last one was refused; NULL: none was. */
static void
tell_files(struct doctor *d, const struct fault *why)
{
	size_t n;
	const struct conf_file *files = conf_files(&n);

	for (const struct conf_file *f = files; f < files + n; f++) {
		bool bad = why && f + 1 == files + n;

		tell(d, bad ? UNFIT : FIT, "config",
		    "mend it, or name another one with --config", "%s%s",
		    bad ? why->text : f->shown,
		    bad            ? ""
			: f->there ? " was read"
				   : " is not there");
	}
}

static void
tell_server(struct doctor *d)
{
	const struct params *p = d->params;
	struct brief own = variables_url(p->site.backend);
	int i = said_of(p->said, OPT_URL) ? OPT_URL : OPT_BACKEND;
	const struct said *s = said_of(p->said, i);
	const struct clean called = said_call(s, i);

	checkup_tell(&d->checkup, FIT, "server",
	    p->site.of_variable ||
		    (s && s->origin->by == BY_VARIABLE && !p->site.inherits)
		? "cron and services have this variable only where it is set for them: dlock.conf(5)"
		: NULL,
	    "%s, named by %s", d->looker.store->where,
	    p->site.inherits          ? "the dlock around this one (DLOCK_KEEPER)"
		: p->site.of_variable ? own.text
				      : called.text);
}

/* Tells what a run would find when it looks at its switches before it begins. */
static void
tell_switches(struct doctor *d)
{
	const struct params_before *b = &d->params->before;
	char says[HELD_BYTES];
	struct view view = {0};
	struct held held;
	struct fault f = {""};
	enum rc rc = params_check_switches(d->params, d->looker.store, &f);

	if (rc != RC_OK) {
		note_refusal(d, rc);
		tell(d, UNFIT, "unless-frozen",
		    "name a server that can freeze locks, or say --unless-frozen= here",
		    "%s", f.text);
		return;
	}
	for (size_t i = 0; i < b->nswitches; i++) {
		rc = look_at(&d->looker, b->switches[i], true, &view,
		    look_patience(&d->looker), &f);
		if (rc != RC_OK) {
			tell_failure(d, "unless-frozen", rc, &f);
			continue;
		}
		held_of_freeze(&held, &view);
		tell(d, view.is_frozen ? DOUBTFUL : FIT, "unless-frozen",
		    "runs wait until it is thawed: dlock thaw, or --unless-frozen= for one",
		    "%s%s", text_key(b->switches[i]).text,
		    view.is_frozen ? held_says(&held, false, says) : " is not frozen");
	}
	view_free(&view);
}

static int
doctor_refuse(struct params *p, enum rc rc, const struct fault *f)
{
	struct doctor d = {.checkup.tell = show_finding, .params = p};

	p->look.json = said_of(p->said, OPT_JSON);
	if (rc == RC_CONFIG)
		tell_files(&d, f);
	return exit_of_rc(rc).number;
}

/* ---- this machine ---- */

static void
tell_processes(struct doctor *d)
{
	const char *why = tree_objection(), *refused = why ? NULL : process_adopt();
	struct stat st;
	bool inner = stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != OUTERMOST;

	why = why ? why : refused;
	if (why)
		note_refusal(d, RC_CONFIG);
	tell(d, why ? UNFIT : FIT, "proc",
	    refused ? "let prctl(PR_SET_CHILD_SUBREAPER) through"
		    : "mount -t proc proc /proc, without hidepid, in this pid namespace",
	    "%s%s", why ? why : "what a command starts can be found, and stopped",
	    inner ? "; pids are those of a namespace of its own (a container)" : "");
}

/* Counts this user's processes.  Threads count for the limit as well, but are seldom many. */
static rlim_t
count_tasks(void)
{
	DIR *proc = opendir("/proc");
	const struct dirent *e;
	struct stat st;
	rlim_t n = 0;

	while (proc && (e = readdir(proc)))
		n += *e->d_name >= '1' && *e->d_name <= '9' &&
		    libc_stat_at(dirfd(proc), e->d_name, &st, 0) == 0 &&
		    st.st_uid == libc_user();
	if (proc)
		closedir(proc);
	return n;
}

static void
tell_machine_limits(struct doctor *d)
{
	struct rlimit files = {RLIM_INFINITY, 0}, tasks = {RLIM_INFINITY, 0};
	rlim_t used = count_tasks();
	bool few, many;

	getrlimit(RLIMIT_NOFILE, &files);
	getrlimit(RLIMIT_NPROC, &tasks);
	few = files.rlim_cur < FILES_LEAST;
	many = libc_user() != 0 && tasks.rlim_cur < used + TASKS_LEAST;
	tell(d, few ? DOUBTFUL : FIT, "descriptors",
	    "raise ulimit -n, LimitNOFILE= of a service", "up to %llu",
	    (unsigned long long)files.rlim_cur);
	tell(d, many ? DOUBTFUL : FIT, "processes",
	    "raise ulimit -u, TasksMax= of a service",
	    "this user has %llu (a run needs 3, and threads)%s", (unsigned long long)used,
	    many ? ", and may have few more" : "");
}

/* ---- the probe ---- */

/* Names a key that nobody else uses.  It begins with KEY, since rights may be for such names. */
static bool
name_probe(struct doctor *d)
{
	const char *key = d->params->nkeys > 0 ? d->params->keys[0] : "";
	size_t n = text_whole(key, PREFIX_CHARS);
	unsigned char bytes[OWNER_CHARS / 2];
	int used = snprintf(d->probe, sizeof d->probe, "%.*s%sdlock-doctor-", (int)n, key,
	    n > 0 ? "-" : "");

	if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
		return false;
	digits_hex(d->owner, bytes, sizeof bytes);
	snprintf(d->probe + used, sizeof d->probe - used, "%.12s", d->owner);
	record_write(d->record, d->params, 0, NULL);
	d->claim = (struct claim){.key = d->probe,
	    .kind = KIND_EXCLUSIVE,
	    .owner = d->owner,
	    .record = d->record,
	    .ttl = d->params->terms.ttl};
	return true;
}

static int
compare_spans(const void *left, const void *right)
{
	const int64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

/* Tells the round trip of n requests that each write, as a renewal does. */
static void
tell_round_trip(struct doctor *d, int64_t *spans, size_t n)
{
	int64_t lease = d->grant.lease, most = lease_attempt(lease), half, worst;
	bool endless = lease == LEASE_FOREVER;
	enum fitness fitness;

	qsort(spans, n, sizeof *spans, compare_spans);
	half = spans[n / 2];
	worst = spans[n - 1];
	fitness = endless || worst * SPARE < most ? FIT : worst < most ? DOUBTFUL : UNFIT;
	tell(d, fitness, "round-trip", "a longer --ttl, or a server that is nearer",
	    "median %.1f ms, worst %.1f ms of %zu renewals; %s%s%s",
	    (double)half / NS_PER_MS, (double)worst / NS_PER_MS, n,
	    endless ? "its lease has no end" : "the lease of ",
	    endless ? "" : parse_span(lease).text,
	    endless                   ? ""
		: fitness == UNFIT    ? " leaves less time for one"
		: fitness == DOUBTFUL ? " leaves little time for them"
				      : " leaves time for them");
}

static enum rc
renew_often(struct doctor *d, struct fault *f)
{
	int64_t spans[SAMPLES];
	instant ends = instant_now() + SAMPLING;
	enum rc rc = RC_OK;
	size_t n = 0;

	while (n < SAMPLES && rc == RC_OK &&
	    (n == 0 || (instant_now() < ends && !is_finished(d)))) {
		instant sent = instant_now();

		rc = d->store->backend->lock->renew(
		    d->store, look_patience(&d->looker), &d->grant, f);
		spans[n++] = instant_now() - sent;
	}
	if (rc == RC_OK)
		tell_round_trip(d, spans, n);
	return rc;
}

static void
tell_lease(struct doctor *d)
{
	const struct terms *t = &d->params->terms;
	int64_t lease = d->grant.lease,
		pace = d->grant.pace > 0 ? d->grant.pace : lease_pace(lease),
		grace = t->grace_fixed ? t->grace : lease_grace(lease);

	if (lease == LEASE_FOREVER || lease >= t->ttl || lease_fits(lease, pace, grace))
		return;
	note_refusal(d, RC_CONFIG);
	tell(d, UNFIT, "lease",
	    "a shorter --grace, or let the server grant longer sessions",
	    "the server grants %s, in which two renewals and the grace do not fit",
	    parse_span(lease).text);
}

/*
 * Compares the server's clock with ours.  The lock was granted at some time within the call, so
 * the difference has two bounds.  The server may say any time, also an absurd one.
 */
static void
tell_clock(struct doctor *d)
{
	const struct person *h = view_holder(&d->view);
	int64_t since = h ? h->since : EPOCH_NONE;
	double least = (double)since - (double)d->after, /* us that it is ahead */
	    most = (double)since - (double)d->before;
	bool far = least > SKEW || most < -SKEW;

	if (since != EPOCH_NONE)
		tell(d, far ? DOUBTFUL : FIT, "clock",
		    "let NTP set both; leases do not depend on it, times that are shown do",
		    far ? "the server's clock differs from ours by %+.1f s"
			: "the server's clock is ours, within %.1f s",
		    far ? (least > 0 ? least : most) / 1e6
			: (most > -least ? most : -least) / 1e6 + 0.05);
}

/* ---- what looking and steering need ---- */

static void
try_look(struct doctor *d)
{
	struct fault *f = &d->unseen_why;
	enum rc rc = look_at(
	    &d->looker, d->probe, false, &d->view, look_patience(&d->looker), f);

	d->looked = true;
	d->unseen = rc;
	/* of a role that may do so much, a part may have been done before the refusal */
	d->touched = d->touched || rc == RC_OK;
	tell_right(d, "right-look", rc, f);
}

/*
 * Tries to break the probe, if we hold it (`held`).  A break begins with a look, so a user who
 * may not look cannot break.
 *
 * The polite way is tried on the probe itself.  Force is tried on a grant that does not exist,
 * since some servers remember what was taken by force.  A store without a polite way ends a
 * connection and remembers nothing, so there force is tried on the probe.
 */
static void
try_break(struct doctor *d, bool held)
{
	struct store *s = d->looker.store;
	bool polite = s->caps & CAP_REVOKE;
	const struct person *h = view_holder(&d->view);
	const struct target t = {d->probe, h ? (uint64_t)h->token : d->grant.token,
				h ? h->owner : NULL},
			    other = {d->probe, d->grant.token + 1, NULL};
	struct fault f = {""};
	enum rc rc;

	d->broke = true;
	if (!(s->caps & (CAP_REVOKE | CAP_FORCE))) {
		tell(d, FIT, "right-break", NULL, "these locks cannot be broken");
		return;
	}
	if (d->unseen != RC_OK) {
		tell_right(d, "right-break", d->unseen, &d->unseen_why);
		return;
	}
	if (!held) {
		tell(d, DOUBTFUL, "right-break", "mend right-run first",
		    "not tried: no probe could be held");
		return;
	}
	rc = s->backend->admin->revoke(
	    s, &t, d->record, !polite, look_patience(&d->looker), &f);
	if (rc == RC_OK && polite && (s->caps & CAP_FORCE)) {
		rc = s->backend->admin->revoke(
		    s, &other, d->record, true, look_patience(&d->looker), &f);
		rc = rc == RC_LOST ? RC_OK : rc;
	}
	d->taken = rc == RC_OK && !polite;
	tell_right(d, "right-break", rc, &f);
}

static void
try_freeze(struct doctor *d)
{
	struct store *s = d->looker.store;
	struct fault f = {""}, unthawed = {""};
	enum rc rc, thawed;

	if (!(s->caps & CAP_FREEZE)) {
		tell(d, FIT, "right-freeze", NULL, "these locks cannot be frozen");
		return;
	}
	rc = s->backend->admin->freeze(
	    s, d->probe, d->record, FREEZE, look_patience(&d->looker), &f);
	d->touched |= rc != RC_DENIED;
	/* any other failure may have frozen it, and lost the answer */
	thawed = rc == RC_DENIED
	    ? rc
	    : s->backend->admin->thaw(s, d->probe, look_patience(&d->looker), &unthawed);
	tell_right(
	    d, "right-freeze", rc == RC_OK ? thawed : rc, rc == RC_OK ? &unthawed : &f);
}

/* ---- all of it ---- */

/* Tries everything that needs the probe, which we hold. */
static enum rc
try_held(struct doctor *d, struct fault *f)
{
	enum rc rc = renew_often(d, f);

	tell_lease(d);
	if (is_finished(d))
		return rc;
	try_look(d);
	tell_clock(d);
	if (rc == RC_OK)
		try_break(d, true);
	return rc;
}

/* Takes the probe, renews it and gives it back, as a run does. */
static void
try_run(struct doctor *d)
{
	const struct backend *b = d->params->site.backend;
	struct fault f = {""}, given;
	enum rc rc, back;

	look_host(&d->host);
	rc = b->open(&d->store, &d->host, &d->looker.where.site, &f);
	if (rc != RC_OK) {
		tell_failure(d, "right-run", rc, &f);
		return;
	}
	b = d->store->backend;
	d->before = instant_epoch();
	rc = b->lock->acquire(d->store, &d->claim, 0, &d->grant, &f);
	d->after = instant_epoch();
	d->touched = rc != RC_DENIED;
	if (rc == RC_OK)
		rc = try_held(d, &f);
	back = b->lock->release(d->store, NO_OUTCOME, look_patience(&d->looker), &given);
	if (rc == RC_OK && back != RC_OK && back != RC_REVOKED && !d->taken) {
		rc = back;
		f = given;
	}
	if (rc == RC_OK)
		tell(d, FIT, "right-run", NULL,
		    "a probe was taken, renewed and given back");
	else
		tell_failure(d, "right-run", rc, &f);
	b->close(d->store);
}

/* Asks the backend for dangers that it knows, or (sweep) to remove what is left of the probe. */
static enum rc
ask_check(struct doctor *d, bool sweep, struct fault *f)
{
	struct store *s = d->looker.store;

	d->checkup.sweep = sweep;
	d->checkup.until = look_patience(&d->looker);
	return s->backend->admin->check ? s->backend->admin->check(s, &d->checkup, f)
					: RC_OK;
}

static void
sweep_probe(struct doctor *d)
{
	struct fault f = {""};

	/* only what has been written can be left over */
	if (ask_check(d, true, &f) != RC_OK && d->touched)
		tell(d, DOUBTFUL, "probe", "remove it, unless it ends by itself",
		    "a part of the probe, the lock %s, may be left on the server: %s",
		    d->probe, f.text);
}

static void
try_rights(struct doctor *d)
{
	bool one = d->looker.store->caps & ONE_LOCK;

	if (one || *d->checkup.hands_off.text) {
		d->rc = d->checkup.refusal;
		try_look(d);
		tell(d, DOUBTFUL, "rights",
		    one ? "ask without the setting that names one lock"
			: "ask again after the first run, or as a user with more rights",
		    "not tried: %s",
		    one ? "each key means one lock, which others may use"
			: d->checkup.hands_off.text);
		return;
	}
	try_run(d);
	if (!d->looked && !is_finished(d))
		try_look(d);
	if (!d->broke && !is_finished(d))
		try_break(d, false);
	if (!is_finished(d))
		try_freeze(d);
	sweep_probe(d);
}

/* Does a key that is named mean the lock of another program to the one who names it? */
static void
tell_beside(struct doctor *d)
{
	struct view view = {0};

	for (size_t i = 0; i < d->params->nkeys; i++) {
		view_begin(&view, d->params->keys[i]);
		look_around(&d->looker, &view, look_patience(&d->looker));
		if (view.beside)
			tell(d, DOUBTFUL, "beside", "see dlock-joins(7)", "%s: %s",
			    text_key(view.key).text, view.beside);
	}
	view_free(&view);
}

static void
examine(struct doctor *d)
{
	struct fault f = {""};
	enum rc rc = look_open(&d->looker, d->params, 0, &f);

	if (rc != RC_OK) {
		tell_failure(d, "server", rc, &f);
		return;
	}
	d->looker.host.verbose = true;
	tell_server(d);
	tell_switches(d);
	tell_beside(d);
	rc = ask_check(d, false, &f);
	d->probing = true;
	if (rc == RC_OK && !is_finished(d))
		try_rights(d);
	d->probing = false;
	if (rc != RC_OK)
		tell_failure(d, "reachable", rc, &f);
	look_close(&d->looker);
}

static int
run_doctor(struct params *p)
{
	static char room[1 << 16];
	struct doctor d = {
	    .checkup = {.ttl = p->terms.ttl, .probe = d.probe, .tell = show_finding},
	    .params = p};

	/* room for all that is found of the probe */
	setvbuf(stdout, room, _IOFBF, sizeof room);
	p->show.quiet = true; /* check() finds what a look's notices say */
	if (!name_probe(&d)) {
		say_last("cannot get random numbers");
		return STATUS_SYSTEM;
	}
	tell_files(&d, NULL);
	tell_machine_limits(&d);
	hold_signals(SIG_BLOCK);
	examine(&d);
	hold_signals(SIG_UNBLOCK);
	view_free(&d.view);
	tell_processes(&d);
	if (say_written() != 0)
		return STATUS_SYSTEM;
	if (d.seen[UNFIT] == 0)
		return 0;
	say_last("%u of %u checks fail; %s", d.seen[UNFIT],
	    d.seen[FIT] + d.seen[DOUBTFUL] + d.seen[UNFIT],
	    d.rc == RC_OK ? "a run would get its lock" : "a run would not get its lock");
	return d.rc == RC_OK ? STATUS_UNFIT : exit_of_rc(d.rc).number;
}

const struct cmd cmd_doctor = {
    .help = "tell whether this machine and a server are fit for locks",
    .bit = CMD_DOCTOR,
    .usage =
	"usage: dlock doctor [-k KEY] [-t DURATION] [-J] [options]\n"
	"\n"
	"Connects as dlock run would, and tells in a line each what is well (OK), what can go\n"
	"wrong (WARN) and what does (FAIL): the files that were read, who has named the server,\n"
	"its settings that endanger locks, our rights, the round trip against the lease, its\n"
	"clock, and what a run needs of this machine.  Nothing that it does stays.\n"
	"\n"
	"  dlock doctor -u redis://10.0.0.5\n"
	"  dlock doctor -k deploy --profile ci -t 10s -J | jq 'select(.level == \"fail\")'\n",
    .notes =
	"Status: 0 nothing fails; 64 to 78 what dlock run would end with, where it would not\n"
	"get a lock; 1 something else fails.  Rights are tried on a probe, a key such as\n"
	"KEY-dlock-doctor-0f8e1c2d3a4b.  See man dlock-doctor.",
    .run = run_doctor,
    .refuse = doctor_refuse};
