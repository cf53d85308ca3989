/*
 * start.c - what `dlock run` and `dlock hold` do before front and keeper part, and at the end.
 *
 *	start_origin()  blocks signals
 *	start_run()     objection, where the lock is kept; then prepare_keeper(), fork: the child is
 *	                the keeper, the parent the front; both again after Ctrl-Z, or a look that
 *	                said "not now"
 *	start_end()     says, logs, exits
 */
#include "run.h"

#include "backends/common/digits.h"
#include "backends/common/libc.h"
#include "cmd/environment.h"
#include "cmd/exit.h"
#include "cmd/log.h"
#include "cmd/metrics.h"
#include "cmd/parse.h"
#include "cmd/record.h"
#include "cmd/say.h"
#include "cmd/text.h"
#include "events.h"
#include "loop.h"
#include "told.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

void
start_origin(struct origin *o)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	struct sigaction chld;
	sigset_t all;
	int tty;

	libc_sigfillset(&all);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&all, faults[i]);
	libc_sigprocmask(SIG_SETMASK, &all, &o->mask);
	sigaction(SIGCHLD, NULL, &chld);
	o->chld_ignored = chld.sa_handler == SIG_IGN;
	if (o->chld_ignored)
		signal(SIGCHLD, SIG_DFL);
	tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	/* a chroot may lack /dev/tty, which would say ENXIO if there were no terminal */
	o->has_tty = tty >= 0 || (errno != ENXIO && process_terminal() != TERMINAL_NONE);
	if (tty >= 0)
		close(tty);
}

/* Makes the verdict of a run that cannot begin.  `why` NULL: errno says why. */
static struct verdict
not_begun(const struct params *p, enum rc rc, const char *what, const char *why)
{
	const struct ending e = {.kind = END_REFUSED, .value = rc};
	char words[300];

	snprintf(words, sizeof words, "%s: %s", what, why ? why : strerror(errno));
	return verdict_of(p, &e, &(struct heard){.words = words, .where = ""});
}

/*
 * Is there room for the descriptors that the front opens later?  They are an anchor for each key,
 * one more for a hold and one for a run that joins a hold (MSG_GRANTED), two for its loop, and with
 * a terminal one for the witness; the front closes the keeper's end of the link, which makes room
 * for one.  This is checked before the lock is asked for: without room for its anchors the lock
 * would end with the keeper.
 */
static bool
has_descriptors(const struct run *r)
{
	int spare[KEYS_MAX + 4];
	size_t n = 0,
	       wanted = r->params->nkeys + r->ward->is_hold + (*r->outer != 0) + 1 +
	    r->origin->has_tty;
	bool enough;

	while (n < wanted && (spare[n] = dup(r->ends[0])) >= 0)
		n++;
	enough = n == wanted;
	while (n > 0)
		close(spare[--n]); /* which leaves errno alone */
	return enough;
}

/*
 * Makes what each keeper gets anew: page, owner, name of its socket, record, link.  False, with
 * errno.
 */
static bool
prepare_keeper(struct run *r)
{
	struct {
		unsigned char owner[OWNER_CHARS / 2], socket[JOIN_ID_CHARS / 2];
		uint64_t seed;
	} bytes;
	const char *outer = environment_get("DLOCK_KEEPER");
	/* all keepers of a run share the first half of the socket's name */
	size_t kept = *r->socket_id ? RUN_ID_CHARS : 0;

	r->has_elders = process_has_children();
	r->outer = outer ? join_address_living(outer, NULL) : "";
	r->page = page_new();
	if (!r->outer || !r->page || getrandom(&bytes, sizeof bytes, 0) != sizeof bytes)
		return false;
	digits_hex(r->owner, bytes.owner, sizeof bytes.owner);
	digits_hex(r->socket_id + kept, bytes.socket, sizeof bytes.socket - kept / 2);
	r->seed = bytes.seed;
	r->front = getpid();
	r->shown = r->ward->outsider ? r->ward->outsider->pid : r->front;
	record_write(r->record, r->params, r->shown, r->socket_id);
	if (r->ward->ops->prepare && !r->ward->ops->prepare(r))
		return false;
	return link_open(r->ends) == 0 && has_descriptors(r);
}

