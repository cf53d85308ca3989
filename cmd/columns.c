/* columns.c - what stands in the columns of `dlock ls`, and how wide they are. */
#include "columns.h"

#include "parse.h"
#include "show.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

enum { CELL_BYTES = 2600 };

enum cell {
	CELL_KEY,
	CELL_STATE,
	CELL_KIND,
	CELL_HOLDER,
	CELL_HOST,
	CELL_PID,
	CELL_HELD,
	CELL_WAITING,
	CELL_COMMAND,
	CELL_WHY,
	CELL_SINCE,
	CELL_LEFT,
	CELL_TOKEN,
	CELL_HOLDERS,
	CELL_LIMIT,
	CELL_OWNER,
	CELLS,
};

static const struct column {
	const char *name;
	size_t least, usual, most; /* widths */
	/* the usual ones are left out in this order where there is no room; 0: never */
	int rank;
	bool usually; /* shown where no columns are named */
	bool right;   /* numbers */
} columns[CELLS] = {
    [CELL_KEY] = {"KEY", 20, 24, 40, 0, true, false},
    [CELL_STATE] = {"STATE", 6, 6, 6, 0, true, false},
    [CELL_KIND] = {"KIND", 9, 9, 12, 2, true, false},
    [CELL_HOLDER] = {"HOLDER", 14, 20, 30, 0, true, false},
    [CELL_HOST] = {"HOST", 8, 12, 20, 1, true, false},
    [CELL_PID] = {"PID", 7, 7, 7, 3, true, true},
    [CELL_HELD] = {"HELD", 6, 6, 7, 0, true, true},
    [CELL_WAITING] = {"WAITING", 7, 7, 7, 4, true, true},
    [CELL_COMMAND] = {"COMMAND", 8, 12, 20, 0, false, false},
    [CELL_WHY] = {"WHY", 10, 20, SIZE_MAX, 5, true, false},
    [CELL_SINCE] = {"SINCE", 19, 23, 24, 0, false, false},
    [CELL_LEFT] = {"LEFT", 6, 6, 7, 0, false, true},
    [CELL_TOKEN] = {"TOKEN", 16, 16, 20, 0, false, true},
    [CELL_HOLDERS] = {"HOLDERS", 7, 7, 7, 0, false, true},
    [CELL_LIMIT] = {"LIMIT", 6, 6, 6, 0, false, true},
    [CELL_OWNER] = {"OWNER", 8, 32, 32, 0, false, false},
};

/* ---- what stands in them: "" where nothing is known ---- */

/* 0: not known, unless `zero`. */
static void
put_number(char *out, uint64_t n, bool zero)
{
	if (n || zero)
		snprintf(out, CELL_BYTES, "%" PRIu64, n);
}

static void
put_text(char *out, const char *text)
{
	if (text)
		text_name(out, CELL_BYTES, text);
}

static void
put_length(char *out, int64_t ns)
{
	if (ns >= 0)
		parse_duration_text(ns, out, CELL_BYTES);
}

static void
put_kind(char *out, const struct view *v)
{
	enum lock_kind kind;
	unsigned limit;

	if (!view_kind(v, &kind, &limit))
		return;
	if (kind_is_exclusive(kind))
		snprintf(out, CELL_BYTES, "exclusive");
	else if (kind == KIND_LIMIT && limit > 0)
		snprintf(out, CELL_BYTES, "limit %" PRIu64 "/%u", v->holders.all, limit);
	else /* of a limit that nobody tells, too */
		snprintf(out, CELL_BYTES, "%s %" PRIu64, record_kind_name(kind),
		    v->holders.all);
}

/* Of the key alone; false: it is a cell of the person. */
static bool
put_of_key(char *out, enum cell cell, const struct view *v)
{
	enum lock_kind kind;
	unsigned limit = 0;

	switch (cell) {
	case CELL_KEY:
		put_text(out, v->key);
		return true;
	case CELL_STATE:
		put_text(out, view_state_name(v));
		return true;
	case CELL_KIND:
		put_kind(out, v);
		return true;
	case CELL_LIMIT:
		view_kind(v, &kind, &limit);
		put_number(out, limit, false);
		return true;
	case CELL_HOLDERS:
		put_number(out, v->holders.all, true);
		return true;
	case CELL_WAITING:
		put_number(out, v->waiters.all, true);
		return true;
	default:
		return false;
	}
}

/* Of the first holder, or of the person who has frozen it. */
static void
put_of_person(char *out, enum cell cell, const struct view *v, const struct person *p)
{
	const struct record *said = &p->said;

	if (cell == CELL_HOLDER)
		put_text(out, said->who ? said->who : p->foreign);
	else if (cell == CELL_HOST)
		put_text(out, said->host);
	else if (cell == CELL_PID)
		put_number(out, said->pid, false);
	else if (cell == CELL_COMMAND)
		put_text(out, said->command);
	else if (cell == CELL_WHY && said->why)
		text_quote(out, CELL_BYTES, said->why, '"'); /* as in a sentence */
	else if (cell == CELL_SINCE)
		snprintf(out, CELL_BYTES, "%s", text_time(p->since).text);
	else if (cell == CELL_HELD)
		put_length(out, view_ago(v, p->since));
	else if (cell == CELL_LEFT)
		put_length(out, view_left(v, p->until));
	else if (cell == CELL_TOKEN && p != &v->frozen)
		put_number(out, p->token, false);
	else if (cell == CELL_OWNER && p != &v->frozen)
		put_text(out, p->owner);
}

