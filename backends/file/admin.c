/*
 * admin.c - tells what is held, waited for, frozen and remembered in the directory; marks
 * holders, freezes, thaws and forgets.
 *
 * A look opens files for reading only, and only those that could be ours; it takes no lock,
 * so that nobody waits for it.  All else is written with byte 0 locked, so that nobody is
 * granted the lock meanwhile, and by whoever may write the lock file: he could as well hold
 * it.
 *
 * Nobody's lock is taken away by force.  The kernel gives it back when the last
 * process that has it has ended, and not before; a new file in the place of the
 * old one would take it from all who hold it beside him, and leave those who
 * wait asleep on the old one.  Whoever wants to use force can: the processes are
 * on this machine, and when they are killed the lock is free at once.
 */
#include "file.h"
#include "line.h"
#include "runs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".lock", runs_suffix[] = ".runs/";

/* One look; `over` when nobody wants to know more, or something failed. */
struct looking {
	struct file *f;
	const struct look *look;
	struct fault *fault;
	const char *key; /* whose runs are told */
	bool over;
	enum rc rc;
	uint64_t hidden;                 /* files and directories that we may not read */
	char first_hidden[NAME_MAX + 1]; /* one of them */
};

static void
end_look(struct looking *g, enum rc rc)
{
	g->over = true;
	g->rc = rc;
}

static void
stop_late(struct looking *g)
{
	if (!g->over && instant_now() >= g->look->until)
		end_look(g,
		    fault_set(g->fault, RC_AGAIN,
			"%s: looking at all locks took too long", g->f->dir.where));
}

static void
see_entry(struct looking *g, const struct entry *e)
{
	if (!g->over && !g->look->see(g->look->ctx, e, instant_epoch()))
		g->over = true;
	stop_late(g);
}

static int64_t
known_time(int64_t us)
{
	return us > 0 ? us : EPOCH_NONE;
}

static const char *
known_text(const char *text)
{
	return *text ? text : NULL;
}

static struct entry
empty_entry(enum entry_kind kind, const char *key)
{
	return (struct entry){.kind = kind,
	    .key = key,
	    .slot = -1,
	    .since = EPOCH_NONE,
	    .until = EPOCH_NONE};
}

/* One who holds or waits, of whom a block tells. */
static struct entry
person_entry(enum entry_kind kind, const char *key, const struct line *l, int64_t byte,
    const struct block *who)
{
	struct entry e = empty_entry(kind, key);

	e.lock = line_kind(byte);
	e.limit = e.lock == KIND_LIMIT ? l->limit : 0;
	e.token = (uint64_t)who->token;
	e.owner = known_text(who->owner);
	e.record = known_text(who->record);
	e.since = known_time(who->granted);
	return e;
}

/* ---- one key ---- */

static void
see_each_holder(struct looking *g, const char *key, const struct line *l)
{
	static const struct foreign stranger = {
	    .what = "a lock of another program on the file"};

	for (size_t i = 0; i < l->n && !g->over; i++) {
		const struct line_holder *h = &l->holders[i];
		struct block who, mark;
		struct entry e;

		line_who(l, h, &who);
		e = person_entry(ENTRY_HOLDER, key, l, h->byte, &who);
		e.slot = e.lock == KIND_LIMIT ? (int)NUMBER_OF(h->byte) : -1;
		e.revoked = h->at >= 0 && block_is_marked(l->fd, h->at, h->token, &mark);
		e.asker = e.revoked ? known_text(mark.record) : NULL;
		e.foreign = h->foreign ? &stranger : NULL;
		see_entry(g, &e);
	}
}

/* In a brief look no more than how many there are, and that only until it is late. */
static void
see_waiters(struct looking *g, const char *key, const struct line *l)
{
	struct entry count = empty_entry(ENTRY_WAITING, key), e;
	struct line_waiter w = {.position = 0};

	while (l->used && !g->over && line_wait(l, &w)) {
		struct block who;

		if (g->look->brief) {
			if (instant_now() >= g->look->until)
				break;
			continue;
		}
		if (!block_find(l->fd, w.byte, &who))
			who = (struct block){.next = 1};
		who.token = 0;
		e = person_entry(ENTRY_WAITER, key, l, w.byte, &who);
		e.position = w.position;
		see_entry(g, &e);
	}
	count.count = w.position;
	if (g->look->brief && w.position > 0)
		see_entry(g, &count);
}

