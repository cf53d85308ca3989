/* waiting.c - says while dlock waits which run has the lock, for how long, and when we got it. */
#include "waiting.h"

#include "cmd/parse.h"
#include "cmd/record.h"
#include "cmd/say.h"
#include "cmd/text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LIVE_FIRST (300 * NS_PER_MS) /* a lock that comes at once draws nothing */
#define LIVE_AGAIN NS_PER_S
#define PLAIN_FIRST (3 * NS_PER_S)
#define PLAIN_AGAIN (60 * NS_PER_S)
/* to the end of the screen: where a line was broken, its rest is below */
#define ERASE "\r\033[J"

/*
 * A line drawn from the background would run through what the user types.  In a CI job nobody
 * looks at the terminal, and each time that it is drawn is a line of a log.
 */
static bool
is_foreground(void)
{
	const char *term = getenv("TERM"), *ci = getenv("CI");

	if (ci && *ci && strcmp(ci, "false") != 0)
		return false;
	return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp() && term &&
	    *term && strcmp(term, "dumb") != 0;
}

void
waiting_begin(struct waiting *g, const struct plan *p, const struct shared *s,
    instant began, bool has_tty)
{
	instant now = instant_now();

	g->plan = p;
	g->shared = s;
	g->began = began;
	g->line.next = g->seen.held_since = NEVER;
	g->seen.key = p->keys[0];
	if (p->show.quiet)
		return;
	g->line.live = has_tty && is_foreground();
	g->line.next = now + (g->line.live ? LIVE_FIRST : PLAIN_FIRST);
}

/* Does nobody have the key but the person that has frozen it?  Then that is its holder here. */
static bool
is_frozen(const struct waiting *g)
{
	return g->seen.holding.frozen && g->seen.holding.holders == 0;
}

bool
waiting_freeze_end(const struct holding *h, int64_t *end)
{
	struct record r;
	json_t *root = record_read(&r, h->record);

	json_decref(root);
	*end = EPOCH_NONE;
	if (r.for_ms > 0 && h->held >= 0)
		*end = epoch_now() + r.for_ms * 1000 - h->held / 1000;
	return r.for_ms == -1 || *end != EPOCH_NONE;
}

void
waiting_heard(struct waiting *g, const struct msg *m)
{
	int64_t end;

	if (m->kind == MSG_NOTICE) {
		g->seen.noticed = true;
		waiting_pause(g);
		return;
	}
	g->seen.key = g->plan->keys[m->key];
	if (m->kind == MSG_RETRYING) {
		text_clean(
		    g->seen.trouble, sizeof g->seen.trouble, m->text, strlen(m->text));
		return;
	}
	*g->seen.trouble = '\0';
	g->seen.named = *m->holding.record != '\0';
	g->seen.position = m->number;
	g->seen.holding = m->holding;
	g->seen.held_since = m->holding.held >= 0 ? instant_now() - m->holding.held
						  : NEVER;
	if (g->seen.named)
		record_describe(m->holding.record, g->seen.holder, sizeof g->seen.holder);
	*g->seen.until = '\0';
	if (g->seen.named && is_frozen(g) && waiting_freeze_end(&m->holding, &end))
		snprintf(
		    g->seen.until, sizeof g->seen.until, ", %s", text_until(end).text);
}

/*
 * "all 4 slots are", "both slots are", "the only slot is", "2 of 4 slots are": what
 * the holders of a limited lock have taken; else "".
 */
static void
describe_slots(const struct holding *h, char *out, size_t size)
{
	*out = '\0';
	if (h->kind != KIND_LIMIT || h->limit == 0 || h->holders == 0)
		return;
	if (h->holders < h->limit)
		snprintf(out, size, "%u of %u slots %s", h->holders, h->limit,
		    h->holders == 1 ? "is" : "are");
	else if (h->limit == 1)
		snprintf(out, size, "the only slot is");
	else if (h->limit == 2)
		snprintf(out, size, "both slots are");
	else
		snprintf(out, size, "all %u slots are", h->limit);
}

/* What comes before the name of the one holder that we know. */
static void
describe_others(const struct holding *h, char *out, size_t size)
{
	*out = '\0';
	if (h->kind == KIND_SHARED && h->holders == 1)
		snprintf(out, size, "a reader, ");
	else if (h->kind == KIND_SHARED && h->holders > 1)
		snprintf(out, size, "%u readers, first ", h->holders);
	else if (h->kind == KIND_SHARED)
		snprintf(out, size, "readers, first ");
	else if (h->kind == KIND_LIMIT && h->limit > 0 && h->holders > 0)
		snprintf(out, size, "%s", h->holders == 1 ? "by " : "first ");
}

/* Is there room for what we ask for?  Then somebody else waits before us. */
static bool
has_free_place(const struct waiting *g)
{
	const struct holding *h = &g->seen.holding;

	if (h->holders == 0 || h->kind != g->plan->claim.kind)
		return false;
	return h->kind == KIND_SHARED || (h->kind == KIND_LIMIT && h->holders < h->limit);
}

