/*
 * file.c - locks of one host, kept by the kernel in files of one directory.
 *
 *  1. A key is one file.  Processes stand in line on it by tickets, which are
 *     byte locks (tickets.h): the kernel keeps them, and frees them when the
 *     last process that has the file open is gone.
 *  2. Who is granted what, and who waits for whom, is decided by the rules of
 *     place.h, from the kernel's locks alone.
 *  3. The next number in the file is a hint, since a file can be truncated
 *     and a disk be full.
 *  4. The file's first line (block.h) is written with byte 0 locked, in one
 *     write.  Token = max(previous + 1, microseconds since the epoch): it
 *     grows even if the file was deleted or what it said is lost.
 *  5. The file is never deleted.  Should somebody else do it, a lock on the
 *     orphan excludes nobody: each decision MUST be followed by a look whether
 *     the name still leads to our file; a holder that finds it does not has lost.
 *  6. The lease is LEASE_FOREVER: the kernel takes it back when we die.
 *  7. What --once and --cooldown ask for lies in a directory beside it (runs.h).
 *  8. A run that is about to take the lock reads with the header whether it is
 *     frozen.  No lock of the kernel's tells of a thaw: so the first in line looks
 *     once a second, and whenever the file is written or somebody closes it.
 *  9. A mark, which asks the holder to give the lock up, lies behind his block
 *     (block.h).  His renewal reads it.
 */
#include "file.h"
#include "runs.h"

#include "backends/common/alloc.h"
#include "backends/common/append.h"
#include "backends/common/encode.h"
#include "backends/common/identity.h"
#include "backends/common/job.h"
#include "backends/common/refuse.h"
#include "backends/common/setting.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* where the kernel does not tell of what becomes of the file */
#define PAUSE_MOST (250 * NS_PER_MS)
#define FROZEN_LOOK (2 * NS_PER_S)

struct file *
file_of(struct store *s)
{
	return (struct file *)store_of(s, &file_backend);
}

/* ---- the file ---- */

void
file_name(char out[NAME_BYTES], const char *key, const char *suffix)
{
	char encoded[ENCODED_BYTES];
	const char *rest = encoded;

	encode_key(encoded, sizeof encoded, key);
	for (; strlen(rest) > NAME_CHUNK; rest += NAME_CHUNK) {
		out = append_text(out, out + NAME_CHUNK + 1, rest);
		out = append_text(out, out + 3, "+/");
	}
	out = append_text(out, out + NAME_CHUNK + 1, rest);
	append_text(out, out + 8, suffix);
}

static void
forget_entering(struct file *f)
{
	if (f->entering)
		tickets_waited(f->entering);
	f->entering = NULL;
}

