/* screen.c - draws on a terminal, in colours where there are some. */
#include "screen.h"

#include "environment.h"
#include "text.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* We were stopped and continued, and the shell has written where our picture was. */
static volatile sig_atomic_t continued;

static void
note_continued(int sig)
{
	(void)sig;
	continued = 1;
}

/* Measures the terminal, whose size may have changed. */
static void
measure(struct screen *s)
{
	struct winsize w = {0};
	size_t columns = s->columns, rows = s->rows;

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
	s->columns = w.ws_col ? w.ws_col : 80;
	s->rows = w.ws_row ? w.ws_row : 24;
	/* the terminal has wrapped the lines anew: draw on an empty screen */
	if (s->drawn && (columns != s->columns || rows != s->rows))
		s->drawn = SIZE_MAX;
}

void
screen_open(struct screen *s)
{
	const char *term = environment_get("TERM");
	bool terminal = isatty(STDOUT_FILENO) == 1,
	     able = terminal && term && strcmp(term, "dumb") != 0;

	*s = (struct screen){
	    .colours = able && !environment_get("NO_COLOR"), .moves = able};
	if (terminal)
		measure(s);
}

const char *
screen_colour(const struct screen *s, enum colour c)
{
	static const char *const codes[] = {
	    "\33[m", "\33[1m", "\33[2m", "\33[32m", "\33[33m", "\33[36m", "\33[31m"};

	return s->colours ? codes[c] : "";
}

void
screen_cut(char *line, size_t columns)
{
	size_t used = 0, left = strlen(line);
	bool coloured = false;

	while (left > 0) {
		/* a sequence that switches colours takes no column */
		size_t n = *line == '\33' ? strcspn(line, "m") + 1 : 0;
		uint32_t c = 0;
		char one[8] = "";

		if (n > 0)
			coloured = n > strlen("\33[m");
		if (n == 0) {
			n = text_next(line, left, &c);
			n = n ? n : 1;
			memcpy(one, line, n);
			used += text_columns(one);
		}
		if (used > columns) {
			*line = '\0';
			if (coloured && left > 3) /* the line was longer: it fits */
				memcpy(line, "\33[m", 4);
			return;
		}
		line += n;
		left -= n;
	}
}

FILE *
screen_begin(struct screen *s)
{
	measure(s);
	s->picture = open_memstream(&s->text, &s->size);
	return s->picture;
}

void
screen_drop(struct screen *s)
{
	fclose(s->picture);
	free(s->text);
	s->text = NULL;
}

/* Writes all with one write(2), unlike stdio, so that nothing flickers. */
static bool
write_all(const char *text, size_t n)
{
	while (n > 0) {
		ssize_t done = write(STDOUT_FILENO, text, n);

		if (done < 0 && errno != EINTR)
			return false;
		text += done > 0 ? done : 0;
		n -= done > 0 ? done : 0;
	}
	return true;
}

bool
screen_draw(struct screen *s)
{
	char *text = NULL, *rest, *line;
	size_t size = 0;
	FILE *to;
	bool good = fclose(s->picture) == 0;

	if (s->drawn == 0) /* before the first picture */
		sigaction(SIGCONT,
		    &(struct sigaction){
			.sa_handler = note_continued, .sa_flags = SA_RESTART},
		    NULL);
	if (continued)
		s->drawn = 0;
	continued = 0;
	to = good ? open_memstream(&text, &size) : NULL;
	if (to) {
		if (s->drawn == SIZE_MAX)
			fputs("\33[H\33[J", to);
		else if (s->drawn)
			fprintf(to, "\33[%zuA\r", s->drawn);
		/* the lines that fit, each over what stood there; the last row is the cursor's */
		s->drawn = 0;
		for (rest = s->text;
		     (line = strsep(&rest, "\n")) && rest && s->drawn + 1 < s->rows;
		     s->drawn++) {
			screen_cut(line, s->columns - 1);
			fprintf(to, "%s\33[K\n", line);
		}
		fputs("\33[J", to);
		good = fclose(to) == 0 && write_all(text, size);
	}
	free(text);
	free(s->text);
	s->text = NULL;
	return to && good;
}
