/*
 * file.c - locks of one host, kept by the kernel in files of one directory.
 *
 *  1. A key is one file.  Processes stand in line on it by tickets, which are
 *     byte locks (tickets.h): the kernel keeps them, and frees them when the
 *     last process that has the file open is gone.
 *  2. Who is granted what, and who waits for whom, is decided by the rules of
 *     place.h, from the kernel's locks alone.
 *  3. What the file says of the next number is a hint, since a file can be
 *     truncated and a disk be full.
 *  4. The file's first line (header.h) is written with byte 0 locked, in one
 *     write.  Token = max(previous + 1, microseconds since the epoch): it
 *     grows even if the file was deleted or what it said is lost.
 *  5. The file is never deleted.  Should somebody else do it, a lock on the
 *     orphan excludes nobody: each decision MUST be followed by a look whether
 *     the name still leads to our file; a holder that finds it does not has lost.
 *  6. The lease is LEASE_FOREVER: the kernel takes it back when we die.
 *  7. What --once and --cooldown ask for lies in a file beside it (runs.h).
 */
#include "directory.h"
#include "header.h"
#include "place.h"
#include "runs.h"

#include "backends/encode.h"
#include "backends/setting.h"
#include "backends/url.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	NAME_CHUNK = 200, /* of an encoded key in one directory entry (NAME_MAX is 255) */
	NAME_BYTES = ENCODED_BYTES + 2 * (ENCODED_BYTES / NAME_CHUNK) + 8,
	/*
	 * ms between looks at the slots, where the kernel does not tell of those who
	 * leave
	 */
	PAUSE_MOST = 250,
};

struct file {
	struct store base;
	const struct claim *claim;
	struct directory dir;
	char name[NAME_BYTES]; /* of the lock file in it */
	char runs[NAME_BYTES]; /* of what is remembered beside it */
	int fd;                /* the lock file; -1: not open */
	/* for byte 0, where a call has given up; else NULL */
	struct ticket_wait *entering;
	struct place place;
	bool holds;
	int64_t granted, token; /* if so; the first as the header has it */
};

const struct backend file_backend;

static struct file *
file_of(struct store *s)
{
	return (struct file *)store_of(s, &file_backend);
}

static enum rc
failed(const struct file *f, const char *what, struct fault *fault)
{
	return directory_failed(&f->dir, what, fault);
}

/* The wall clock in microseconds: what tokens and `granted` are made of. */
static int64_t
epoch_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* ---- the file ---- */

/*
 * A file's name.  A key too long for one goes into directories "CHUNK+" ('+' is in no
 * encoded key).
 */
static void
name_file(char out[NAME_BYTES], const char *key, const char *suffix)
{
	char encoded[ENCODED_BYTES];
	const char *rest = encoded;

	encode_key(encoded, sizeof encoded, key);
	for (; strlen(rest) > NAME_CHUNK; rest += NAME_CHUNK)
		out += snprintf(out, NAME_CHUNK + 3, "%.*s+/", NAME_CHUNK, rest);
	snprintf(out, NAME_CHUNK + 8, "%s%s", rest, suffix);
}

static void
forget_entering(struct file *f)
{
	if (f->entering)
		tickets_waited(f->entering);
	f->entering = NULL;
}

/* Directory and file, from the names; a ticket on a file that was open before is gone. */
static enum rc
open_all(struct file *f, struct fault *fault)
{
	enum rc rc = directory_open(&f->dir, fault);

	forget_entering(f);
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	if (rc == RC_OK)
		rc = directory_open_file(&f->dir, f->name, &f->fd, fault);
	place_init(&f->place, f->fd, f->claim->kind, f->claim->limit);
	return rc;
}

/* The block of who is alone is at 0, that of one of several behind it. */
static off_t
block_at(int64_t number)
{
	return number ? HEADER_BYTES * (1 + number % HEADER_SHARED) : 0;
}