static bool
see_run(void *ctx, enum entry_kind kind, const struct run *run)
{
	struct looking *g = ctx;
	struct entry e = empty_entry(kind, g->key);
	char id[ONCE_BYTES + 1] = "";

	if (encode_undo(id, sizeof id, run->id, strlen(run->id)) < 0)
		id[0] = '\0';
	e.token = (uint64_t)run->token;
	e.record = run->record;
	e.since = run->begin;
	e.until = run->end;
	e.once = known_text(id);
	e.status = run->status;
	see_entry(g, &e);
	return !g->over;
}

/* RC_LOST: nothing is remembered.  Otherwise *why says why it cannot be read. */
static enum rc
see_runs(struct looking *g, const char *key, struct fault *why)
{
	char name[NAME_BYTES];

	file_name(name, key, runs_suffix);
	g->key = key;
	return runs_look(&g->f->dir, name, g->look->jobs, see_run, g, why);
}

/* What uses the key is no lock, or not one to be trusted. */
static void
see_unknown(struct looking *g, const char *key, const char *what)
{
	struct entry e = empty_entry(ENTRY_UNKNOWN, key);

	e.what = what;
	see_entry(g, &e);
}

static void
look_at_file(struct looking *g, const char *key, int fd)
{
	struct entry freeze = empty_entry(ENTRY_FREEZE, key);
	struct line l;
	int got = line_read(&l, fd, TICKET_OF_A_LOOK, false, instant_epoch());

	if (got < 0) {
		end_look(g,
		    directory_failed(&g->f->dir, "cannot look at the queue", g->fault));
	} else if (got == 0) {
		see_unknown(g, key, "a file that dlock has not written");
	} else {
		see_each_holder(g, key, &l);
		see_waiters(g, key, &l);
		freeze.record = known_text(l.freeze.record);
		freeze.since = known_time(l.freeze.granted);
		if (l.freeze.freeze != FREEZE_FOREVER)
			freeze.until = l.freeze.freeze;
		if (l.frozen)
			see_entry(g, &freeze);
	}
	line_free(&l);
}

static void
note_hidden(struct looking *g, const char *path)
{
	if (g->hidden++ == 0)
		snprintf(g->first_hidden, sizeof g->first_hidden, "%s", path);
}

/* Is it there, and not ours to read?  Then it may well be a lock that somebody holds. */
static bool
is_hidden(struct looking *g, const char *path)
{
	if (faccessat(g->f->dir.fd, path, R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) == 0 ||
	    (errno != EACCES && errno != EPERM))
		return false;
	note_hidden(g, path);
	return true;
}

/* The lock file `path`.  What is there and not to be trusted is no lock of ours. */
static void
look_at_path(struct looking *g, const char *key, const char *path)
{
	int fd;
	enum rc rc = directory_open_file(&g->f->dir, path, DIRECTORY_LOOK, &fd, g->fault);

	if (rc == RC_OK) {
		look_at_file(g, key, fd);
		close(fd);
	} else if (rc == RC_DENIED && !is_hidden(g, path)) {
		see_unknown(g, key, g->fault->text);
	} else if (rc != RC_DENIED && rc != RC_LOST) {
		end_look(g, rc);
	}
}

/* ---- all keys ---- */

/*
 * The key of a lock file's path, or of that of its runs.  False: none that we would keep
 * there, also since it can be none.
 */
static bool
key_of_path(char key[KEY_BYTES + 1], const char *path, const char *end)
{
	char encoded[NAME_BYTES], back[NAME_BYTES];
	size_t n = 0;

	for (const char *c = path; *c && n + 1 < sizeof encoded; c++)
		if (*c != '+' && *c != '/')
			encoded[n++] = *c;
	if (n < strcspn(end, "/") ||
	    !encode_read_key(key, encoded, n - strcspn(end, "/")))
		return false;
	file_name(back, key, end);
	return strcmp(back, path) == 0;
}

static bool
ends_in(const char *name, size_t n, const char *end)
{
	size_t m = strlen(end);

	return n > m && strcmp(name + n - m, end) == 0;
}

/* The name of a lock file, or of a directory of runs, where these are looked at. */
static void
look_by_name(struct looking *g, char *path, const char *name, size_t length)
{
	char key[KEY_BYTES + 1];
	size_t n = strcspn(runs_suffix, "/");
	enum rc rc;

	if (!g->look->jobs) {
		if (ends_in(name, length, suffix) && key_of_path(key, path, suffix))
			look_at_path(g, key, path);
		return;
	}
	if (length <= n || strncmp(name + length - n, runs_suffix, n) != 0)
		return;
	n = strlen(path);
	memcpy(path + n, "/", sizeof "/");
	if (!key_of_path(key, path, runs_suffix))
		return;
	rc = see_runs(g, key, g->fault);
	if (rc == RC_DENIED)
		note_hidden(g, path);
	else if (rc != RC_OK && rc != RC_LOST)
		end_look(g, rc);
}