/* A signal that is to end us, if one has come while we were suspended; 0: none. */
static int
pending_end(void)
{
	sigset_t pending;
	int sig = 1;

	if (sigpending(&pending) != 0)
		return 0;
	while (sig < NSIG && !(sigismember(&pending, sig) == 1 && signal_is_end(sig)))
		sig++;
	return sig < NSIG ? sig : 0;
}

/* Frees the last keeper's page, and keeps for the next keeper when the run came (--newest). */
static void
leave_page(struct run *r)
{
	r->newest = atomic_load(&r->page->newest);
	page_free(r->page);
}

/*
 * The waiting was suspended by `sig`.  Suspends this process; once it is continued, says that we ask
 * again.  Returns 0, or a pending signal that is to end us.
 */
static int
suspend_waiting(struct run *r, const struct params *p, int sig)
{
	struct msg m = {.kind = MSG_SUSPENDED, .number = sig};
	int end;

	if (p->show.status_fd >= 0)
		events_message(p, &m);
	leave_page(r);
	if (sig != SIGSTOP) /* then we have been suspended already */
		loop_suspend_now(sig);
	end = pending_end();
	if (end)
		return end;
	m.kind = MSG_RESUMED;
	if (p->show.status_fd >= 0)
		events_message(p, &m);
	if (!p->show.quiet)
		say("%s: stopped while it waited, so it has given up its place; asking again",
		    params_keys(p).text);
	return 0;
}

struct verdict
start_run(struct run *r)
{
	/* of `where` the end is used, of `told` the beginning: one page */
	static struct {
		struct join_site where;
		char told[JOIN_SITE_BYTES];
	} site;
	const struct params *p = r->params;
	struct ending end = {.kind = END_INTERRUPTED};
	const char *why;
	struct verdict v;
	pid_t keeper;

	prctl(PR_SET_DUMPABLE, 0); /* we may hold a password */
	why = r->ward->ops->objection(r->ward);
	if (why)
		return not_begun(p, RC_CONFIG,
		    "dlock takes no lock where it cannot stop the processes under it",
		    why);
	r->began = instant_now();
	process_reserve();
	join_site_find(&site.where, p);
	join_site_write(site.told, p->site.backend, &site.where.site);
	r->where = &site.where;
	r->site = site.told;
	for (;;) {
		if (!prepare_keeper(r))
			return not_begun(p, RC_SYSTEM,
			    "cannot get memory, random numbers or descriptors", NULL);
		keeper = process_fork();
		if (keeper < 0)
			return not_begun(p, RC_SYSTEM, "cannot start a process", NULL);
		if (keeper == 0)
			keeper_run(r);
		v = front_run(r, keeper);
		if (v.again) {
			r->again = true;
			leave_page(r);
			continue;
		}
		if (!v.signal || !signal_suspends(v.signal))
			return v;
		end.value = suspend_waiting(r, p, v.signal);
		if (end.value)
			return verdict_of(
			    p, &end, &(struct heard){.words = "", .where = ""});
	}
}

int
start_die_of(int sig)
{
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none); /* one core file, the command's, is enough */
	prctl(PR_SET_DUMPABLE, 0);
	signal(sig, SIG_DFL);
	raise(sig);
	loop_unblock(sig);
	return exit_of_signal(sig);
}

/* Ends without exit(3): nothing of ours is buffered, and exit(3) would cost as much as a fork. */
_Noreturn void
start_end(const struct params *p, const struct verdict *v)
{
	const struct metrics_run run = {v->name, v->status, v->waited, v->held};
	/* so that a run without a log touches no page of log.c */
	bool logs = p->show.log.kind != LOG_NOWHERE;

	/* this comes first: the rest may wait for its reader, and we may be killed meanwhile */
	if (logs)
		events_log_end(p, v);
	if (p->show.verbose && p->cmd == CMD_RUN && v->held)
		say("%s: waited %s for the lock, had it for %s", params_keys(p).text,
		    parse_span(v->waited).text, parse_span(v->held).text);
	if (*v->line && !v->muted)
		say_last("%s", v->line);
	if (p->show.status_fd >= 0)
		events_verdict(p, v);
	if (logs)
		log_end(p);
	if (p->show.metrics)
		metrics_add(p, &run); /* which may wait for a second */
	front_await_joined();
	_exit(v->signal ? start_die_of(v->signal) : v->status);
}