static enum rc
write_header(struct file *f, const struct header *h, off_t at, struct fault *fault)
{
	char block[HEADER_BYTES];

	header_format(h, block);
	errno = ENOSPC; /* what a short write means */
	return pwrite(f->fd, block, sizeof block, at) == sizeof block
	    ? RC_OK
	    : failed(f, "cannot write the lock file", fault);
}

static enum rc
read_header(struct file *f, struct header *h, off_t at, struct fault *fault)
{
	char block[HEADER_BYTES];
	ssize_t n = pread(f->fd, block, sizeof block, at);

	if (n < 0)
		return failed(f, "cannot read the lock file", fault);
	if (header_parse(h, block, (size_t)n))
		return RC_OK;
	return fault_set(fault, RC_PROTOCOL,
	    "%s: %.60s is not a lock file of dlock: remove it if nobody needs it",
	    f->dir.where, f->name);
}

/* ---- waiting ---- */

/* Why a byte that is not taken could not be locked. */
static enum rc
cannot_lock(const struct file *f, struct fault *fault)
{
	if (errno == ENOLCK)
		return failed(f,
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
		return failed(f, "cannot start a thread", fault);
	woke = f->base.host->wait(f->base.host, tickets_done(w), POLLIN, until);
	rc = end_wait(f, woke, fault);
	f->entering = rc != RC_OK && s.from == META ? w : NULL;
	got = !f->entering && tickets_waited(w);
	return rc == RC_OK && !got ? RC_AGAIN : rc;
}

static enum rc
await_byte(struct file *f, short type, int64_t byte, instant until, struct fault *fault)
{
	enum rc rc = RC_AGAIN;

	while (rc == RC_AGAIN && tickets_lock(f->fd, type, byte) != 0) {
		if (errno != EAGAIN)
			return cannot_lock(f, fault);
		rc = await_taken(f, type, (struct span){byte, byte + 1}, until, fault);
	}
	return rc == RC_AGAIN ? RC_OK : rc;
}

/*
 * Locks byte 0 of the file that the name leads to, and reads its header.  A file
 * that was replaced is opened anew: then our ticket is gone, which was on the
 * old one.
 */
static enum rc
file_enter(struct file *f, struct header *h, instant until, struct fault *fault)
{
	for (;;) {
		enum rc rc = await_byte(f, F_WRLCK, META, until, fault);

		if (rc == RC_OK)
			rc = directory_look(&f->dir, f->name, f->fd, fault);
		if (rc == RC_OK)
			return read_header(f, h, 0, fault);
		if (rc != RC_LOST)
			return rc;
		if (instant_now() >= until)
			return RC_AGAIN; /* whoever does this may do it for ever */
		if (f->base.host->wait(f->base.host, -1, 0, instant_now() + NS_PER_MS) ==
		    WOKE_STOP)
			return RC_STOP;
		rc = open_all(f, fault);
		if (rc != RC_OK)
			return rc;
	}
}

/*
 * Whose record it is, and since when.  The block of one of several may be that
 * of another one by now, or not yet his.
 */
static void
show_holder(struct file *f, const struct crowd *c)
{
	struct header h = {.next = 0};
	struct fault ignored;

	f->base.host->seen.held = -1;
	f->base.host->seen.holder[0] = '\0';
	if (read_header(f, &h, block_at(c->first), &ignored) != RC_OK ||
	    (c->first && h.next != c->first))
		return;
	f->base.host->seen.held = header_age(&h, epoch_us());
	snprintf(f->base.host->seen.holder, RECORD_BYTES, "%s", h.record);
}

/*
 * Nobody is kept from the file meanwhile: a header that is just being written is shown
 * the next time.
 */
static void
show_line(struct file *f)
{
	struct crowd c;

	place_see(&f->place, &c);
	show_holder(f, &c);
	f->base.host->seen.kind = c.kind;
	f->base.host->seen.holders = c.holders;
	f->base.host->seen.limit = c.limit;
	f->base.host->seen.position = c.position;
}

/* Waits until all before us that is named there is gone. */
static enum rc
await_all(struct file *f, instant until, struct fault *fault)
{
	enum rc rc = await_taken(f, F_RDLCK, f->place.before, until, fault);

	if (rc == RC_OK)
		tickets_unlock(f->fd, f->place.before);
	return rc == RC_AGAIN ? RC_OK : rc;
}

/*
 * Waits until a slot is ours.  We look after each piece of news, and then after
 * 1, 2, 4, ... ms, as place.h says.
 */
static enum rc
await_slot(struct file *f, instant until, struct fault *fault)
{
	int watch = tickets_watch(f->fd), got = 0;
	int64_t pause = NS_PER_MS;
	enum rc rc = RC_OK;

	while (rc == RC_OK && (got = place_take_slot(&f->place)) == 0) {
		instant next = instant_after(instant_now(), pause);
		enum woke woke = f->base.host->wait(
		    f->base.host, watch, POLLIN, instant_first(next, until));

		if (woke == WOKE_READY)
			tickets_watched(watch);
		pause = woke == WOKE_READY ? NS_PER_MS
		    : pause > NEVER / 2    ? NEVER
					   : 2 * pause;
		pause = watch < 0 && pause > PAUSE_MOST * NS_PER_MS
		    ? PAUSE_MOST * NS_PER_MS
		    : pause;
		if (woke == WOKE_STOP || instant_now() >= until)
			rc = end_wait(f, woke, fault);
	}
	tickets_unwatch(watch);
	return got < 0 ? cannot_lock(f, fault) : rc;
}

/*
 * Waits until nothing is before us.  Without a ticket, for want of a number
 * above the last one, until that one is gone.
 */
static enum rc
wait_in_line(struct file *f, instant until, struct fault *fault)
{
	struct place *p = &f->place;

	while (place_is_waiting(p)) {
		enum rc rc;

		show_line(f);
		rc = p->any ? await_slot(f, until, fault) : await_all(f, until, fault);
		if (rc != RC_OK)
			return rc;
		if (!place_has_joined(p) || p->any)
			return RC_OK;
		if (place_look(p) != 0)
			return failed(f, "cannot look at the queue", fault);
	}
	return RC_OK;
}

/* ---- the decisions, each with byte 0 locked ---- */

/* Nothing is before us: writes down that the lock is ours. */
static enum rc
file_take(struct file *f, struct header *h, struct grant *g, struct fault *fault)
{
	struct place *p = &f->place;
	int64_t block = p->kind == KIND_LIMIT ? p->slot + 1
	    : p->kind == KIND_SHARED          ? p->ticket
					      : 0;
	enum rc rc;

	h->granted = epoch_us();
	h->token = header_next_token(h, h->granted);
	snprintf(h->record, sizeof h->record, "%s", f->claim->record);
	/* a token that is not kept might be dealt again */
	rc = write_header(f, h, 0, fault);
	if (rc == RC_OK && block) {
		h->next = block;
		rc = write_header(f, h, block_at(block), fault);
	}
	if (rc != RC_OK)
		return rc;
	place_granted(p);
	f->holds = true;
	f->granted = h->granted;
	f->token = h->token;
	*g = (struct grant){.token = h->token,
	    .slot = p->slot < 0 ? 0 : (unsigned)p->slot,
	    .sent = instant_now(),
	    .lease = LEASE_FOREVER,
	    .anchor = f->fd};
	return RC_OK;
}

/* Another kind of lock that does not go with ours is in line or holds. */
static enum rc
file_check_kind(struct file *f, struct fault *fault)
{
	static const char *const words[] = {
	    [KIND_SHARED] = "-s", [KIND_LIMIT] = "--limit "};
	const struct claim *c = f->claim;
	char used[16] = "", asked[16] = "";
	struct crowd other;
	int got = place_refuses(&f->place, &other);

	if (got < 0)
		return failed(f, "cannot look at the queue", fault);
	if (got == 0)
		return RC_OK;
	if (other.kind == KIND_LIMIT)
		snprintf(used, sizeof used, "%u", other.limit);
	if (c->kind == KIND_LIMIT)
		snprintf(asked, sizeof asked, "%u", c->limit);
	return fault_set(fault, RC_PROTOCOL,
	    "%s: the key is in use with %s%s, and %s%s is asked for", f->dir.where,
	    words[other.kind], used, words[c->kind], asked);
}

/* Takes the number, if there is one, and the lock if nothing is before it. */
static enum rc
stand_in_line(
    struct file *f, struct header *h, instant until, struct grant *g, struct fault *fault)
{
	struct place *p = &f->place;
	int64_t number;
	enum rc rc = file_check_kind(f, fault);

	if (rc != RC_OK)
		return rc;
	number = place_join(p, h->next);
	if (number < 0)
		return failed(f, "cannot look at the queue", fault);
	if (place_is_waiting(p) && !until) {
		show_line(f);
		f->base.host->seen.position = 0; /* we are in no line */
		return fault_set(fault, RC_BUSY, "%s: held", f->dir.where);
	}
	if (p->slot >= 0)
		return file_take(f, h, g, fault);
	if (number >= NUMBER_LIMIT)
		return RC_OK;
	rc = await_byte(
	    f, F_WRLCK, place_byte(p, number), until ? until : instant_now(), fault);
	if (rc != RC_OK)
		return rc;
	p->ticket = number;
	h->next = number + 1;
	return place_is_waiting(p) ? write_header(f, h, 0, fault)
				   : file_take(f, h, g, fault);
}

/* Has it been done?  Then we are not in line any more. */
static enum rc
check_job(struct file *f, struct fault *fault)
{
	enum rc rc = RC_OK;

	if (job_is_wanted(&f->claim->job))
		rc = runs_check(&f->dir, f->runs, &f->claim->job, epoch_us(), fault);
	if (rc == RC_DONE)
		place_leave(&f->place);
	return rc;
}

static enum rc
file_decide(struct file *f, instant until, struct grant *g, struct fault *fault)
{
	struct header h = {.next = 1};
	enum rc rc = file_enter(f, &h, until ? until : instant_now() + NS_PER_S, fault);

	if (rc == RC_OK)
		rc = check_job(f, fault);
	if (rc == RC_OK)
		rc = place_has_joined(&f->place) ? file_take(f, &h, g, fault)
						 : stand_in_line(f, &h, until, g, fault);
	if (f->fd >= 0)
		tickets_unlock(f->fd, (struct span){META, META + 1});
	return rc;
}

/* ---- the calls ---- */

/*
 * The directory of file:[//[localhost]]/DIR.  It is all that follows, since here
 * people write '?' and '#' as they are; what url_cut() finds wrong is none of it.
 */
static enum rc
read_url(char path[PATH_MAX], const char *url, struct fault *fault)
{
	struct url u;

	(void)url_cut(&u, url);
	if (u.path.n == 0 || u.user.at ||
	    (u.hosts.n > 0 && !url_part_is(&u.hosts, "localhost")))
		return fault_set(fault, RC_USAGE,
		    "the URL of a directory is written file:///DIR, with three slashes");
	if (encode_undo(path, PATH_MAX, u.path.at, strlen(u.path.at)) < 0)
		return fault_set(fault, RC_USAGE,
		    "the directory in the URL is too long, or has a wrong %%XX");
	return RC_OK;
}

static enum rc
file_open(
    struct store **ret, struct host *host, const struct site *site, struct fault *fault)
{
	char path[PATH_MAX];
	struct file *f;
	enum rc rc;

	if (site->url && read_url(path, site->url, fault) != RC_OK)
		return RC_USAGE;
	f = malloc(sizeof *f);
	if (!f)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	f->base = (struct store){&file_backend, host, f->dir.where,
	    CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB};
	f->claim = NULL;
	f->fd = -1;
	f->entering = NULL;
	place_init(&f->place, -1, KIND_EXCLUSIVE, 0);
	f->holds = false;
	directory_init(&f->dir, site->url ? path : NULL);
	rc = setting_read(&f->base, site, fault);
	if (rc == RC_OK)
		*ret = &f->base;
	else
		free(f);
	return rc;
}

static void
tell_of_elsewhere(struct file *f)
{
	char other[PATH_MAX];

	if (!directory_elsewhere(&f->dir, f->name, other))
		return;
	fault_set(&f->base.host->notice, RC_OK,
	    "%.100s is also locked in %.150s, another default directory of this user: that run and this one, in "
	    "%.150s, do not exclude each other",
	    f->claim->key, other, f->dir.path);
}

static enum rc
file_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *fault)
{
	struct file *f = file_of(s);
	enum rc rc;

	f->claim = claim;
	name_file(f->name, claim->key, ".lock");
	name_file(f->runs, claim->key, ".runs");
	rc = open_all(f, fault);
	if (rc == RC_OK)
		tell_of_elsewhere(f);
	while (rc == RC_OK && !f->holds) {
		rc = file_decide(f, until, g, fault);
		if (rc == RC_OK && !f->holds)
			rc = wait_in_line(f, until, fault);
	}
	return rc;
}

