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
 *  8. Whether the lock is frozen is read with the header, by whoever is about to
 *     take it.  Nothing in the kernel says so, and no process: so the first in line
 *     looks once a second, and whenever the file is written or somebody closes it.
 *  9. A mark, which asks the holder to give the lock up, lies behind his block
 *     (block.h).  His renewal reads it.
 */
#include "block.h"
#include "runs.h"
#include "store.h"

#include "backends/common/identity.h"
#include "backends/common/refuse.h"
#include "backends/common/setting.h"
#include "backends/common/url.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	/*
	 * ms between looks at the slots or the freeze, where the kernel does not tell of
	 * what becomes of the file
	 */
	PAUSE_MOST = 250,
};

#define FROZEN_LOOK (2 * NS_PER_S)

static enum rc
failed(const struct file *f, const char *what, struct fault *fault)
{
	return directory_failed(&f->dir, what, fault);
}

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
file_write(struct file *f, const struct header *h, off_t at, struct fault *fault)
{
	return block_write(f->fd, at, h) == 0
	    ? RC_OK
	    : failed(f, "cannot write the lock file", fault);
}

enum rc
file_is_foreign(const struct file *f, struct fault *fault)
{
	return fault_set(fault, RC_PROTOCOL,
	    "%s: %.60s is not a lock file of dlock: remove it if nobody needs it",
	    f->dir.where, f->name);
}

static enum rc
read_header(struct file *f, struct header *h, struct fault *fault)
{
	int got = block_read(f->fd, BLOCK_HEADER, h);

	if (got < 0)
		return failed(f, "cannot read the lock file", fault);
	return got ? RC_OK : file_is_foreign(f, fault);
}

/* ---- what is to be seen meanwhile ---- */

/*
 * What is written of who has locked that byte, as a holder.  A header of a version that
 * does not say whose it is may be his.
 */
static bool
find_first_holder(
    const struct file *f, const struct header *header, int64_t byte, struct header *h)
{
	*h = *header;
	if (RANGE_OF(byte) != ALONE)
		return block_find(f->fd, byte, h) != 0 && h->token > 0;
	return byte && (h->byte == byte || (h->byte == META && !f->frozen));
}

static void
show_holder(struct file *f, const struct header *h)
{
	f->base.host->seen.holding.held = header_age(h, file_now());
	snprintf(f->base.host->seen.holding.record, RECORD_BYTES, "%s", h->record);
}

/*
 * Nobody is kept from the file meanwhile: a header that is just being written is shown
 * the next time.
 */
static void
show_line(struct file *f)
{
	struct header header = {.next = 1}, freeze, holder;
	struct crowd c;
	bool held;

	(void)block_read(f->fd, BLOCK_HEADER, &header);
	f->frozen = block_is_frozen(f->fd, &header, file_now(), &freeze);
	place_see(&f->place, &c);
	held = find_first_holder(f, &header, c.first, &holder);
	if (!held && f->frozen && c.kind == KIND_EXCLUSIVE && c.holders > 0 && c.position)
		c.position++; /* that one only waits */
	show_holder(f,
	    held            ? &holder
		: f->frozen ? &freeze
			    : &(struct header){.next = 1});
	f->base.host->seen.holding.frozen = f->frozen;
	f->base.host->seen.holding.kind = c.kind;
	f->base.host->seen.holding.holders = held || !f->frozen ? c.holders : 0;
	f->base.host->seen.holding.limit = c.limit;
	f->base.host->seen.position = c.position;
}

