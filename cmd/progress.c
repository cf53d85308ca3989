/* progress.c - see progress.h. */
#include "progress.h"

#include "parse.h"
#include "record.h"
#include "say.h"
#include "text.h"

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

/* A line drawn from the background would run through what the user types. */
static bool
is_foreground(void)
{
	const char *term = getenv("TERM");

	return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp() && term && *term &&
	    strcmp(term, "dumb") != 0;
}

void
progress_begin(struct progress *g, const struct plan *p, bool has_tty)
{
	*g = (struct progress){.plan = p, .began = instant_now(), .held_since = NEVER, .next = NEVER};
	if (p->quiet)
		return;
	g->live = has_tty && is_foreground();
	g->next = g->began + (g->live ? LIVE_FIRST : PLAIN_FIRST);
}

void
progress_heard(struct progress *g, const struct msg *m)
{
	g->heard = *m->text != '\0';
	g->position = m->number;
	g->held_since = m->held >= 0 ? instant_now() - m->held : NEVER;
	if (g->heard)
		record_describe(m->text, g->holder, sizeof g->holder);
}

void
progress_holder(const struct progress *g, char *out, size_t size)
{
	char time[32];

	snprintf(out, size, "%s%s%s", g->heard ? g->holder : "somebody", g->held_since == NEVER ? "" : " for ",
	    g->held_since == NEVER ? "" : duration_text(instant_now() - g->held_since, time, sizeof time));
}

static void
describe(const struct progress *g, instant now, char *out, size_t size)
{
	char key[400], holder[500], waited[32], place[32] = "";

	text_clean(key, sizeof key, g->plan->keys[0], strlen(g->plan->keys[0]));
	duration_text(now - g->began, waited, sizeof waited);
	if (!g->heard) {
		snprintf(out, size, "%s: no answer yet, waited %s", key, waited);
		return;
	}
	progress_holder(g, holder, sizeof holder);
	if (g->position)
		snprintf(place, sizeof place, ", position %u", g->position);
	snprintf(out, size, "waiting for %s, held by %s%s, waited %s", key, holder, place, waited);
}

/* One line of the terminal, never two: a wrapped line cannot be erased. */
static void
draw(struct progress *g, instant now)
{
	struct winsize w = {0};
	char text[1200], line[1300];
	int n;

	describe(g, now, text, sizeof text);
	ioctl(STDERR_FILENO, TIOCGWINSZ, &w);
	n = (w.ws_col > 20 ? w.ws_col : 80) - 3 - (int)strlen("dlock: "); /* the terminal may echo "^C" behind it */
	if (n < (int)strlen(text))
		while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--; /* not through the middle of a character */
	n = snprintf(line, sizeof line, "\r\033[Kdlock: %.*s", n, text);
	if (say_bytes(STDERR_FILENO, line, n, SAY_AT_ONCE) > 0)
		g->drawn = true;
}

void
progress_pause(struct progress *g)
{
	if (g->drawn && say_bytes(STDERR_FILENO, "\r\033[K", 4, SAY_AT_ONCE) == 4)
		g->drawn = false;
}

void
progress_tick(struct progress *g, instant now)
{
	char text[1200];

	if (now < g->next)
		return;
	if (g->live) {
		if (is_foreground())
			draw(g, now);
		g->next = now + LIVE_AGAIN;
		return;
	}
	describe(g, now, text, sizeof text);
	say("%s", text);
	g->spoken = true;
	g->next = now + PLAIN_AGAIN;
}

void
progress_end(struct progress *g, uint64_t token)
{
	instant waited = instant_now() - g->began;
	char key[400], time[32];

	progress_pause(g);
	g->next = NEVER;
	if (!token || !(g->spoken || (g->live && waited > NS_PER_S)))
		return;
	text_clean(key, sizeof key, g->plan->keys[0], strlen(g->plan->keys[0]));
	say("got %s after %s (token %" PRIu64 ")", key, duration_text(waited, time, sizeof time), token);
}