/*
 * All in the directory to which `path` leads, with a slash behind it, in `n` bytes; and in
 * those of longer keys below it.  One that is not to be trusted has none of ours.
 */
static void
walk_directory(struct looking *g, char *path, size_t n)
{
	const struct dirent *entry;
	DIR *list;
	enum rc rc = directory_list(&g->f->dir, path, &list, g->fault);

	if (rc == RC_DENIED && n > 0) {
		path[n - 1] = '\0'; /* it itself, and not what a link leads to */
		is_hidden(g, path);
	} else if (rc != RC_OK && rc != RC_LOST) {
		end_look(g, rc);
	}
	if (rc != RC_OK)
		return;
	while (!g->over && (entry = readdir(list))) {
		const char *name = entry->d_name;
		size_t length = strlen(name);
		bool is_step = length == NAME_CHUNK + 1 && ends_in(name, length, "+");

		if (n + length + 2 > NAME_BYTES)
			continue;
		snprintf(path + n, NAME_BYTES - n, is_step ? "%s/" : "%s", name);
		if (is_step)
			walk_directory(g, path, n + length + 1);
		else
			look_by_name(g, path, name, length);
		stop_late(g);
	}
	closedir(list);
}

static enum rc
file_each(struct store *s, const struct look *look, struct fault *fault)
{
	struct file *f = file_of(s);
	struct looking g = {.f = f, .look = look, .fault = fault, .rc = RC_OK};
	enum rc rc = directory_open(&f->dir, DIRECTORY_LOOK, fault), last = RC_OK;
	char path[NAME_BYTES] = "", more[48] = "";
	struct fault ignored;

	if (rc == RC_OK && look->key) {
		file_name(path, look->key, suffix);
		look_at_path(&g, look->key, path);
		if (!g.over)
			last = see_runs(&g, look->key, look->success ? fault : &ignored);
		if (look->success && last != RC_OK && last != RC_LOST && !g.over)
			end_look(&g, last);
	} else if (rc == RC_OK) {
		walk_directory(&g, path, 0);
	} else if (rc != RC_LOST) { /* it has not been made yet */
		return rc;
	}
	if (g.hidden > 1)
		snprintf(more, sizeof more, " (and %" PRIu64 " more)", g.hidden - 1);
	/* of what could not be read, nobody is to think that it is free */
	if (g.hidden && !g.over)
		end_look(&g,
		    fault_set(fault, RC_DENIED,
			"%s: Permission denied: this user may not read %.60s%s, the only record of %s",
			f->dir.where, g.first_hidden, more,
			look->jobs ? "what was run" : "who holds the lock"));
	if (g.rc == RC_OK)
		fault->text[0] = '\0';
	return g.rc;
}

/* ---- for who waits ---- */

/*
 * Shows who holds the lock, and who is before us.  Where nobody holds it, the first in
 * line is just about to, unless the lock is frozen; nobody shows us more when he does.
 */
void
file_show_line(struct file *f)
{
	struct holding *seen = &f->base.host->seen.holding;
	int64_t first, now = instant_epoch();
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

/* ---- steering ---- */

static enum rc
open_entered(struct file *f, const char *key, enum directory_use use, struct block *h,
    instant until, struct fault *fault)
{
	enum rc rc;

	f->claim = NULL;
	f->use = use;
	file_name(f->name, key, suffix);
	rc = file_open_all(f, fault);
	if (rc == RC_OK)
		rc = file_enter(f, h, until, fault);
	if (rc == RC_BUSY)
		return fault_set(fault, RC_AGAIN,
		    "%s: another process keeps %.60s locked: is a dlock stopped (STAT T in ps)?",
		    f->dir.where, f->name);
	return rc;
}

static enum rc
leave_closed(struct file *f, enum rc rc)
{
	file_leave(f);
	file_close_lock(f);
	return rc;
}

/* ---- marks ---- */

static bool
is_target(const struct target *t, const struct block *who)
{
	return who->token > 0 && (t->token > 0 || t->owner) &&
	    (t->token == 0 || t->token == (uint64_t)who->token) &&
	    (!t->owner || strcmp(t->owner, who->owner) == 0);
}

static enum rc
mark_grant(
    struct file *f, const struct target *t, const char *record, struct fault *fault)
{
	struct line l;
	struct block who;
	int got = line_read(&l, f->fd, TICKET_OF_A_LOOK, false, instant_epoch());
	off_t at = -1;

	for (size_t i = 0; got > 0 && at < 0 && i < l.n; i++) {
		line_who(&l, &l.holders[i], &who);
		if (is_target(t, &who))
			at = l.holders[i].at;
	}
	line_free(&l);
	if (got < 0)
		return directory_failed(&f->dir, "cannot look at the queue", fault);
	if (at < 0)
		return fault_set(fault, RC_LOST, "%s: this holder no longer has the lock",
		    f->dir.where);
	who.granted = instant_epoch();
	who.freeze = 0;
	snprintf(who.record, sizeof who.record, "%s", record);
	return file_write(f, &who, block_mark(at), fault);
}

static enum rc
file_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block h;
	enum rc rc = open_entered(f, t->key, DIRECTORY_CHANGE, &h, until, fault);

	(void)force; /* never asked for: there is no CAP_FORCE */
	return leave_closed(f, rc == RC_OK ? mark_grant(f, t, record, fault) : rc);
}