static void
put_value(char *out, enum cell cell, const struct view *v)
{
	if (put_of_key(out, cell, v))
		return;
	if (v->holders.n > 0)
		put_of_person(out, cell, v, v->holders.list);
	else if (v->is_frozen)
		put_of_person(out, cell, v, &v->frozen);
	else if (cell == CELL_HOLDER)
		put_text(out, v->unknown);
}

/* ---- which of them ---- */

static const struct column *
column_named(const char *name, size_t n)
{
	for (size_t i = 0; i < CELLS; i++)
		if (strlen(columns[i].name) == n &&
		    strncasecmp(columns[i].name, name, n) == 0)
			return &columns[i];
	return NULL;
}

static enum rc
no_such_column(const char *names, const char *name, size_t n, struct fault *f)
{
	char list[200];
	size_t used = 0;

	for (size_t i = 0; i < CELLS; i++)
		used += snprintf(list + used, sizeof list - used, "%s%s",
		    i == 0 ? "" : ", ", columns[i].name);
	return fault_set(f, RC_USAGE,
	    "--output '%s': there is no column '%.*s' (there are %s)",
	    text_brief(names).text, n < 40 ? (int)n : 40, name, list);
}

static enum rc
choose_named(struct columns *c, const char *names, struct fault *f)
{
	for (const char *name = names;; name++) {
		size_t n = strcspn(name, ",");
		const struct column *column = column_named(name, n);

		if (!column)
			return no_such_column(names, name, n, f);
		if (c->n == COLUMNS_MOST)
			return fault_set(f, RC_USAGE,
			    "--output '%s': more than %d columns", text_brief(names).text,
			    COLUMNS_MOST);
		c->list[c->n++] = column;
		name += n;
		if (!*name)
			return RC_OK;
	}
}

static size_t
least_width(const struct columns *c)
{
	size_t sum = 0;

	for (size_t i = 0; i < c->n; i++)
		sum += c->list[i]->least + (i > 0);
	return sum;
}

static void
drop(struct columns *c, int rank)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->n; i++)
		if (c->list[i]->rank != rank)
			c->list[kept++] = c->list[i];
	c->n = kept;
}

/* Of the usual ones, as many as the screen has room for. */
static void
choose_usual(struct columns *c)
{
	c->n = 0;
	for (size_t i = 0; i < CELLS; i++)
		if (columns[i].usually)
			c->list[c->n++] = &columns[i];
	for (int rank = 1; c->cuts && rank <= 5 && least_width(c) >= c->screen->columns;
	     rank++)
		drop(c, rank);
}

/* ---- how wide ---- */

/* Makes columns wider, from the first to the last, as long as there is room. */
static void
widen(struct columns *c, size_t *room, bool to_most)
{
	for (size_t i = 0; i < c->n; i++) {
		size_t want = to_most ? c->list[i]->most : c->list[i]->usual,
		       more = want > c->width[i] ? want - c->width[i] : 0;

		more = more < *room ? more : *room;
		c->width[i] += more;
		*room -= more;
	}
}

void
columns_fit(struct columns *c, const char *names)
{
	size_t room;

	if (!names)
		choose_usual(c);
	for (size_t i = 0; i < c->n; i++)
		c->width[i] = c->cuts ? c->list[i]->least : c->list[i]->usual;
	if (!c->cuts || least_width(c) >= c->screen->columns)
		return;
	room = c->screen->columns - 1 - least_width(c);
	widen(c, &room, false);
	widen(c, &room, true);
}

enum rc
columns_choose(
    struct columns *c, const char *names, const struct screen *s, struct fault *f)
{
	*c = (struct columns){.cuts = s->columns > 0, .screen = s};
	if (names && choose_named(c, names, f) != RC_OK)
		return RC_USAGE;
	columns_fit(c, names);
	return RC_OK;
}

/* ---- rows ---- */

/* One value, filled up to its width but for the last; returns how long it is in bytes. */
static size_t
put_cell(const struct columns *c, size_t i, const struct view *v, char *out, size_t size)
{
	const struct column *column = c->list[i];
	bool last = i + 1 == c->n;
	const char *colour = "";
	char text[CELL_BYTES] = "";
	size_t width;
	int n, fill;

	if (!v) {
		snprintf(text, sizeof text, "%s", column->name);
		colour = screen_colour(c->screen, BOLD);
	} else {
		put_value(text, column - columns, v);
		if (column == &columns[CELL_STATE])
			colour = show_colour(c->screen, v);
	}
	if (!*text)
		snprintf(text, sizeof text, "-");
	if (c->cuts)
		text_fit(text, c->width[i]);
	width = text_columns(text);
	fill = width < c->width[i] ? (int)(c->width[i] - width) : 0;
	n = snprintf(out, size, "%s%*s%s%s%s%*s", i == 0 ? "" : " ",
	    column->right ? fill : 0, "", colour, text,
	    *colour ? screen_colour(c->screen, PLAIN) : "",
	    column->right || last ? 0 : fill, "");
	return (size_t)n < size ? (size_t)n : size - 1;
}

void
columns_row(const struct columns *c, const struct view *v, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < c->n; i++)
		used += put_cell(c, i, v, out + used, ROW_BYTES - used);
	if (c->cuts)
		screen_cut(out, c->screen->columns - 1);
}
