/*
 * file.c - locks of one host, kept by the kernel in files of one directory.
 *
 *  1. A key is one file.  Processes stand in line on it by tickets, which are
 *     byte locks (tickets.h): the kernel keeps them, and frees them when the
 *     last process that has the file open is gone.
 *  2. Tickets are dealt upwards under a lock on byte 0, each above every ticket
 *     that is alive: what the file says of the next one is a hint, since a file
 *     can be truncated and a disk be full.  Who sees no lower ticket alive is
 *     the holder: since no lower one can appear, looking once is enough.
 *  3. Who is not first waits for the nearest lower ticket alive, and for that
 *     one only: a release wakes one process.
 *  4. The file's first line (header.h) is written with byte 0 locked, in one
 *     write.  Token = max(previous + 1, microseconds since the epoch): it
 *     grows even if the file was deleted or what it said is lost.
 *  5. The file is never deleted.  Should somebody else do it, a lock on the
 *     orphan excludes nobody: each decision MUST be followed by a look whether
 *     the name still leads to our file; a holder that finds it does not has lost.
 *  6. The lease is LEASE_FOREVER: the kernel takes it back when we die.
 */
#include "directory.h"
#include "header.h"
#include "tickets.h"

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
};

struct file {
	struct store base;
	const struct claim *claim;
	struct directory dir;
	char name[NAME_BYTES]; /* of the lock file in it */
	int fd;		       /* the lock file; -1: not open */
	int64_t ticket;	       /* 0: none */
	int64_t before;	       /* the one to wait for; 0: none, -1: cannot be seen (errno) */
	bool holds;
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

/* The file's name.  A key too long for one goes into directories "CHUNK+" ('+' is in no encoded key). */
static void
name_file(char out[NAME_BYTES], const char *key)
{
	char encoded[ENCODED_BYTES];
	const char *rest = encoded;

	encode_key(encoded, sizeof encoded, key);
	for (; strlen(rest) > NAME_CHUNK; rest += NAME_CHUNK)
		out += snprintf(out, NAME_CHUNK + 3, "%.*s+/", NAME_CHUNK, rest);
	snprintf(out, NAME_CHUNK + 8, "%s.lock", rest);
}

/* Directory and file, from the names; a ticket on a file that was open before is gone. */
static enum rc
open_all(struct file *f, struct fault *fault)
{
	enum rc rc = directory_open(&f->dir, fault);

	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	f->ticket = 0;
	return rc == RC_OK ? directory_open_file(&f->dir, f->name, &f->fd, fault) : rc;
}

static enum rc
write_header(struct file *f, const struct header *h, struct fault *fault)
{
	char block[HEADER_BYTES];

	header_format(h, block);
	errno = ENOSPC; /* what a short write means */
	return pwrite(f->fd, block, sizeof block, 0) == sizeof block ? RC_OK : failed(f, "cannot write the lock file", fault);
}

static enum rc
read_header(struct file *f, struct header *h, struct fault *fault)
{
	char block[HEADER_BYTES];
	ssize_t n = pread(f->fd, block, sizeof block, 0);

	if (n < 0)
		return failed(f, "cannot read the lock file", fault);
	if (header_parse(h, block, (size_t)n))
		return RC_OK;
	return fault_set(fault, RC_PROTOCOL, "%s: %.60s is not a lock file of dlock: remove it if nobody needs it",
	    f->dir.where, f->name);
}

/* ---- waiting ---- */

/* Why a byte that is not taken could not be locked. */
static enum rc
cannot_lock(const struct file *f, struct fault *fault)
{
	if (errno == ENOLCK)
		return failed(f, "the kernel gives no lock (on a network file system: its lock service must run)", fault);
	return fault_set(fault, RC_CONFIG, "%s: its file system cannot lock: %s", f->dir.where, strerror(errno));
}

/* Waits for one byte that is taken, inside host->wait, and locks it.  RC_AGAIN: it may be free now, try. */
static enum rc
await_taken(struct file *f, short type, int64_t byte, instant until, struct fault *fault)
{
	struct ticket_wait *w = tickets_wait(f->fd, type, byte);
	enum woke woke;
	bool got;

	if (!w)
		return failed(f, "cannot start a thread", fault);
	woke = f->base.host->wait(f->base.host, tickets_done(w), POLLIN, until);
	got = tickets_waited(w);
	if (woke == WOKE_TIMEOUT)
		return fault_set(fault, RC_BUSY, "%s: still held", f->dir.where);
	if (woke == WOKE_STOP)
		return RC_STOP;
	return got ? RC_OK : RC_AGAIN;
}

static enum rc
await_byte(struct file *f, short type, int64_t byte, instant until, struct fault *fault)
{
	enum rc rc = RC_AGAIN;

	while (rc == RC_AGAIN && tickets_lock(f->fd, type, byte) != 0) {
		if (errno != EAGAIN)
			return cannot_lock(f, fault);
		rc = await_taken(f, type, byte, until, fault);
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
			return read_header(f, h, fault);
		if (rc != RC_LOST)
			return rc;
		if (instant_now() >= until)
			return RC_AGAIN; /* whoever does this may do it for ever */
		if (f->base.host->wait(f->base.host, -1, 0, instant_now() + NS_PER_MS) == WOKE_STOP)
			return RC_STOP;
		rc = open_all(f, fault);
		if (rc != RC_OK)
			return rc;
	}
}

static void
show_holder(struct file *f, const struct header *h)
{
	f->base.host->seen.held = header_age(h, epoch_us());
	snprintf(f->base.host->seen.holder, RECORD_BYTES, "%s", h->record);
}

/* Nobody is kept from the file meanwhile: a header that is just being written is shown the next time. */
static void
show_queue(struct file *f)
{
	struct fault ignored;
	struct header h;

	if (read_header(f, &h, &ignored) == RC_OK)
		show_holder(f, &h);
	f->base.host->seen.position = tickets_before(f->fd, f->ticket ? f->ticket : NUMBER_LIMIT);
}

/*
 * Waits until every lower ticket is gone.  Without a ticket, for want of a
 * number above the last one, until that one is gone.
 */
static enum rc
wait_in_line(struct file *f, instant until, struct fault *fault)
{
	while (f->before > 0) {
		enum rc rc;

		show_queue(f);
		rc = await_taken(f, F_RDLCK, f->before, until, fault);
		if (rc != RC_OK && rc != RC_AGAIN)
			return rc;
		tickets_unlock(f->fd, f->before);
		f->before = f->ticket ? tickets_last(f->fd, f->ticket, f->ticket) : 0;
	}
	return f->before < 0 ? failed(f, "cannot look at the queue", fault) : RC_OK;
}

/* ---- the decisions, each with byte 0 locked ---- */

/* No lower ticket is alive: writes down that the lock is ours. */
static enum rc
file_take(struct file *f, struct header *h, struct grant *g, struct fault *fault)
{
	enum rc rc;

	h->granted = epoch_us();
	h->token = header_next_token(h, h->granted);
	snprintf(h->record, sizeof h->record, "%s", f->claim->record);
	rc = write_header(f, h, fault); /* a token that is not kept might be dealt again */
	if (rc != RC_OK)
		return rc;
	f->holds = true;
	*g = (struct grant){.token = h->token, .sent = instant_now(), .lease = LEASE_FOREVER, .anchor = f->fd};
	return RC_OK;
}

/* Draws a ticket above all that are alive, and takes the lock if there are none. */
static enum rc
stand_in_line(struct file *f, struct header *h, instant until, struct grant *g, struct fault *fault)
{
	int64_t last = tickets_last(f->fd, h->next, NUMBER_LIMIT), ticket = h->next > last ? h->next : last + 1;
	enum rc rc;

	f->before = last;
	if (last < 0)
		return failed(f, "cannot look at the queue", fault);
	if (last > 0 && !until) {
		show_holder(f, h);
		return fault_set(fault, RC_BUSY, "%s: held", f->dir.where);
	}
	if (ticket >= NUMBER_LIMIT)
		return RC_OK; /* only somebody else's program has locked that much */
	rc = await_byte(f, F_WRLCK, ticket, until ? until : instant_now(), fault);
	if (rc != RC_OK)
		return rc;
	f->ticket = ticket;
	h->next = ticket + 1;
	return last > 0 ? write_header(f, h, fault) : file_take(f, h, g, fault);
}

static enum rc
file_decide(struct file *f, instant until, struct grant *g, struct fault *fault)
{
	struct header h = {.next = 1};
	enum rc rc = file_enter(f, &h, until ? until : instant_now() + NS_PER_S, fault);

	if (rc == RC_OK)
		rc = f->ticket ? file_take(f, &h, g, fault) : stand_in_line(f, &h, until, g, fault);
	if (f->fd >= 0)
		tickets_unlock(f->fd, META);
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
	if (u.path.n == 0 || u.user.at || (u.hosts.n > 0 && !url_part_is(&u.hosts, "localhost")))
		return fault_set(fault, RC_USAGE, "the URL of a directory is written file:///DIR, with three slashes");
	if (encode_undo(path, PATH_MAX, u.path.at, strlen(u.path.at)) < 0)
		return fault_set(fault, RC_USAGE, "the directory in the URL is too long, or has a wrong %%XX");
	return RC_OK;
}

static enum rc
file_open(struct store **ret, struct host *host, const struct site *site, struct fault *fault)
{
	char path[PATH_MAX];
	struct file *f;
	enum rc rc;

	if (site->url && read_url(path, site->url, fault) != RC_OK)
		return RC_USAGE;
	f = malloc(sizeof *f);
	if (!f)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	f->base = (struct store){&file_backend, host, f->dir.where, CAP_FAIR};
	f->claim = NULL;
	f->fd = -1;
	f->ticket = f->before = 0;
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
	    "%.150s, do not exclude each other", f->claim->key, other, f->dir.path);
}

static enum rc
file_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g, struct fault *fault)
{
	struct file *f = file_of(s);
	enum rc rc;

	f->claim = claim;
	name_file(f->name, claim->key);
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

static enum rc
file_release(struct store *s, int status, instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	enum rc rc = f->holds ? directory_look(&f->dir, f->name, f->fd, fault) : RC_OK;

	(void)status;
	(void)until;
	if (f->ticket)
		tickets_unlock(f->fd, f->ticket);
	f->ticket = 0;
	f->holds = false;
	return rc;
}

static void
file_close(struct store *s)
{
	struct file *f = s ? file_of(s) : NULL;

	if (!f)
		return;
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
