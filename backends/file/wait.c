/*
 * wait.c - waits for a byte of a lock file, or until nobody is before our place in its line,
 * and shows meanwhile who is.
 */
#include "file.h"
#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
	/*
	 * ms between looks at the permits or the freeze, where the kernel does not tell of
	 * what becomes of the file
	 */
	PAUSE_MOST = 250,
};

#define FROZEN_LOOK (2 * NS_PER_S)

/* ---- what is to be seen meanwhile ---- */

/*
 * Shows who holds the lock, and who is before us.  Where nobody holds it, the first in
 * line is just about to, unless the lock is frozen; nobody shows us more when he does.
 */
void
file_show_line(struct file *f)
{
	struct holding *seen = &f->base.host->seen.holding;
	int64_t first, now = file_now();
	struct block who = {.next = 1};
	struct line l;

	(void)line_read(&l, f->fd, f->place.ticket, f->place.plain, now);
	f->frozen = l.frozen;
	f->base.host->seen.position = line_position(&l, &first);
	*seen = (struct holding){.frozen = l.frozen};
	if (l.n > 0) {
		line_who(&l, &l.holders[0], &who);
		seen->kind = line_kind(l.holders[0].byte);
		seen->holders = l.n > LINE_HOLDERS ? 0 : (unsigned)l.n;
	} else if (l.frozen) {
		who = l.freeze;
	} else if (first) {
		seen->kind = line_kind(first);
		seen->holders = 1;
		f->base.host->seen.position -= f->base.host->seen.position > 0;
	}
	seen->limit = seen->kind == KIND_LIMIT ? l.limit : 0;
	seen->held = block_age(&who, now);
	snprintf(seen->record, sizeof seen->record, "%s", who.record);
	line_free(&l);
}

/* The microseconds until the freeze ends; 0: it has, or the file is another one by now. */
static int64_t
frozen_for(const struct file *f)
{
	struct block h, freeze;
	int64_t now = file_now();

	if (block_read(f->fd, BLOCK_HEADER, &h) != 1 ||
	    !block_is_frozen(f->fd, &h, now, &freeze))
		return 0;
	return freeze.freeze - now;
}

/* ---- waiting for bytes ---- */

/* Why a byte that is not taken could not be locked. */
static enum rc
cannot_lock(const struct file *f, struct fault *fault)
{
	if (errno == ENOLCK)
		return directory_failed(&f->dir,
		    "the kernel gives no lock (on a network file system: its lock service must run)",
		    fault);
	return fault_set(fault, RC_CONFIG, "%s: its file system cannot lock: %s",
	    f->dir.where, strerror(errno));
}

/*
 * What became of a wait that was not for nothing: of RC_OK, whoever has called thinks
 * himself.
 */
static enum rc
end_wait(const struct file *f, enum woke woke, struct fault *fault)
{
	if (woke == WOKE_TIMEOUT)
		return fault_set(fault, RC_BUSY, "%s: still held", f->dir.where);
	return woke == WOKE_STOP ? RC_STOP : RC_OK;
}

/*
 * Nothing wakes who is not next in line when the lock is thawed: as long as it is shown
 * as frozen, he looks.  Two short reads every two seconds.
 */
static enum woke
wait_and_look(struct file *f, int done, instant until)
{
	while (f->frozen) {
		instant next = instant_first(instant_now() + FROZEN_LOOK, until);
		enum woke woke = f->base.host->wait(f->base.host, done, POLLIN, next);

		if (woke != WOKE_TIMEOUT || instant_now() >= until)
			return woke;
		if (frozen_for(f) == 0)
			file_show_line(f);
	}
	return f->base.host->wait(f->base.host, done, POLLIN, until);
}

/*
 * Waits for bytes that are taken, inside host->wait, and locks them.  RC_AGAIN:
 * they may be free now, try.
 *
 * A wait for byte 0 that comes too late is kept for the next call, which may be a
 * second release.  Were it abandoned, its thread would give back the byte when
 * it gets it, and with it that of the next wait: both are of one open file.
 */