void
file_close_lock(struct file *f)
{
	forget_entering(f);
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

enum rc
file_open_all(struct file *f, struct fault *fault)
{
	enum rc rc = directory_open(&f->dir, f->use, fault);

	file_close_lock(f);
	if (rc == RC_OK)
		rc = directory_open_file(&f->dir, f->name, f->use, &f->fd, fault);
	if (f->claim)
		place_init(&f->place, f->fd, f->claim->kind, f->claim->limit);
	return rc;
}

enum rc
file_write(struct file *f, const struct block *h, off_t at, struct fault *fault)
{
	return block_write(f->fd, at, h) == 0
	    ? RC_OK
	    : directory_failed(&f->dir, "cannot write the lock file", fault);
}

/* ---- waiting for bytes ---- */

/* The microseconds until the freeze ends; 0: it has, or the file is another one by now. */
static int64_t
frozen_for(const struct file *f)
{
	struct block h, freeze;
	int64_t now = instant_epoch();

	if (block_read(f->fd, BLOCK_HEADER, &h) != 1 ||
	    !block_is_frozen(f->fd, &h, now, &freeze))
		return 0;
	return freeze.freeze - now;
}

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

/* What became of a wait; RC_OK: that is to be found out. */
static enum rc
end_wait(const struct file *f, enum woke woke, struct fault *fault)
{
	if (woke == WOKE_TIMEOUT)
		return fault_set(fault, RC_BUSY, "%s: still held", f->dir.where);
	return woke == WOKE_STOP ? RC_STOP : RC_OK;
}

/*
 * Waits for bytes that are taken, inside host->wait, and locks them.  RC_AGAIN:
 * they may be free now, try.
 *
 * Nothing wakes a waiter that is not next in line when the lock is thawed: as long as it is
 * shown as frozen, two short reads every two seconds find that out.
 *
 * A wait for byte 0 that comes too late is kept for the next call, which may be a
 * second release.  Were it abandoned, its thread would give back the byte when
 * it gets it, and with it that of the next wait: both are of one open file.
 */
static enum rc
await_taken(struct file *f, short type, struct span s, instant until, struct fault *fault)
{
	struct ticket_wait *w = f->entering ? f->entering
					    : tickets_wait(f->fd, false, type, s);
	struct host *host = f->base.host;
	enum woke woke;
	instant next;
	enum rc rc;
	bool got;

	if (!w)
		return directory_failed(&f->dir, "cannot start a thread", fault);
	do {
		next = f->frozen ? instant_now() + FROZEN_LOOK : NEVER;
		woke = host->wait(
		    host, tickets_done(w), POLLIN, instant_first(next, until));
		if (woke == WOKE_TIMEOUT && f->frozen && frozen_for(f) == 0)
			file_show_line(f);
	} while (woke == WOKE_TIMEOUT && next < until);
	rc = end_wait(f, woke, fault);
	f->entering = rc != RC_OK && s.from == META ? w : NULL;
	got = !f->entering && tickets_waited(w);
	return rc == RC_OK && !got ? RC_AGAIN : rc;
}

/*
 * Locks a byte, waiting if it is taken.  A wait for byte 0 that comes too late (RC_BUSY,
 * RC_STOP) goes on until the next one for it.
 */
static enum rc
await_byte(struct file *f, short type, int64_t byte, instant until, struct fault *fault)
{
	while (tickets_lock(f->fd, type, byte) != 0) {
		enum rc rc;

		if (errno != EAGAIN)
			return cannot_lock(f, fault);
		rc = await_taken(f, type, (struct span){byte, byte + 1}, until, fault);
		if (rc != RC_AGAIN)
			return rc;
	}
	return RC_OK;
}

enum rc
file_enter(struct file *f, struct block *h, instant until, struct fault *fault)
{
	int got;

	for (;;) {
		enum rc rc = await_byte(f, F_WRLCK, META, until, fault);

		if (rc == RC_OK)
			rc = directory_look(&f->dir, f->name, f->fd, fault);
		if (rc == RC_OK)
			break;
		if (rc != RC_LOST)
			return rc;
		if (instant_now() >= until)
			return RC_AGAIN; /* whoever does this may do it for ever */
		if (f->base.host->wait(f->base.host, -1, 0, instant_now() + NS_PER_MS) ==
		    WOKE_STOP)
			return RC_STOP;
		rc = file_open_all(f, fault);
		if (rc != RC_OK)
			return rc;
	}
	got = block_read(f->fd, BLOCK_HEADER, h);
	if (got < 0)
		return directory_failed(&f->dir, "cannot read the lock file", fault);
	return got
	    ? RC_OK
	    : fault_set(fault, RC_PROTOCOL,
		  "%s: %.60s is not a lock file of dlock: remove it if nobody needs it",
		  f->dir.where, f->name);
}

void
file_leave(struct file *f)
{
	if (f->fd >= 0)
		tickets_unlock(f->fd, (struct span){META, META + 1});
}

/* ---- the decisions, each with byte 0 locked ---- */

/* Fills in that this run has locked the byte, since now. */
static void
write_who(const struct file *f, struct block *h, int64_t byte)
{
	h->granted = instant_epoch();
	h->byte = byte;
	append_text(h->owner, h->owner + sizeof h->owner, f->claim->owner);
	append_text(h->record, h->record + sizeof h->record, f->claim->record);
}

/* Takes the lock, since nothing is before us: writes down that it is ours. */
static enum rc
file_take(struct file *f, struct block *h, struct grant *g, struct fault *fault)
{
	struct place *p = &f->place;
	enum rc rc;

	write_who(f, h, place_held_byte(p));
	h->token = block_next_token(h, h->granted);
	f->hold.at = kind_is_exclusive(p->kind) ? BLOCK_HEADER
						: block_choose(f->fd, h->byte);
	/* a token that is not kept might be dealt again */
	rc = file_write(f, h, BLOCK_HEADER, fault);
	if (rc == RC_OK && f->hold.at != BLOCK_HEADER)
		rc = file_write(f, h, f->hold.at, fault);
	if (rc != RC_OK)
		return rc;
	place_granted(p);
	f->hold.ours = true;
	f->hold.granted = h->granted;
	f->hold.token = h->token;
	*g = (struct grant){.token = h->token,
	    .slot = p->permit < 0 ? 0 : (unsigned)p->permit,
	    .sent = instant_now(),
	    .lease = LEASE_FOREVER,
	    .anchor = f->fd};
	return RC_OK;
}

/* Takes a number, if there is one; or a permit, if one is free. */
static enum rc
join_line(struct file *f, struct block *h, instant until, struct fault *fault)
{
	struct place *p = &f->place;
	enum lock_kind other;
	unsigned limit = 0;
	int refused = place_refuses(p, &other, &limit);
	int64_t number = -1;
	enum rc rc;

	if (refused > 0)
		return refuse_kind(fault, f->dir.where, other, limit, f->claim);
	if (refused == 0)
		number = place_join(p, h->next);
	if (number < 0)
		return directory_failed(&f->dir, "cannot look at the queue", fault);
	if (f->frozen)
		place_give_permit_back(p);
	if ((place_is_waiting(p) || f->frozen) && !until) {
		file_show_line(f);
		f->base.host->seen.position = 0; /* we are in no line */
		return fault_set(fault, RC_BUSY, "%s: %s", f->dir.where,
		    f->frozen ? "frozen" : "held");
	}
	if (p->permit >= 0 || number >= NUMBER_LIMIT)
		return RC_OK;
	rc = await_byte(
	    f, F_WRLCK, place_byte(p, number), until ? until : instant_now(), fault);
	if (rc != RC_OK)
		return rc;
	p->ticket = number;
	h->next = number + 1;
	return RC_OK;
}

/*
 * Joins the line, unless we have; takes the lock, if nothing is in the way.  A run that has just
 * joined and must wait writes down the next number, and then, for people, that it waits.  It waits
 * also where the latter cannot be written.
 */
static enum rc
take_or_stay(
    struct file *f, struct block *h, instant until, struct grant *g, struct fault *fault)
{
	struct place *p = &f->place;
	struct block who = {.next = 1};
	bool joined = place_has_joined(p);
	enum rc rc = joined ? RC_OK : join_line(f, h, until, fault);

	if (rc != RC_OK || !place_has_joined(p))
		return rc;
	if (!place_is_waiting(p) && !f->frozen)
		return file_take(f, h, g, fault);
	place_give_permit_back(p);
	if (joined)
		return RC_OK;
	rc = file_write(f, h, BLOCK_HEADER, fault);
	write_who(f, &who, place_byte(p, p->ticket));
	if (rc == RC_OK)
		(void)block_write(f->fd, block_choose(f->fd, who.byte), &who);
	return rc;
}

static enum rc
file_decide(struct file *f, instant until, struct grant *g, struct fault *fault)
{
	const struct job *job = &f->claim->job;
	struct block h = {.next = 1}, freeze;
	enum rc rc = file_enter(f, &h, until ? until : instant_now() + NS_PER_S, fault);

	if (rc == RC_OK && (job_is_wanted(job) || job->remember == REMEMBER_SURELY))
		rc = runs_check(
		    &f->dir, f->runs, f->base.host, job, instant_epoch(), fault);
	if (rc == RC_DONE)
		place_leave(&f->place);
	if (rc == RC_OK) {
		f->frozen = block_is_frozen(f->fd, &h, instant_epoch(), &freeze);
		h.freeze = f->frozen;
		rc = take_or_stay(f, &h, until, g, fault);
	}
	file_leave(f);
	return rc;
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
			left = instant_first(left, PAUSE_MOST);
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

/*
 * Waits until nothing is before us, nor is the lock frozen.  Without a ticket, for want of
 * a number above the last one, until that one is gone.
 */
static enum rc
await_place(struct file *f, instant until, struct fault *fault)
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
		if (!place_has_joined(p))
			return RC_OK;
		if (p->permit < 0 && place_look(p) != 0)
			return directory_failed(
			    &f->dir, "cannot look at the queue", fault);
		if (p->permit >= 0) /* during a freeze it is to be given back */
			return RC_OK;
	}
	return RC_OK;
}

