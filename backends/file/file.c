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
 *  4. The file's first line (block.h) is written with byte 0 locked, in one
 *     write.  Token = max(previous + 1, microseconds since the epoch): it
 *     grows even if the file was deleted or what it said is lost.
 *  5. The file is never deleted.  Should somebody else do it, a lock on the
 *     orphan excludes nobody: each decision MUST be followed by a look whether
 *     the name still leads to our file; a holder that finds it does not has lost.
 *  6. The lease is LEASE_FOREVER: the kernel takes it back when we die.
 *  7. What --once and --cooldown ask for lies in a directory beside it (runs.h).
 *  8. Whether the lock is frozen is read with the header, by whoever is about to
 *     take it.  Nothing in the kernel says so, and no process: so the first in line
 *     looks once a second, and whenever the file is written or somebody closes it.
 *  9. A mark, which asks the holder to give the lock up, lies behind his block
 *     (block.h).  His renewal reads it.
 */
#include "file.h"
#include "runs.h"

#include "backends/common/setting.h"
#include "backends/common/text.h"
#include "backends/common/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t
file_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* ---- the file ---- */

void
file_name(char out[NAME_BYTES], const char *key, const char *suffix)
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

static enum rc
read_header(struct file *f, struct block *h, struct fault *fault)
{
	int got = block_read(f->fd, BLOCK_HEADER, h);

	if (got < 0)
		return directory_failed(&f->dir, "cannot read the lock file", fault);
	return got
	    ? RC_OK
	    : fault_set(fault, RC_PROTOCOL,
		  "%s: %.60s is not a lock file of dlock: remove it if nobody needs it",
		  f->dir.where, f->name);
}

enum rc
file_enter(struct file *f, struct block *h, instant until, struct fault *fault)
{
	for (;;) {
		enum rc rc = file_await_byte(f, F_WRLCK, META, until, fault);

		if (rc == RC_OK)
			rc = directory_look(&f->dir, f->name, f->fd, fault);
		if (rc == RC_OK)
			return read_header(f, h, fault);
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
}

void
file_leave(struct file *f)
{
	if (f->fd >= 0)
		tickets_unlock(f->fd, (struct span){META, META + 1});
}

/* ---- the decisions, each with byte 0 locked ---- */

/* That we have locked this byte, since now. */
static void
write_who(const struct file *f, struct block *h, int64_t byte)
{
	h->granted = file_now();
	h->byte = byte;
	snprintf(h->owner, sizeof h->owner, "%s", f->claim->owner);
	snprintf(h->record, sizeof h->record, "%s", f->claim->record);
}

/* Nothing is before us: writes down that the lock is ours. */
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
	int64_t number;
	enum rc rc;

	if (refused > 0)
		return refuse_kind(fault, f->dir.where, other, limit, f->claim);
	number = refused < 0 ? -1 : place_join(p, h->next);
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
	rc = file_await_byte(
	    f, F_WRLCK, place_byte(p, number), until ? until : instant_now(), fault);
	if (rc != RC_OK)
		return rc;
	p->ticket = number;
	h->next = number + 1;
	return RC_OK;
}

/*
 * Joins the line, unless we have; takes the lock, if nothing is in the way.  Who has just
 * joined writes down the next number, and for people that he waits.  That the latter cannot
 * be written keeps nobody from waiting.
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

	if (rc == RC_OK && job_is_wanted(job))
		rc = runs_check(&f->dir, f->runs, job, file_now(), fault);
	if (rc == RC_DONE)
		place_leave(&f->place);
	if (rc == RC_OK) {
		f->frozen = block_is_frozen(f->fd, &h, file_now(), &freeze);
		h.freeze = f->frozen;
		rc = take_or_stay(f, &h, until, g, fault);
	}
	file_leave(f);
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
	f = calloc(1, sizeof *f);
	if (!f)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	f->base = (struct store){&file_backend, host, f->dir.where,
	    CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE};
	f->fd = -1;
	place_init(&f->place, -1, KIND_EXCLUSIVE, 0);
	directory_init(&f->dir, site->url ? path : NULL);
	rc = setting_read(&f->base, site, fault);
	if (rc == RC_OK)
		*ret = &f->base;
	else
		free(f);
	return rc;
}

/* Apart from the calls that wait, below which a path would take memory. */
static void
notice_elsewhere(struct file *f)
{
	char other[PATH_MAX];

	if (directory_elsewhere(&f->dir, f->name, other))
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
	f->use = DIRECTORY_MAKE;
	file_name(f->name, claim->key, ".lock");
	file_name(f->runs, claim->key, ".runs/");
	rc = file_open_all(f, fault);
	if (rc == RC_OK)
		notice_elsewhere(f);
	while (rc == RC_OK && !f->hold.ours) {
		rc = file_decide(f, until, g, fault);
		if (rc == RC_OK && !f->hold.ours)
			rc = file_await_place(f, until, fault);
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

/*
 * That it cannot be written down keeps nobody waiting: the run is taken for one that was
 * not.
 */
static void
write_down(struct file *f, int status)
{
	struct run run = {.begin = f->hold.granted,
	    .end = file_now(),
	    .token = f->hold.token,
	    .status = status};
	struct fault why;

	if (f->claim->job.once)
		encode_key(run.id, sizeof run.id, f->claim->job.once);
	snprintf(run.record, sizeof run.record, "%s", f->claim->record);
	if (runs_remember(&f->dir, f->runs, &run, &why) != RC_OK)
		fault_set(&f->base.host->notice, RC_OK,
		    "this run under %.100s is not remembered, so it may be run again: %.400s",
		    f->claim->key, why.text);
}

/* RC_AGAIN, RC_STOP: it is still ours, since its run could not be written down yet. */
static enum rc
file_release(struct store *s, int status, instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	bool job = f->hold.ours && status >= 0 && job_is_wanted(&f->claim->job);
	enum rc rc = RC_OK;

	if (job)
		rc = file_await_byte(f, F_WRLCK, META, until, fault);
	if (rc == RC_BUSY || rc == RC_STOP)
		return rc == RC_BUSY ? RC_AGAIN : rc;
	if (rc == RC_OK && f->hold.ours)
		rc = directory_look(&f->dir, f->name, f->fd, fault);
	if (rc == RC_AGAIN && job)
		return rc;
	if (rc == RC_OK && job)
		write_down(f, status);
	forget_entering(f);
	place_leave(&f->place);
	f->hold.ours = false;
	return rc;
}

/* The directory itself: there may be several ways to it. */
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
	free(f);
}

const struct backend file_backend = {
    .name = "file",
    .schemes = (const char *const[]){"file", NULL},
    .url_help = "file:///DIR (default: a directory of this user; one host only)",
    .open = file_open,
    .close = file_close,
    .identify = file_identify,
    .lock = &(const struct lock_ops){file_acquire, file_renew, file_release},
    .admin = &file_admin,
};