/* Beginning with " is" or ": ", unless `is` is "". */
static const char *
describe_state(
    const struct waiting *g, const char *is, const char *still, char *out, size_t size)
{
	const struct holding *h = &g->seen.holding;
	const char *gap = *is ? " " : "";
	char others[40], slots[48], holder[STATE_BYTES - 120];

	describe_others(h, others, sizeof others);
	describe_slots(h, slots, sizeof slots);
	snprintf(holder, sizeof holder, "%s%s%s%s%s%s%s", others,
	    g->seen.named ? g->seen.holder : "somebody",
	    g->seen.held_since == NEVER ? "" : " for ",
	    g->seen.held_since == NEVER
		? ""
		: parse_span(instant_now() - g->seen.held_since).text,
	    g->seen.until,
	    has_free_place(g) && !h->frozen ? " (and another run waits already)" : "",
	    h->frozen && h->holders ? " (and the key is frozen)" : "");
	if (*slots)
		snprintf(out, size, "%s%s%s%s taken, %s", *is ? ":" : "", gap, slots,
		    still, holder);
	else
		snprintf(out, size, "%s%s%s%s by %s", is, still, gap,
		    is_frozen(g) ? "frozen" : "held", holder);
	return out;
}

const char *
waiting_state(const struct waiting *g, bool still, char *out, size_t size)
{
	return describe_state(g, " is", still ? " still" : "", out, size);
}

/* What we wait for: the server, if we have not heard of anybody yet, or the holder. */
static void
describe_cause(const struct waiting *g, char *out, size_t size)
{
	const struct clean server = text_shown(shared_where(g->shared));

	if (*g->seen.trouble)
		snprintf(out, size, "%s, trying again", g->seen.trouble);
	else if (g->seen.named || g->seen.position || g->seen.holding.holders ||
	    is_frozen(g))
		describe_state(g, "", "", out, size);
	else if (g->seen.noticed)
		snprintf(out, size, "not granted yet, see above");
	else
		snprintf(out, size, "no answer yet%s%s", *server.text ? " from " : "",
		    server.text);
}

/* A state, a key of 400 bytes, and the words around them. */
enum { WAIT_BYTES = STATE_BYTES + 520 };

/*
 * "waiting 41s, next in line for deploy; held by ...": what changes comes first, what
 * may be cut off last.
 */
static void
describe_wait(const struct waiting *g, instant now, char *out, size_t size)
{
	char cause[STATE_BYTES], place[48] = "";

	describe_cause(g, cause, sizeof cause);
	if (g->seen.position == 1)
		snprintf(place, sizeof place, ", next in line");
	else if (g->seen.position)
		snprintf(place, sizeof place, ", number %u in line", g->seen.position);
	snprintf(out, size, "waiting %s%s for %s; %s", parse_span(now - g->began).text,
	    place, text_key(g->seen.key).text, cause);
}

/* The last column stays free: some terminals break a line that is full. */
static void
draw_line(struct waiting *g, instant now)
{
	struct winsize w = {0};
	char text[WAIT_BYTES] = "dlock: ", line[WAIT_BYTES + 20];
	int n;

	describe_wait(g, now, text + strlen(text), sizeof text - strlen(text));
	ioctl(STDERR_FILENO, TIOCGWINSZ, &w);
	text_fit(text, (w.ws_col ? w.ws_col : 80) - 1);
	n = snprintf(line, sizeof line, ERASE "%s\r", text);
	if (say_bytes(STDERR_FILENO, line, n, SAY_AT_ONCE) == (size_t)n)
		g->line.drawn = true;
}

void
waiting_pause(struct waiting *g)
{
	if (g->line.drawn &&
	    say_bytes(STDERR_FILENO, ERASE, strlen(ERASE), SAY_AT_ONCE) == strlen(ERASE))
		g->line.drawn = false;
}

void
waiting_tick(struct waiting *g, instant now)
{
	char text[WAIT_BYTES];

	if (now < g->line.next)
		return;
	if (g->line.live) {
		if (is_foreground())
			draw_line(g, now);
		g->line.next = now + LIVE_AGAIN;
		return;
	}
	describe_wait(g, now, text, sizeof text);
	say("%s", text);
	g->line.spoken = true;
	g->line.next = now + PLAIN_AGAIN;
}

void
waiting_end(struct waiting *g, uint64_t token)
{
	instant waited = instant_now() - g->began;
	char number[40] = "";

	waiting_pause(g);
	g->line.next = NEVER;
	if (!token || !(g->line.spoken || (g->line.live && waited > NS_PER_S)))
		return;
	if (g->plan->show.verbose)
		snprintf(number, sizeof number, " (token %" PRIu64 ")", token);
	say("got %s after %s%s", plan_name(g->plan).text, parse_span(waited).text,
	    number);
}