static enum rc
await_taken(struct file *f, short type, struct span s, instant until, struct fault *fault)
{
	struct ticket_wait *w = f->entering ? f->entering : tickets_wait(f->fd, type, s);
	enum woke woke;
	enum rc rc;
	bool got;

	if (!w)
		return directory_failed(&f->dir, "cannot start a thread", fault);
	woke = wait_and_look(f, tickets_done(w), until);
	rc = end_wait(f, woke, fault);
	f->entering = rc != RC_OK && s.from == META ? w : NULL;
	got = !f->entering && tickets_waited(w);
	return rc == RC_OK && !got ? RC_AGAIN : rc;
}

enum rc
file_await_byte(
    struct file *f, short type, int64_t byte, instant until, struct fault *fault)
{
	enum rc rc = RC_AGAIN;

	while (rc == RC_AGAIN && tickets_lock(f->fd, type, byte) != 0) {
		if (errno != EAGAIN)
			return cannot_lock(f, fault);
		rc = await_taken(f, type, (struct span){byte, byte + 1}, until, fault);
	}
	return rc == RC_AGAIN ? RC_OK : rc;
}

/* ---- waiting in line ---- */

/*
 * How long to pause before the next look; 0: what was waited for is there, which is a permit
 * of ours, or the end of a freeze, or of a file that is another one by now; -1: that cannot be
 * known.
 */
static int64_t
look_and_pause(struct file *f, int64_t pause)
{
	struct fault ignored;
	int64_t us;

	if (place_is_waiting(&f->place)) {
		int got = place_take_permit(&f->place);

		return got > 0 ? 0 : got < 0 ? -1 : pause;
	}
	us = frozen_for(f);
	if (directory_look(&f->dir, f->name, f->fd, &ignored) == RC_LOST)
		return 0;
	/* a second at most, since the clock may be set */
	return us > NS_PER_S / 1000 ? NS_PER_S : us * 1000;
}

/*
 * Waits for what no lock of the kernel's tells.  We look after each wake-up, and
 * then after 1, 2, 4, ... ms, as place.h says.
 */
static enum rc
await_wakeup(struct file *f, instant until, struct fault *fault)
{
	int watch = tickets_watch(f->fd);
	int64_t pause = NS_PER_MS, left;
	enum rc rc = RC_OK;

	while (rc == RC_OK && (left = look_and_pause(f, pause)) > 0) {
		enum woke woke;

		if (watch < 0)
			left = instant_first(left, PAUSE_MOST * NS_PER_MS);
		if (f->frozen)
			file_show_line(f);
		woke = f->base.host->wait(f->base.host, watch, POLLIN,
		    instant_first(instant_after(instant_now(), left), until));
		if (woke == WOKE_READY)
			tickets_watched(watch);
		pause = woke == WOKE_READY ? NS_PER_MS
		    : pause > NEVER / 2    ? NEVER
					   : 2 * pause;
		if (woke == WOKE_STOP || instant_now() >= until)
			rc = end_wait(f, woke, fault);
	}
	tickets_unwatch(watch);
	return left < 0 ? cannot_lock(f, fault) : rc;
}

enum rc
file_await_place(struct file *f, instant until, struct fault *fault)
{
	struct place *p = &f->place;
	bool frozen = f->frozen;

	while (place_is_waiting(p) || frozen) {
		enum rc rc;

		file_show_line(f);
		if (!place_is_waiting(p) || p->any) {
			rc = await_wakeup(f, until, fault);
		} else {
			rc = await_taken(f, F_RDLCK, p->before, until, fault);
			if (rc == RC_OK)
				tickets_unlock(f->fd, p->before);
			rc = rc == RC_AGAIN ? RC_OK : rc;
		}
		if (rc == RC_BUSY)
			file_show_line(f); /* who has it by now */
		if (rc != RC_OK)
			return rc;
		frozen = frozen && place_is_waiting(p);
		if (!place_has_joined(p) || p->permit >= 0)
			return RC_OK;
		if (place_look(p) != 0)
			return directory_failed(
			    &f->dir, "cannot look at the queue", fault);
	}
	return RC_OK;
}
