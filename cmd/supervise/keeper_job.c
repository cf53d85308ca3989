/* keeper_job.c - the keeper beside a shell's job. */
#include "keeper_job.h"

#include "guard.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define LEAVE_LATER (50 * NS_PER_MS) /* what ends within that time is never suspended */

/* ---- out of the job ---- */

void
keeper_job_leave_group(struct keeper *k)
{
	bool tty = k->run->origin->has_tty, alone;

	k->job.group = getpgrp();
	/* 0: it is of an outer pid namespace, and there would be no way back to it */
	alone = (k->run->ward->is_hold || (tty && k->job.group == 0)) && setsid() >= 0;
	k->job.leave_at = alone || !tty ? NEVER : instant_now() + LEAVE_LATER;
	if (!alone)
		setpgid(0, 0);
}

/* The leader of a group cannot begin a session: for a moment we are in the front's once more. */
void
keeper_job_leave_session(struct keeper *k)
{
	if (k->job.leave_at == NEVER)
		return;
	k->job.leave_at = NEVER;
	setpgid(0, k->job.group);
	if (setsid() < 0)
		setpgid(0, 0);
}

void
keeper_job_leave_directory(struct keeper *k)
{
	if (chdir("/") != 0)
		news_trace(&k->news, "cannot leave the working directory");
}

/* ---- a front that is suspended ---- */

void
keeper_job_wake_front(const struct keeper *k)
{
	if (k->news.link >= 0)
		kill(getppid(), SIGCONT);
}

void
keeper_job_drop_guard(struct keeper *k)
{
	guard_refuse(k->job.guard[0]);
	close(k->job.guard[1]);
	k->job.guard[0] = k->job.guard[1] = -1;
}

/*
 * The kernel continues the front when the other end, which we alone have, is closed.  The end
 * that tells it so waits in the front's socket, as open as if it had been received.
 */
static void
set_guard(struct keeper *k)
{
	struct anchors sent = {.n = 1};

	if (pipe2(k->job.guard, O_CLOEXEC | O_NONBLOCK) != 0) {
		k->job.guard[0] = k->job.guard[1] = -1;
		return;
	}
	sent.fds[0] = k->job.guard[0];
	fcntl(sent.fds[0], F_SETOWN, getppid());
	fcntl(sent.fds[0], F_SETSIG, SIGCONT);
	fcntl(sent.fds[0], F_SETFL, O_ASYNC | O_NONBLOCK);
	if (!news_message(&k->news, &(struct msg){.kind = MSG_GUARD}, &sent, NULL))
		keeper_job_drop_guard(k);
}

/* The front has gone on meanwhile, and has read of it. */
static bool
is_refused(int guard)
{
	return !(fcntl(guard, F_GETFL) & O_ASYNC);
}

/*
 * It is looked at when we wake, which we do every third of a lease at least, but not more often
 * than needed.  While the link is open the front is our parent.  Where /proc hides it (hidepid), it
 * gets a guard at each look, until it leaves one unread.
 */
void
keeper_job_look(struct keeper *k)
{
	bool wanted = k->keep.phase == PH_HOLD && k->news.link >= 0 &&
	    !atomic_load(&k->page->front.guarded);
	char state = wanted ? process_state(getppid()) : 'S';
	bool sleeps = state == 'T' || (state == '\0' && link_is_unread(k->news.link));

	k->job.look_at = instant_now() + k->params->terms.ttl / 4;
	if (k->job.guard[0] >= 0 && (!sleeps || is_refused(k->job.guard[0])))
		keeper_job_drop_guard(k);
	if (k->job.guard[0] < 0 && (sleeps || state == '\0'))
		set_guard(k);
}
