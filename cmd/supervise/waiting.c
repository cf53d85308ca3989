/*
 * waiting.c - says while dlock waits which run has the lock, for how long, and when we got it.
 *
 *	begin   chooses between a live line (waiting.h) and lines now and then
 *	heard   notes what the keeper says of the lock: who has it, what place we have
 *	tick    draws the live line again, or prints the next line, when it is time
 *	pause   erases the live line, so that something else can be said
 *	end     erases it for good, and says after a long wait that the lock is ours
 */
#include "waiting.h"

#include "cmd/parse.h"
#include "cmd/say.h"
#include "cmd/text.h"

#include <inttypes.h>
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
 * The terminal may become narrower between the question for its size and the line.  With its
 * wrap off it cuts the line; otherwise a row would be left above the one that we erase.
 */
#define WRAP_OFF "\033[?7l"
#define WRAP_ON "\033[?7h"

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
waiting_begin(struct waiting *g, const struct params *p, const struct page *s,
    instant began, bool has_tty)
{
	instant now = instant_now();

	g->params = p;
	g->page = s;
	g->began = began;
	g->line.next = NEVER;
	g->seen.held.ns = -1;
	g->seen.key = p->keys[0];
	if (p->show.quiet)
		return;
	g->line.live = has_tty && is_foreground();
	g->line.next = now + (g->line.live ? LIVE_FIRST : PLAIN_FIRST);
}

void
waiting_heard(struct waiting *g, const struct msg *m)
{
	if (m->kind == MSG_NOTICE) {
		g->seen.noticed = true;
		waiting_pause(g);
		return;
	}
	g->seen.key = m->key < KEYS_MAX ? g->params->keys[m->key] : g->params->keys[0];
	g->seen.gate = m->key < KEYS_MAX ? NULL : params_awaited(g->params, m->key);
	if (m->kind == MSG_RETRYING) {
		text_clean(
		    g->seen.trouble, sizeof g->seen.trouble, m->text, strlen(m->text));
		return;
	}
	*g->seen.trouble = '\0';
	g->seen.position = m->number;
	g->seen.at = instant_now();
	held_of_holding(&g->seen.held, &m->holding);
	held_ask(&g->seen.held, &g->params->claim);
}

/* It has been held for some time longer since we have heard of it. */
static struct held
held_now(const struct waiting *g)
{
	struct held h = g->seen.held;
	int64_t since = instant_now() - g->seen.at;

	if (h.ns >= 0)
		h.ns += since;
	h.now += since / 1000;
	return h;
}

/* "all-deploys is frozen by bob for 3m, until dlock thaw" */
static const char *
describe_gate(const struct waiting *g, const struct held *h, bool still, char *out)
{
	char name[120], says[HELD_BYTES];

	snprintf(out, HELD_BYTES, "%s%.*s", text_name(name, sizeof name, g->seen.gate),
	    HELD_BYTES - 130, held_says(h, still, says));
	return out;
}

const char *
waiting_state(const struct waiting *g, bool still, char *out)
{
	const struct held h = held_now(g);
	char gate[HELD_BYTES];

	if (!g->seen.gate)
		return held_says(&h, still, out);
	snprintf(out, HELD_BYTES, ": %.*s", HELD_BYTES - 10,
	    describe_gate(g, &h, still, gate));
	return out;
}

/* Says what we wait for: the server, if we have not heard of anybody yet, or the holder. */
static void
describe_cause(const struct waiting *g, char *out)
{
	const struct clean server = text_shown(page_where(g->page));
	const struct held h = held_now(g);

	if (*g->seen.trouble)
		snprintf(out, HELD_BYTES, "%s, trying again", g->seen.trouble);
	else if (g->seen.gate)
		describe_gate(g, &h, false, out);
	else if (*h.who || g->seen.position || h.holders || h.state == HELD_FROZEN)
		held_words(&h, out);
	else if (g->seen.noticed)
		snprintf(out, HELD_BYTES, "not granted yet, see above");
	else
		snprintf(out, HELD_BYTES, "no answer yet%s%s",
		    *server.text ? " from " : "", server.text);
}

/* A state, a key of 400 bytes, and the words around them. */
enum { WAIT_BYTES = HELD_BYTES + 520 };

/*
 * "waiting 41s, next in line for deploy; held by ...": what changes comes first, what
 * may be cut off last.
 */
static void
describe_wait(const struct waiting *g, instant now, char *out, size_t size)
{
	char cause[HELD_BYTES], place[48] = "";

	describe_cause(g, cause);
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
	char text[WAIT_BYTES] = "dlock: ", line[WAIT_BYTES + 40];
	int n;

	describe_wait(g, now, text + strlen(text), sizeof text - strlen(text));
	ioctl(STDERR_FILENO, TIOCGWINSZ, &w);
	text_fit(text, (w.ws_col ? w.ws_col : 80) - 1);
	n = snprintf(line, sizeof line, WRAP_OFF ERASE "%s\r" WRAP_ON, text);
	if (say_bytes(STDERR_FILENO, line, n, SAY_AT_ONCE) > 0)
		g->line.drawn =
		    true; /* if only in part: the wrap is off until it is erased */
}

void
waiting_pause(struct waiting *g)
{
	static const char erase[] = WRAP_ON ERASE;

	if (g->line.drawn &&
	    say_bytes(STDERR_FILENO, erase, strlen(erase), SAY_AT_ONCE) == strlen(erase))
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
	if (g->params->show.verbose)
		snprintf(number, sizeof number, " (token %" PRIu64 ")", token);
	say("got %s after %s%s", params_keys(g->params).text, parse_span(waited).text,
	    number);
}