/* ---- the calls ---- */

static enum rc
set_path(struct store *s, const char *value, struct fault *fault)
{
	(void)fault;
	file_of(s)->path = value;
	return RC_OK;
}

static enum rc
set_lock(struct store *s, const char *value, struct fault *fault)
{
	(void)fault;
	file_of(s)->lock = value;
	return RC_OK;
}

static const struct setting_row settings[] = {
    {"name", "FILE", "the same as path", set_path},
    {"path", "FILE", "take the lock that another program takes on this file", set_path},
    {"lock", "flock|fcntl", "with path: as which of the two (default: flock)", set_lock},
    {NULL, NULL, NULL, NULL},
};

static enum rc
file_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *fault)
{
	struct file *f = alloc_store(sizeof *f);
	enum rc rc;

	if (!f)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	f->base = (struct store){&file_backend, host, f->dir.where,
	    CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE};
	f->fd = -1;
	place_init(&f->place, -1, KIND_EXCLUSIVE, 0);
	rc = directory_init(&f->dir, site->url, fault);
	if (rc == RC_OK && site->nsettings > 0)
		rc = setting_read(&f->base, site, fault);
	if (rc == RC_OK && !f->path && !f->lock) {
		*ret = &f->base;
		return RC_OK;
	}
	if (rc == RC_OK)
		rc = joined_open(ret, host, f->path, f->lock, fault);
	alloc_free_store(f);
	return rc;
}

