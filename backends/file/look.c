/*
 * look.c - tells what is held, waited for and frozen in the directory.
 *
 * Files are opened for reading only, and only those that could be ours; no lock is
 * taken, so that nobody waits for a look.
 */
#include "line.h"
#include "runs.h"
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char suffix[] = ".lock";

/* One look; `over` when nobody wants to know more, or something failed. */
struct looking {
	struct file *f;
	const struct look *look;
	struct fault *fault;
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
		    fault_set(g->fault, RC_AGAIN, "%s: to look at all took too long",
			g->f->dir.where));
}

static void
see_entry(struct looking *g, const struct entry *e)
{
	if (!g->over && !g->look->see(g->look->ctx, e, file_now()))
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
		struct block who = {.next = 1};

		if (g->look->brief && instant_now() < g->look->until)
			continue;
		if (g->look->brief)
			break;
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

static void
see_freeze(struct looking *g, const char *key, const struct line *l)
{
	struct entry e = empty_entry(ENTRY_FREEZE, key);

	e.record = known_text(l->freeze.record);
	e.since = known_time(l->freeze.granted);
	if (l->freeze.freeze != FREEZE_FOREVER)
		e.until = l->freeze.freeze;
	if (l->frozen)
		see_entry(g, &e);
}

static void
see_unknown(struct looking *g, const char *key, const char *what)
{
	struct entry e = empty_entry(ENTRY_UNKNOWN, key);

	e.what = what;
	see_entry(g, &e);
}

static void
see_last(struct looking *g, const char *key)
{
	char name[NAME_BYTES], id[ONCE_BYTES + 1] = "";
	struct entry e = empty_entry(ENTRY_LAST, key);
	struct run run;

	file_name(name, key, ".runs");
	if (g->over || !runs_last(&g->f->dir, name, &run))
		return;
	if (encode_undo(id, sizeof id, run.id, strlen(run.id)) < 0)
		id[0] = '\0';
	e.token = (uint64_t)run.token;
	e.record = run.record;
	e.since = run.begin;
	e.until = run.end;
	e.once = known_text(id);
	e.status = run.status;
	see_entry(g, &e);
}

static void
look_at_file(struct looking *g, const char *key, int fd)
{
	struct line l;
	int got = line_read(&l, fd, TICKET_OF_A_LOOK, false, file_now());

	if (got < 0) {
		end_look(g,
		    directory_failed(&g->f->dir, "cannot look at the queue", g->fault));
	} else if (got == 0) {
		see_unknown(g, key, "a file that no dlock has written");
	} else {
		see_each_holder(g, key, &l);
		see_waiters(g, key, &l);
		see_freeze(g, key, &l);
	}
	line_free(&l);
}

/* Is it there, and not ours to read?  Then it may well be a lock that somebody holds. */
static bool
is_hidden(int at, const char *path)
{
	return faccessat(at, path, R_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW) != 0 &&
	    (errno == EACCES || errno == EPERM);
}

static void
note_hidden(struct looking *g, const char *name)
{
	if (g->hidden++ == 0)
		snprintf(g->first_hidden, sizeof g->first_hidden, "%s", name);
}

/* Of what could not be read, nobody is to think that it is free. */
static void
refuse_hidden(struct looking *g)
{
	char more[48] = "";

	if (g->hidden > 1)
		snprintf(more, sizeof more, " (and %" PRIu64 " more)", g->hidden - 1);
	end_look(g,
	    fault_set(g->fault, RC_DENIED,
		"%s: Permission denied: %.60s may not be read%s, and says alone who holds it",
		g->f->dir.where, g->first_hidden, more));
}

/*
 * The file `path` below `at` has been opened, or not.  What is there and not to be
 * trusted is no lock of ours.
 */
static void
look_at_opened(
    struct looking *g, const char *key, int at, const char *path, enum rc rc, int fd)
{
	if (rc == RC_OK) {
		look_at_file(g, key, fd);
		close(fd);
	} else if (rc == RC_DENIED && is_hidden(at, path)) {
		note_hidden(g, path);
	} else if (rc == RC_DENIED) {
		see_unknown(g, key, g->fault->text);
	} else if (rc != RC_LOST) {
		end_look(g, rc);
	}
}

/* ---- all keys ---- */

/*
 * The key of a lock file's path.  False: none that we would keep there, also since it
 * can be none.
 */
static bool
key_of_path(char key[KEY_BYTES + 1], const char *path)
{
	char encoded[NAME_BYTES], back[NAME_BYTES];
	size_t n = 0;

	for (const char *c = path; *c && n + 1 < sizeof encoded; c++)
		if (*c != '+' && *c != '/')
			encoded[n++] = *c;
	if (n < strlen(suffix) ||
	    encode_undo(key, KEY_BYTES + 1, encoded, n - strlen(suffix)) <= 0)
		return false;
	for (const unsigned char *c = (const unsigned char *)key; *c; c++)
		if (*c < ' ' || *c == 0x7F)
			return false;
	file_name(back, key, suffix);
	return strcmp(back, path) == 0;
}

static bool
ends_in(const char *name, size_t n, const char *end)
{
	size_t m = strlen(end);

	return n > m && strcmp(name + n - m, end) == 0;
}

static void walk_directory(struct looking *g, int at, char *path, size_t n);

/* The directory of longer keys.  One that is not to be trusted has none of ours. */
static void
walk_below(struct looking *g, int above, char *path, size_t n, const char *step)
{
	int at;
	enum rc rc = directory_open_step(
	    &g->f->dir, above, step, DIRECTORY_LOOK, &at, g->fault);

	if (rc == RC_OK) {
		walk_directory(g, at, path, n);
		close(at);
	} else if (rc == RC_SYSTEM) {
		end_look(g, rc);
	} else if (rc == RC_DENIED && is_hidden(above, step)) {
		note_hidden(g, step);
	}
}

/* `path` leads to the directory, `n` are its bytes. */
static void
look_at_name(struct looking *g, int at, char *path, size_t n, const char *name)
{
	char key[KEY_BYTES + 1];
	size_t length = strlen(name);
	bool is_lock = ends_in(name, length, suffix),
	     is_step = length == NAME_CHUNK + 1 && ends_in(name, length, "+");
	int fd = -1;
	enum rc rc;

	if (n + length + 2 > NAME_BYTES)
		return;
	snprintf(path + n, NAME_BYTES - n, is_step ? "%s/" : "%s", name);
	if (is_lock && key_of_path(key, path)) {
		rc = directory_open_leaf(
		    &g->f->dir, at, name, DIRECTORY_LOOK, &fd, g->fault);
		look_at_opened(g, key, at, name, rc, fd);
	} else if (is_step) {
		walk_below(g, at, path, n + length + 1, name);
	}
}

static void
walk_directory(struct looking *g, int at, char *path, size_t n)
{
	DIR *d = directory_list(at);
	const struct dirent *entry;

	if (!d) {
		end_look(g, directory_failed(&g->f->dir, "cannot list it", g->fault));
		return;
	}
	while (!g->over && (entry = readdir(d))) {
		look_at_name(g, at, path, n, entry->d_name);
		stop_late(g);
	}
	closedir(d);
}

static void
look_at_key(struct looking *g)
{
	const char *key = g->look->key;
	char path[NAME_BYTES];
	int fd = -1;
	enum rc rc;

	file_name(path, key, suffix);
	rc = directory_open_file(&g->f->dir, path, DIRECTORY_LOOK, &fd, g->fault);
	look_at_opened(g, key, g->f->dir.fd, path, rc, fd);
	see_last(g, key);
}

enum rc
file_each(struct store *s, const struct look *look, struct fault *fault)
{
	struct file *f = file_of(s);
	struct looking g = {.f = f, .look = look, .fault = fault, .rc = RC_OK};
	enum rc rc = directory_open(&f->dir, DIRECTORY_LOOK, fault);
	char path[NAME_BYTES];

	if (rc == RC_OK && look->key)
		look_at_key(&g);
	else if (rc == RC_OK)
		walk_directory(&g, f->dir.fd, path, 0);
	else if (rc != RC_LOST) /* it has not been made yet */
		return rc;
	if (g.hidden && !g.over)
		refuse_hidden(&g);
	if (g.rc == RC_OK)
		fault->text[0] = '\0';
	return g.rc;
}
