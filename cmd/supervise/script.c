/*
 * script.c - the ward of `dlock hold`.
 *
 *	begin    nothing is to be done: it runs already
 *	start    the grant goes to the front, which delivers it
 *	look     has the front delivered it?  Has the process ended, or its time?
 *	stop     the process and all below it are signalled, as tree.h has it; no descriptor
 *	         tells of their end, so it is looked for
 *	tell     a loss is told on what is the process's stderr at that moment, if hold had the
 *	         same when it was started, or it is a terminal.  (A descriptor that a hold kept
 *	         would keep the script's pipes open.)
 */
#include "script.h"

#include "backends/common/libc.h"
#include "delivery.h"
#include "keeper_job.h"
#include "react.h"
#include "told.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TREE_AGAIN (20 * NS_PER_MS) /* pause between two looks at what it has left */
#define PROCESS_AGAIN \
	(100 * NS_PER_MS) /* and at a process of whose end no descriptor tells */
/* for a front of which /proc does not tell whether it is suspended */
#define DELIVERY_PATIENCE (3 * NS_PER_S)
#define DELIVERY_AGAIN (100 * NS_PER_MS) /* between two at a front that is to deliver */

const struct script *
script_of(const struct run *r)
{
	return r->ward->ops == &script_ops ? (const struct script *)r->ward : NULL;
}

/* ---- before front and keeper part ---- */

static const char *
script_objection(const struct ward *w)
{
	const char *why = tree_objection();

	return w->outsider ? why : NULL;
}

static bool
script_prepare(struct run *r)
{
	atomic_store(r->ward->delivery, UNDELIVERED);
	if (r->ward->outsider)
		r->ward->outsider->front = getpid();
	free(r->told.text);
	r->told.n = told_room(r);
	r->told.text = calloc(r->told.n, 1);
	return r->told.text != NULL;
}

/* ---- its stderr ---- */

static bool
is_its_stderr(const struct script *s, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return false;
	return isatty(fd) ||
	    (s->has_stderr && st.st_dev == s->errors.st_dev &&
		st.st_ino == s->errors.st_ino);
}

/*
 * A descriptor that is written to without waiting, or -1.  A file is shared with the script,
 * so that what it writes next comes behind our line and not over it, and so is a socket,
 * which nobody can open.  Where the kernel does not let us share, and for a pipe or a
 * terminal, which must not block us, there is one of our own.
 */
static int
open_stderr(const struct script *s)
{
	char path[40];
	struct stat st;
	int fd = -1;

	snprintf(path, sizeof path, "/proc/%d/fd/2", (int)s->outsider.pid);
	if (stat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode)))
		fd = libc_pidfd_getfd(s->outsider.fd, STDERR_FILENO);
	if (fd < 0)
		fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0 && (!is_its_stderr(s, fd) || outsider_has_ended(&s->outsider))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Nobody is told who has no lock (any more). */
static bool
script_tell(const struct run *r, const char *text)
{
	char line[sizeof((struct verdict *)0)->line + 16];
	int fd = delivery_receiver(r) ? open_stderr(script_of(r)) : -1, n;
	ssize_t sent;

	if (fd < 0)
		return true;
	n = snprintf(line, sizeof line, "dlock: %s\n", text);
	sent = send(fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0 && errno == ENOTSOCK)
		sent = write(fd, line, n);
	close(fd);
	return sent == n;
}

/* ---- begin, start ---- */

static const char *
script_begin(struct keeper *k, int *kept)
{
	const struct outsider *o = k->run->ward->outsider;

	k->root = o ? o->pid : 0;
	*kept = o ? o->fd : -1;
	return NULL;
}

/* From here on the process may do what needs the lock. */
static bool
script_start(struct keeper *k, const struct told *told)
{
	struct anchors anchors = k->lock.anchors;
	bool sent;

	k->run->ward->until = instant_after(instant_now(), k->params->steer.length);
	atomic_store(&k->page->exec, EXEC_CALLED);
	keeper_job_leave_directory(k);
	if (anchors.n > 0 && !join_outer_watch(&k->socket, &anchors))
		return false;
	sent = news_grant(
	    &k->news, &k->lock.grant, &anchors, k->lock.outer.watched.n > 0, told);
	if (anchors.n > 0)
		close(anchors.fds[anchors.n - 1]); /* the front has it */
	if (!sent)
		return false;
	atomic_store(&k->page->granted_at, instant_now());
	return true;
}

static void
script_dismiss(struct keeper *k)
{
	(void)k; /* it was there before us */
}

/* ---- look ---- */

/* Does the end of the process, or of its time, still change anything? */
static bool
awaits_end(const struct keeper *k)
{
	return !k->keep.tree.gone && k->keep.phase != PH_OVER;
}

