/*
 * witness.c - tells a signal to the process group from one to the front alone: see witness.h.
 *
 *	begin    the front forks the witness, which stays in its group with all signals blocked
 *	ask      a signal has come to the front: it asks whether the witness has got it, too
 *	answer   the witness takes what is pending, and says whether that signal is among it
 *	end      the front kills it
 */
#include "witness.h"

#include "backends/common/libc.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "group-witness"

/* For its answer: it may have to wait for a processor.  Meanwhile the front sees to nothing else. */
#define ANSWER_PATIENCE (300 * NS_PER_MS)
#define ANSWER_LEAST (50 * NS_PER_MS)

struct witness_question {
	int sig;
	pid_t sender;
	/* no question: what would cancel `sig` has come, but the front has read it otherwise */
	bool forget;
};

enum answer { NOT_GOT, GOT, CANCELLED /* it, if it was got */ };

/* ---- the process ---- */

/* Our own words, which are what ps(1) and pkill(1) -f see, become its name. */
static void
hide_words(void)
{
	char some[4096], *words = program_invocation_name;
	int fd = open("/proc/self/cmdline", O_RDONLY);
	size_t length = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, some, sizeof some)) > 0)
		length += n;
	close(fd);
	memset(words, 0, length);
	if (length > sizeof NAME)
		memcpy(words, NAME, sizeof NAME);
	prctl(PR_SET_NAME, NAME);
}

/*
 * Signals that have come and were not asked for yet: of each how often, and from whom the last
 * one.
 */
struct arrivals {
	unsigned came[_NSIG];
	pid_t from[_NSIG];
};

/* Has one come that cancels this one?  The front may have read it before it was cancelled. */
static bool
is_cancelled(const struct arrivals *r, int sig)
{
	if (sig == SIGCONT)
		return r->came[SIGTSTP] || r->came[SIGTTIN] || r->came[SIGTTOU];
	return signal_suspends(sig) && r->came[SIGCONT];
}

/* As in the front: of the older signals one is kept, and CONT and those that suspend cancel each other. */
static void
note(struct arrivals *r, const siginfo_t *info)
{
	int sig = info->si_signo;

	if (sig == SIGCONT)
		r->came[SIGTSTP] = r->came[SIGTTIN] = r->came[SIGTTOU] = 0;
	if (signal_suspends(sig))
		r->came[SIGCONT] = 0;
	if (sig < SIGRTMIN || r->from[sig] != info->si_pid)
		r->came[sig] = 0;
	r->came[sig]++;
	r->from[sig] = info->si_pid;
}

static void
forget_cancelling(struct arrivals *r, int sig)
{
	if (sig == SIGCONT)
		r->came[SIGTSTP] = r->came[SIGTTIN] = r->came[SIGTTOU] = 0;
	else
		r->came[SIGCONT] = 0;
}

static char
answer_to(struct arrivals *r, const struct witness_question *q)
{
	bool got = r->came[q->sig] && r->from[q->sig] == q->sender;

	if (r->came[q->sig])
		r->came[q->sig]--;
	return is_cancelled(r, q->sig) ? CANCELLED : got ? GOT : NOT_GOT;
}

static _Noreturn void
answer_questions(void)
{
	static const struct timespec at_once;
	struct arrivals r = {0};
	struct witness_question q;
	siginfo_t info;
	sigset_t all;
	char answer;

	libc_sigfillset(&all);
	while (read(STDIN_FILENO, &q, sizeof q) == sizeof q) {
		while (sigtimedwait(&all, &info, &at_once) > 0)
			note(&r, &info);
		if (q.forget) {
			forget_cancelling(&r, q.sig);
			continue;
		}
		answer = answer_to(&r, &q);
		if (write(STDIN_FILENO, &answer, 1) != 1)
			break;
	}
	_exit(0);
}

/* ---- in the front ---- */

void
witness_begin(struct witness *w)
{
	pid_t front = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return;
	w->pid = process_fork();
	if (w->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDIN_FILENO);
		libc_close_range(1, ~0U);
		hide_words();
		if (getppid() == front)
			answer_questions();
		_exit(0);
	}
	close(ends[1]);
	w->link = ends[0];
	if (w->pid < 0) {
		close(w->link);
		w->pid = 0;
	}
}

void
witness_reaped(struct witness *w, pid_t child)
{
	if (!w->pid || child != w->pid)
		return;
	close(w->link);
	w->pid = 0;
}

void
witness_end(struct witness *w)
{
	if (!w->pid)
		return;
	kill(w->pid, SIGKILL);
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	witness_reaped(w, w->pid);
}

/*
 * There is no such process as setpgid(2) is asked for, so that it changes nothing.  But it waits
 * until the kernel has sent to all of a group what it is sending to one: both need the list of
 * processes.
 */
static void
await_group(void)
{
	setpgid(INT_MAX, INT_MAX);
}

/* Is a signal pending here that cancels this one? */
static bool
is_cancelled_here(int sig)
{
	sigset_t pending;

	await_group();
	if (sigpending(&pending) != 0)
		return false;
	if (sig == SIGCONT)
		return sigismember(&pending, SIGTSTP) == 1 ||
		    sigismember(&pending, SIGTTIN) == 1 ||
		    sigismember(&pending, SIGTTOU) == 1;
	return sigismember(&pending, SIGCONT) == 1;
}

/*
 * The witness has one that cancels this one, and cannot tell which came first.  We can: if it is
 * later we have yet to read it.  Otherwise it has suspended or continued us already.
 */
static enum signal_reach
reach_if_cancelled(struct witness *w, struct witness_question q)
{
	if (is_cancelled_here(q.sig))
		return REACH_GROUP;
	q.forget = true;
	send(w->link, &q, sizeof q, MSG_NOSIGNAL);
	return REACH_US;
}

enum signal_reach
witness_ask(struct witness *w, int sig, pid_t sender, instant until)
{
	const struct witness_question q = {.sig = sig, .sender = sender};
	int64_t left = instant_first(until - instant_now(), ANSWER_PATIENCE);
	int ms = (int)((left > ANSWER_LEAST ? left : ANSWER_LEAST) / NS_PER_MS);
	struct pollfd set = {.fd = w->link, .events = POLLIN};
	char answer;

	if (!w->pid)
		return REACH_UNKNOWN;
	await_group();
	if (send(w->link, &q, sizeof q, MSG_NOSIGNAL) == sizeof q &&
	    poll(&set, 1, ms) > 0 && read(w->link, &answer, 1) == 1)
		return answer == CANCELLED ? reach_if_cancelled(w, q)
		    : answer == GOT        ? REACH_GROUP
					   : REACH_US;
	witness_end(w);
	return REACH_UNKNOWN;
}