static enum rc
file_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *fault)
{
	struct file *f = file_of(s);
	enum rc rc = RC_OK;

	f->claim = claim;
	f->use = DIRECTORY_MAKE;
	file_name(f->name, claim->key, ".lock");
	file_name(f->runs, claim->key, ".runs/");
	if (claim->job.per)
		rc = job_name_period(&claim->job, instant_epoch(), f->base.where, fault);
	if (rc == RC_OK)
		rc = file_open_all(f, fault);
	if (rc == RC_OK && f->dir.is_default)
		directory_notice_elsewhere(
		    &f->dir, f->name, claim->key, &f->base.host->notice);
	while (rc == RC_OK && !f->hold.ours) {
		rc = file_decide(f, until, g, fault);
		if (rc == RC_OK && !f->hold.ours)
			rc = await_place(f, until, fault);
	}
	return rc;
}

static enum rc
file_renew(struct store *s, instant until, struct grant *g, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block mark;
	enum rc rc;

	(void)until;
	g->sent = instant_now();
	g->lease = LEASE_FOREVER;
	rc = directory_look(&f->dir, f->name, f->fd, fault);
	if (rc == RC_OK && block_is_marked(f->fd, f->hold.at, f->hold.token, &mark))
		rc = refuse_broken(
		    f->base.host, fault, RC_REVOKED, f->base.where, mark.record);
	return rc;
}

/* A run that cannot be written down keeps nobody waiting: it counts as one that never was. */
static void
write_down(struct file *f, struct outcome o)
{
	const struct job *job = &f->claim->job;
	enum run_use use = job_is_shown(job) ? RUN_SHOWN
	    : job->no_retry && o.ended       ? RUN_FINAL
					     : RUN_COUNTS;
	struct run run = {.begin = f->hold.granted,
	    .end = instant_epoch(),
	    .token = f->hold.token,
	    .status = o.status};
	struct fault why;

	if (job->once)
		encode_key(run.id, sizeof run.id, job->once);
	snprintf(run.record, sizeof run.record, "%s", f->claim->record);
	if (runs_remember(&f->dir, f->runs, &run, use, &why) == RC_OK)
		return;
	if (use == RUN_SHOWN && job->remember == REMEMBER_SURELY)
		fault_set(&f->base.host->notice, RC_OK,
		    "this run under %.100s is not recorded, so status will not show it: %.400s",
		    f->claim->key, why.text);
	else if (use != RUN_SHOWN)
		fault_set(&f->base.host->notice, RC_OK,
		    "this run under %.100s is not recorded, so the job may be run again: %.400s",
		    f->claim->key, why.text);
}

/* With RC_AGAIN and RC_STOP the lock is still ours: its run could not be written down yet. */
static enum rc
file_release(struct store *s, struct outcome o, instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	bool job = f->hold.ours && o.status >= 0 &&
	    (job_is_wanted(&f->claim->job) || f->claim->job.remember);
	enum rc rc = RC_OK;

	if (job)
		rc = await_byte(f, F_WRLCK, META, until, fault);
	if (rc == RC_BUSY || rc == RC_STOP)
		return rc == RC_BUSY ? RC_AGAIN : rc;
	if (rc == RC_OK && f->hold.ours)
		rc = directory_look(&f->dir, f->name, f->fd, fault);
	if (rc == RC_AGAIN && job)
		return rc;
	if (rc == RC_OK && job)
		write_down(f, o);
	forget_entering(f);
	place_leave(&f->place);
	f->hold.ours = false;
	return rc;
}

/* Names the directory itself, since several paths may lead to it. */
static enum rc
file_identify(struct store *s, struct identity *id, struct fault *fault)
{
	struct directory *d = &file_of(s)->dir;
	bool opened = d->fd < 0;

	if (opened && directory_open(d, DIRECTORY_LOOK, fault) != RC_OK) {
		identity_add(id, "directory", d->path);
		return RC_OK;
	}
	identity_number(id, "device", d->dev);
	identity_number(id, "inode", d->ino);
	if (opened)
		directory_close(d);
	return RC_OK;
}

static void
file_close(struct store *s)
{
	struct file *f = s ? file_of(s) : NULL;

	if (!f)
		return;
	file_close_lock(f);
	directory_close(&f->dir);
	alloc_free_store(f);
}

const struct backend file_backend = {
    .name = "file",
    .schemes = (const char *const[]){"file", NULL},
    .settings = settings,
    .url_help = "file:///DIR (default: a directory of this user; one host only)",
    .open = file_open,
    .close = file_close,
    .identify = file_identify,
    .lock = &(const struct lock_ops){file_acquire, file_renew, file_release},
    .admin = &file_admin,
};