/* As far as can be read. */
static bool
is_frozen_still(const struct file *f)
{
	struct header h, freeze;

	return block_read(f->fd, BLOCK_HEADER, &h) != 1 ||
	    block_is_frozen(f->fd, &h, file_now(), &freeze);
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
		if (!is_frozen_still(f))
			show_line(f);
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
		return failed(f, "cannot start a thread", fault);
	woke = wait_and_look(f, tickets_done(w), until);
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

enum rc
file_enter(struct file *f, struct header *h, instant until, struct fault *fault)
{
	for (;;) {
		enum rc rc = await_byte(f, F_WRLCK, META, until, fault);

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

/* ---- waiting in line ---- */

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
		if (f->frozen)
			show_line(f);
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
 * How long to sleep before the next look at a freeze; 0: it has ended, or the file is
 * another one by now.  Never long, since the clock may be set.
 */
static int64_t
freeze_left(struct file *f, int64_t most)
{
	struct fault ignored;
	int64_t us;
	struct header h, freeze;

	if (directory_look(&f->dir, f->name, f->fd, &ignored) == RC_LOST ||
	    block_read(f->fd, BLOCK_HEADER, &h) != 1 ||
	    !block_is_frozen(f->fd, &h, file_now(), &freeze))
		return 0;
	us = freeze.freeze - file_now();
	return us > most / 1000 ? most : us > 0 ? us * 1000 : 1;
}

/* Nothing is before us, but nobody may take the lock. */
static enum rc
await_thaw(struct file *f, instant until, struct fault *fault)
{
	int watch = tickets_watch(f->fd);
	int64_t most = watch < 0 ? PAUSE_MOST * NS_PER_MS : NS_PER_S, left;
	enum rc rc = RC_OK;

	while (rc == RC_OK && (left = freeze_left(f, most)) > 0) {
		enum woke woke;

		show_line(f);
		woke = f->base.host->wait(f->base.host, watch, POLLIN,
		    instant_first(instant_after(instant_now(), left), until));
		if (woke == WOKE_READY)
			tickets_watched(watch);
		if (woke == WOKE_STOP || instant_now() >= until)
			rc = end_wait(f, woke, fault);
	}
	tickets_unwatch(watch);
	return rc;
}

static enum rc
await_turn(struct file *f, instant until, struct fault *fault)
{
	const struct place *p = &f->place;

	show_line(f);
	if (!place_is_waiting(p))
		return await_thaw(f, until, fault);
	return p->any ? await_slot(f, until, fault) : await_all(f, until, fault);
}

/*
 * Waits until nothing is before us, nor is the lock frozen.  Without a ticket, for
 * want of a number above the last one, until that one is gone.
 */
static enum rc
wait_in_line(struct file *f, instant until, struct fault *fault)
{
	struct place *p = &f->place;
	bool frozen = f->frozen;

	while (place_is_waiting(p) || frozen) {
		enum rc rc = await_turn(f, until, fault);

		if (rc == RC_BUSY)
			show_line(f); /* who has it by now */
		if (rc != RC_OK)
			return rc;
		frozen = frozen && place_is_waiting(p);
		if (!place_has_joined(p) || p->slot >= 0)
			return RC_OK;
		if (place_look(p) != 0)
			return failed(f, "cannot look at the queue", fault);
	}
	return RC_OK;
}

/* ---- the decisions, each with byte 0 locked ---- */

/* That we have locked this byte, since now. */
static void
write_who(const struct file *f, struct header *h, int64_t byte)
{
	h->granted = file_now();
	h->byte = byte;
	snprintf(h->owner, sizeof h->owner, "%s", f->claim->owner);
	snprintf(h->record, sizeof h->record, "%s", f->claim->record);
}

/* Nothing is before us: writes down that the lock is ours. */
static enum rc
file_take(struct file *f, struct header *h, struct grant *g, struct fault *fault)
{
	struct place *p = &f->place;
	enum rc rc;

	write_who(f, h, place_held_byte(p));
	h->token = header_next_token(h, h->granted);
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

/* For people: that it cannot be written keeps nobody from waiting. */
static void
write_waiter(const struct file *f)
{
	int64_t byte = place_byte(&f->place, f->place.ticket);
	struct header h = {.next = 1};

	write_who(f, &h, byte);
	(void)block_write(f->fd, block_choose(f->fd, byte), &h);
}

static enum rc
refuse_claim(struct file *f, struct fault *fault)
{
	show_line(f);
	f->base.host->seen.position = 0; /* we are in no line */
	return fault_set(
	    fault, RC_BUSY, "%s: %s", f->dir.where, f->frozen ? "frozen" : "held");
}

/* We have a ticket: takes the lock, if nothing is in the way, or stays in line. */
static enum rc
take_or_stay(struct file *f, struct header *h, struct grant *g, struct fault *fault)
{
	enum rc rc;

	if (!place_is_waiting(&f->place) && !f->frozen)
		return file_take(f, h, g, fault);
	rc = file_write(f, h, BLOCK_HEADER, fault);
	if (rc == RC_OK)
		write_waiter(f);
	return rc;
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
	if (f->frozen)
		place_give_slot_back(p);
	if ((place_is_waiting(p) || f->frozen) && !until)
		return refuse_claim(f, fault);
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
	return take_or_stay(f, h, g, fault);
}

/* Has it been done?  Then we are not in line any more. */
static enum rc
check_job(struct file *f, struct fault *fault)
{
	enum rc rc = RC_OK;

	if (job_is_wanted(&f->claim->job))
		rc = runs_check(&f->dir, f->runs, &f->claim->job, file_now(), fault);
	if (rc == RC_DONE)
		place_leave(&f->place);
	return rc;
}

/* It is our turn, unless the lock has been frozen. */
static enum rc
take_lock(struct file *f, struct header *h, struct grant *g, struct fault *fault)
{
	if (!f->frozen)
		return file_take(f, h, g, fault);
	place_give_slot_back(&f->place);
	return RC_OK;
}

static enum rc
file_decide(struct file *f, instant until, struct grant *g, struct fault *fault)
{
	struct header h = {.next = 1}, freeze;
	enum rc rc = file_enter(f, &h, until ? until : instant_now() + NS_PER_S, fault);

	if (rc == RC_OK)
		rc = check_job(f, fault);
	if (rc == RC_OK) {
		f->frozen = block_is_frozen(f->fd, &h, file_now(), &freeze);
		h.freeze = f->frozen;
		rc = place_has_joined(&f->place) ? take_lock(f, &h, g, fault)
						 : stand_in_line(f, &h, until, g, fault);
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
	f = malloc(sizeof *f);
	if (!f)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	f->base = (struct store){&file_backend, host, f->dir.where,
	    CAP_FAIR | CAP_SHARED | CAP_LIMIT | CAP_JOB | CAP_REVOKE | CAP_FREEZE};
	f->claim = NULL;
	f->use = DIRECTORY_MAKE;
	f->fd = -1;
	f->entering = NULL;
	place_init(&f->place, -1, KIND_EXCLUSIVE, 0);
	f->frozen = f->hold.ours = false;
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
	f->use = DIRECTORY_MAKE;
	file_name(f->name, claim->key, ".lock");
	file_name(f->runs, claim->key, ".runs");
	rc = file_open_all(f, fault);
	if (rc == RC_OK)
		tell_of_elsewhere(f);
	while (rc == RC_OK && !f->hold.ours) {
		rc = file_decide(f, until, g, fault);
		if (rc == RC_OK && !f->hold.ours)
			rc = wait_in_line(f, until, fault);
	}
	return rc;
}

static enum rc
file_renew(struct store *s, instant until, struct grant *g, struct fault *fault)
{
	struct file *f = file_of(s);
	struct header mark;
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
write_run_down(struct file *f, int status, instant until, struct fault *fault)
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

	if (f->hold.ours && status >= 0 && job_is_wanted(&f->claim->job)) {
		rc = write_run_down(f, status, until, fault);
		if (rc == RC_AGAIN || rc == RC_STOP)
			return rc;
	} else if (f->hold.ours) {
		rc = directory_look(&f->dir, f->name, f->fd, fault);
	}
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