/* ---- freezes ---- */

/* Says in the header whether the lock is frozen. */
static enum rc
write_frozen(struct file *f, struct block *h, int frozen, struct fault *fault)
{
	enum rc rc;

	h->freeze = frozen;
	rc = file_write(f, h, BLOCK_HEADER, fault);
	if (rc == RC_OK && fdatasync(f->fd) != 0)
		rc = directory_failed(
		    &f->dir, "cannot write the freeze to the disk", fault);
	return rc;
}

/* The block first: it says nothing, or replaces what it said, until the header does. */
static enum rc
file_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block h, freeze = {.next = 1};
	enum rc rc = open_entered(f, key, DIRECTORY_MAKE, &h, until, fault);

	freeze.granted = instant_epoch();
	freeze.freeze = length == NEVER ||
		length / 1000 >= FREEZE_FOREVER - freeze.granted
	    ? FREEZE_FOREVER
	    : freeze.granted + length / 1000;
	snprintf(freeze.record, sizeof freeze.record, "%s", record);
	if (rc == RC_OK)
		rc = file_write(f, &freeze, BLOCK_FREEZE, fault);
	return leave_closed(f, rc == RC_OK ? write_frozen(f, &h, 1, fault) : rc);
}

/* Those who wait are told when the file is closed, at the latest. */
static enum rc
file_thaw(struct store *s, const char *key, instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block h, freeze;
	enum rc rc = open_entered(f, key, DIRECTORY_CHANGE, &h, until, fault);

	if (rc == RC_OK && !block_is_frozen(f->fd, &h, instant_epoch(), &freeze))
		rc = fault_set(fault, RC_LOST, "%s: it is not frozen", f->dir.where);
	return leave_closed(f, rc == RC_OK ? write_frozen(f, &h, 0, fault) : rc);
}

/* ---- runs ---- */

/* A lock file is made for it only where something is remembered. */
static enum rc
file_forget(struct store *s, const char *key, const char *once, instant until,
    struct fault *fault)
{
	struct file *f = file_of(s);
	char name[NAME_BYTES];
	struct block h;
	const char *behind;
	int at;
	enum rc rc = directory_open(&f->dir, DIRECTORY_CHANGE, fault);

	file_name(name, key, runs_suffix);
	if (rc == RC_OK)
		rc = directory_open_steps(
		    &f->dir, name, DIRECTORY_CHANGE, &at, &behind, fault);
	if (rc != RC_OK)
		return rc;
	directory_close_steps(&f->dir, at);
	rc = open_entered(f, key, DIRECTORY_MAKE, &h, until, fault);
	return leave_closed(
	    f, rc == RC_OK ? runs_forget(&f->dir, name, once, fault) : rc);
}

/* ---- what others have ---- */

/* flock(1) names a file by its path, and a lock of ours has another one, for its key. */
static enum rc
file_beside(struct store *s, const char *key, instant until, struct fault *advice)
{
	struct stat st;

	(void)s, (void)until;
	if (*key != '/' || stat(key, &st) != 0)
		return RC_LOST;
	return fault_set(advice, RC_OK,
	    "the key is a name, and not the file %.200s: -O path=FILE takes the lock that flock(1) and others take on it (dlock-joins(7))",
	    key);
}

const struct admin_ops file_admin = {
    file_each, file_revoke, file_freeze, file_thaw, file_forget, file_check, file_beside};