static enum rc
file_renew(struct store *s, instant until, struct grant *g, struct fault *fault)
{
	struct file *f = file_of(s);

	(void)until;
	g->sent = instant_now();
	g->lease = LEASE_FOREVER;
	return directory_look(&f->dir, f->name, f->fd, fault);
}

/*
 * That it cannot be written down keeps nobody waiting: the run is taken for one that was
 * not.
 */
static void
write_down(struct file *f, int status)
{
	struct run run = {
	    .begin = f->granted, .end = epoch_us(), .token = f->token, .status = status};
	const char *once = f->claim->job.once;
	struct fault why;

	if (once)
		encode_key(run.id, sizeof run.id, once);
	snprintf(run.record, sizeof run.record, "%s", f->claim->record);
	if (runs_remember(&f->dir, f->runs, &run, &why) != RC_OK)
		fault_set(&f->base.host->notice, RC_OK,
		    "this run under %.100s is not remembered, so it may be run again: %.400s",
		    f->claim->key, why.text);
}

/* RC_AGAIN, RC_STOP: it is not, and the lock is still ours. */
static enum rc
remember(struct file *f, int status, instant until, struct fault *fault)
{
	enum rc rc = await_byte(f, F_WRLCK, META, until, fault);

	if (rc == RC_OK)
		rc = directory_look(&f->dir, f->name, f->fd, fault);
	if (rc == RC_OK)
		write_down(f, status);
	return rc == RC_BUSY ? RC_AGAIN : rc;
}

static enum rc
file_release(struct store *s, int status, instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	enum rc rc = RC_OK;

	if (f->holds && status >= 0 && job_is_wanted(&f->claim->job)) {
		rc = remember(f, status, until, fault);
		if (rc == RC_AGAIN || rc == RC_STOP)
			return rc;
	} else if (f->holds) {
		rc = directory_look(&f->dir, f->name, f->fd, fault);
	}
	forget_entering(f);
	place_leave(&f->place);
	f->holds = false;
	return rc;
}

static void
file_close(struct store *s)
{
	struct file *f = s ? file_of(s) : NULL;

	if (!f)
		return;
	forget_entering(f);
	if (f->fd >= 0)
		close(f->fd);
	directory_close(&f->dir);
	free(f);
}

const struct backend file_backend = {
    .name = "file",
    .schemes = (const char *const[]){"file", NULL},
    .url_help = "file:///DIR (default: a directory of this user; one host only)",
    .open = file_open,
    .close = file_close,
    .lock = &(const struct lock_ops){file_acquire, file_renew, file_release},
};