static bool
awaits_tree(const struct keeper *k)
{
	return k->keep.phase == PH_HOLD && k->keep.tree.stopping && !k->keep.tree.empty;
}

static bool
is_undelivered(const struct keeper *k)
{
	return k->keep.phase == PH_HOLD && !k->keep.tree.gone &&
	    delivery_of(k->run) == UNDELIVERED;
}

/* No descriptor tells of its descendants' end, nor of its own without pidfd_open(2). */
static instant
script_await(const struct keeper *k, struct pollfd *set)
{
	const struct ward *w = k->run->ward;
	bool awaited = awaits_end(k), by_proc = w->outsider && w->outsider->by_proc;

	*set = (struct pollfd){
	    .fd = awaited && w->outsider && !by_proc ? w->outsider->fd : -1,
	    .events = POLLIN};
	if (is_undelivered(k))
		return instant_first(instant_now() + DELIVERY_AGAIN, w->until);
	if (awaits_tree(k))
		return instant_now() + TREE_AGAIN;
	if (awaited && by_proc)
		return instant_first(w->until, instant_now() + PROCESS_AGAIN);
	return awaited ? w->until : NEVER;
}

/*
 * A front that is suspended gives a grant to nobody: the lock goes back.  When it is continued
 * it finds that as the ending, and asks again.
 */
static void
check_delivery(struct keeper *k)
{
	int64_t since = instant_now() - k->keep.granted_at;
	bool late = instant_now() >= atomic_load(&k->page->begin_by);
	char state;

	if (!is_undelivered(k) || (since < DELIVERY_AGAIN && !late))
		return;
	state = late ? 'T' : process_state(getppid());
	if ((state != 'T' && (state != '\0' || since < DELIVERY_PATIENCE)) ||
	    !delivery_settle(k->run, WITHDRAWN))
		return;
	react(k, EV_TERMINATED, 0);
	react(k, EV_ENDED, SIGSTOP); /* as a wait status */
}

void
script_take_back(struct keeper *k)
{
	if (k->keep.phase == PH_HOLD && k->keep.ending.kind == END_NONE)
		atomic_store(&k->page->end.returned, true);
	react(k, EV_ENDED, 0);
}

/* It is not ours to reap: whether it lives is looked at. */
static void
check_end(struct keeper *k)
{
	const struct outsider *o = k->run->ward->outsider;

	if (awaits_end(k) && o && outsider_has_ended(o)) {
		if (k->keep.phase == PH_ASK)
			fault_set(&k->fault, RC_SYSTEM,
			    "process %d, for which the lock was to be held, has ended",
			    (int)o->pid);
		delivery_settle(k->run, WITHDRAWN);
		react(k, EV_ENDED, 0);
	}
	if (awaits_end(k) && instant_now() >= k->run->ward->until)
		script_take_back(k);
}

static void
check_tree(struct keeper *k)
{
	struct outsider *o;

	if (!awaits_tree(k))
		return;
	delivery_settle(k->run, WITHDRAWN);
	o = delivery_receiver(k->run);
	tree_look(o);
	if (!o || outsider_is_empty(o))
		react(k, EV_EMPTY, 0);
}

/* Nothing of that comes by the descriptor alone. */
static void
script_look(struct keeper *k, const struct pollfd *set)
{
	(void)set;
	check_delivery(k);
	check_end(k);
	check_tree(k);
}

/* ---- reap, signals, stop ---- */

/* The process is none of ours; a child is one of the backend's library. */
static void
script_reap(struct keeper *k)
{
	(void)k;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
}

static enum signal_state
script_state(const struct keeper *k)
{
	return delivery_of(k->run) == DELIVERED ? SIGNAL_DELIVERED : SIGNAL_UNDELIVERED;
}

/* A signal ends only a hold that is not delivered yet, or is for nobody. */
static void
script_signal(struct keeper *k, enum signal_deed deed, const struct signal_case *c)
{
	if (deed != DEED_END_HOLD)
		return;
	delivery_settle(k->run, WITHDRAWN);
	if (!delivery_receiver(k->run))
		react(k, EV_ENDED, c->sig); /* as a wait status: it died of the signal */
}

/* tree_signal() halts all of it first, and so has seen who is there. */
static void
script_stop(struct keeper *k, const struct aim *aim)
{
	(void)k;
	tree_signal(getpid(), aim);
}

const struct ward_ops script_ops = {
    .objection = script_objection,
    .prepare = script_prepare,
    .tell = script_tell,
    .begin = script_begin,
    .start = script_start,
    .dismiss = script_dismiss,
    .await = script_await,
    .look = script_look,
    .reap = script_reap,
    .state = script_state,
    .signal = script_signal,
    .stop = script_stop,
};
