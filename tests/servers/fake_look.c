/*
 * fake_look.c - what the fake backend shows of locks: what a file says.
 *
 * Each line is an entry as dlock-admin prints it (admin.c): the kind, then name=value
 * with tabs between; \xNN is a byte.  Names that are missing are what a backend would
 * say of something unknown.  Other lines:
 *
 *	sleep MILLISECONDS      before what follows
 *	hang                    until the look is given up
 *	again TEXT              the look ends with RC_AGAIN; `denied` likewise
 *	repeat N                the entry that follows N times, with %d in its key
 */
#include "tests/servers/fake_look.h"

#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 3 << 20 };

struct line {
	struct entry entry;
	struct foreign foreign;
	int64_t now;
};

/* In place; a \x00 ends the text. */
static char *
unescape(char *text)
{
	char *to = text;

	for (char *c = text; *c; c++) {
		char digits[3] = {0};

		if (strncmp(c, "\\x", 2) == 0) {
			memcpy(digits, c + 2, 2);
			*to++ = (char)strtoul(digits, NULL, 16);
			c += 3;
		} else {
			*to++ = *c;
		}
	}
	*to = '\0';
	return text;
}

static bool
read_text(struct line *l, const char *name, const char *value)
{
	const struct {
		const char *name, **at;
	} rows[] = {{"key", &l->entry.key}, {"owner", &l->entry.owner},
	    {"record", &l->entry.record}, {"once", &l->entry.once},
	    {"asker", &l->entry.asker}, {"what", &l->entry.what},
	    {"foreign", &l->foreign.what}, {"who", &l->foreign.who},
	    {"host", &l->foreign.host}};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (strcmp(rows[i].name, name) == 0) {
			*rows[i].at = value;
			return true;
		}
	return false;
}

static void
read_number(struct line *l, const char *name, const char *value)
{
	struct entry *e = &l->entry;
	int64_t n = strtoll(value, NULL, 10);

	if (strcmp(name, "lock") == 0)
		e->lock = n;
	else if (strcmp(name, "limit") == 0)
		e->limit = n;
	else if (strcmp(name, "token") == 0)
		e->token = strtoull(value, NULL, 10);
	else if (strcmp(name, "slot") == 0)
		e->slot = n;
	else if (strcmp(name, "position") == 0)
		e->position = n;
	else if (strcmp(name, "count") == 0)
		e->count = n;
	else if (strcmp(name, "since") == 0)
		e->since = n;
	else if (strcmp(name, "until") == 0)
		e->until = n;
	else if (strcmp(name, "revoked") == 0)
		e->revoked = n;
	else if (strcmp(name, "status") == 0)
		e->status = n;
	else if (strcmp(name, "pid") == 0)
		l->foreign.pid = n;
	else if (strcmp(name, "now") == 0)
		l->now = n;
	else
		abort();
}

/* "holder\tkey=k\ttoken=7", cut up in place; false: it is no entry. */
static bool
read_line(struct line *l, char *text)
{
	static const char *const kinds[] = {"holder", "waiter", "waiting", "freeze",
	    "last", "good", "done", "shown", "unknown"};
	char *rest, *word = strtok_r(text, "\t", &rest);

	*l = (struct line){.entry = {.kind = -1,
			       .key = "",
			       .slot = -1,
			       .since = EPOCH_NONE,
			       .until = EPOCH_NONE}};
	for (size_t i = 0; word && i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(word, kinds[i]) == 0)
			l->entry.kind = i;
	if ((int)l->entry.kind < 0)
		return false;
	while ((word = strtok_r(NULL, "\t", &rest))) {
		char *value = strchr(word, '=');

		if (!value)
			abort();
		*value++ = '\0';
		if (!read_text(l, word, unescape(value)))
			read_number(l, word, value);
	}
	l->entry.foreign = l->foreign.what ? &l->foreign : NULL;
	return true;
}

static enum rc
sleep_or_stop(struct host *h, instant until, instant most, struct fault *f)
{
	while (instant_now() < until) {
		if (instant_now() >= most)
			return fault_set(f, RC_AGAIN, "fake does not answer in time");
		if (h->wait(h, -1, 0, instant_first(until, most)) == WOKE_STOP)
			return fault_set(f, RC_STOP, "told to stop");
	}
	return RC_OK;
}

/* A line that is no entry. */
static enum rc
obey(const char *line, struct store *s, const struct look *look, int *repeat,
    struct fault *f)
{
	int ms;

	if (sscanf(line, "sleep %d", &ms) == 1)
		return sleep_or_stop(
		    s->host, instant_now() + ms * NS_PER_MS, look->until, f);
	if (strcmp(line, "hang") == 0)
		return sleep_or_stop(s->host, NEVER, look_answer_by(look), f);
	if (strncmp(line, "again ", 6) == 0)
		return fault_set(f, RC_AGAIN, "%s", line + 6);
	if (strncmp(line, "denied ", 7) == 0)
		return fault_set(f, RC_DENIED, "%s", line + 7);
	if (sscanf(line, "repeat %d", repeat) == 1)
		return RC_OK;
	abort();
}

/* Is this entry asked for? */
static bool
is_wanted(const struct look *look, const struct entry *e)
{
	if (look->key)
		return strcmp(look->key, e->key) == 0;
	if (e->kind == ENTRY_LAST || e->kind == ENTRY_GOOD || e->kind == ENTRY_DONE ||
	    e->kind == ENTRY_SHOWN)
		return look->jobs;
	return !look->jobs;
}

static bool
tell(const struct look *look, struct line *l, int n)
{
	char key[2048];

	if (n < 0 || !strstr(l->entry.key, "%d"))
		return !is_wanted(look, &l->entry) ||
		    look->see(look->ctx, &l->entry, l->now);
	snprintf(key, sizeof key, "%.*s%d%s",
	    (int)(strstr(l->entry.key, "%d") - l->entry.key), l->entry.key, n,
	    strstr(l->entry.key, "%d") + 2);
	struct entry e = l->entry;

	e.key = key;
	return !is_wanted(look, &e) || look->see(look->ctx, &e, l->now);
}

enum rc
fake_look(struct store *s, const char *file, const struct look *look, struct fault *f)
{
	FILE *from = file ? fopen(file, "re") : NULL;
	char *text = malloc(LINE_BYTES);
	enum rc rc = RC_OK;
	bool more = true;
	int repeat = 0;
	uint64_t waiters = 0;

	while (from && text && rc == RC_OK && more && fgets(text, LINE_BYTES, from)) {
		struct line l;

		text[strcspn(text, "\n")] = '\0';
		if (!*text)
			continue;
		char *whole = strdup(text);

		if (!read_line(&l, text)) {
			rc = obey(whole, s, look, &repeat, f);
			free(whole);
			continue;
		}
		free(whole);
		if (look->brief && l.entry.kind == ENTRY_WAITER) {
			/* those of one key stand together: the last one tells how many */
			waiters++;
			l.entry.kind = ENTRY_WAITING;
			l.entry.count = waiters;
		} else {
			waiters = 0;
		}
		for (int i = 0; more && i < (repeat ? repeat : 1); i++)
			more = tell(look, &l, repeat ? i : -1);
		repeat = 0;
	}
	if (from)
		fclose(from);
	free(text);
	return rc;
}
