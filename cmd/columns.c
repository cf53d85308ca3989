/* columns.c - what stands in the columns of `dlock ls`, and how wide they are. */
#include "columns.h"

#include "parse.h"
#include "show.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

enum { CELL_BYTES = 2600 };

struct column {
	const char *name;
	size_t least, usual, most; /* widths */
	void (*write)(char *out, size_t size, const struct view *);
	/* the usual ones are left out in this order where there is no room; 0: never */
	int rank;
	bool usually; /* shown where no columns are named */
	bool right;   /* numbers */
};

/* ---- what stands in them ---- */

static void
put_number(char *out, size_t size, uint64_t n)
{
	if (n)
		snprintf(out, size, "%" PRIu64, n);
}

static void
put_text(char *out, size_t size, const char *text)
{
	if (text)
		text_name(out, size, text);
}

static void
put_length(char *out, size_t size, int64_t ns)
{
	if (ns >= 0)
		parse_duration_text(ns, out, size);
}

/* Of whom a row tells: the first holder, or who has frozen it; NULL: nobody. */
static const struct person *
person_of(const struct view *v)
{
	return v->holders.n > 0 ? &v->holders.list[0] : v->is_frozen ? &v->frozen : NULL;
}

static const struct record *
said_of(const struct view *v)
{
	static const struct record nobody;
	const struct person *p = person_of(v);

	return p ? &p->said : &nobody;
}

static void
write_key(char *out, size_t size, const struct view *v)
{
	put_text(out, size, v->key);
}

static void
write_state(char *out, size_t size, const struct view *v)
{
	snprintf(out, size, "%s", view_state_name(view_state(v)));
}

static void
write_kind(char *out, size_t size, const struct view *v)
{
	enum lock_kind kind;
	unsigned limit;

	if (!view_kind(v, &kind, &limit))
		return;
	if (kind == KIND_LIMIT && limit == 0) /* nobody says how many there are */
		snprintf(out, size, "limit %" PRIu64, v->holders.all);
	else if (kind == KIND_LIMIT)
		snprintf(out, size, "limit %" PRIu64 "/%u", v->holders.all, limit);
	else if (kind == KIND_SHARED)
		snprintf(out, size, "shared %" PRIu64, v->holders.all);
	else
		snprintf(out, size, "exclusive");
}

static void
write_limit(char *out, size_t size, const struct view *v)
{
	enum lock_kind kind;
	unsigned limit;

	if (view_kind(v, &kind, &limit) && (kind != KIND_LIMIT || limit > 0))
		put_number(out, size, limit);
}

static void
write_holders(char *out, size_t size, const struct view *v)
{
	snprintf(out, size, "%" PRIu64, v->holders.all);
}

static void
write_holder(char *out, size_t size, const struct view *v)
{
	const struct person *p = person_of(v);

	if (p && p->said.who)
		put_text(out, size, p->said.who);
	else if (p && p->foreign)
		put_text(out, size, p->foreign);
	else if (!p && v->unknown)
		put_text(out, size, v->unknown);
}

static void
write_host(char *out, size_t size, const struct view *v)
{
	put_text(out, size, said_of(v)->host);
}

static void
write_pid(char *out, size_t size, const struct view *v)
{
	put_number(out, size, said_of(v)->pid);
}

static void
write_program(char *out, size_t size, const struct view *v)
{
	put_text(out, size, said_of(v)->command);
}

static void
write_why(char *out, size_t size, const struct view *v)
{
	const char *why = said_of(v)->why;

	if (why)
		text_quote(out, size, why, '"'); /* as in a sentence */
}

static void
write_since(char *out, size_t size, const struct view *v)
{
	if (person_of(v))
		show_time(person_of(v)->since, out, size);
}

static void
write_held(char *out, size_t size, const struct view *v)
{
	if (person_of(v))
		put_length(out, size, view_ago(v, person_of(v)->since));
}

static void
write_left(char *out, size_t size, const struct view *v)
{
	if (person_of(v))
		put_length(out, size, view_left(v, person_of(v)->until));
}

static void
write_token(char *out, size_t size, const struct view *v)
{
	if (v->holders.n > 0)
		put_number(out, size, v->holders.list[0].token);
}

static void
write_owner(char *out, size_t size, const struct view *v)
{
	if (v->holders.n > 0)
		put_text(out, size, v->holders.list[0].owner);
}

static void
write_waiting(char *out, size_t size, const struct view *v)
{
	snprintf(out, size, "%" PRIu64, v->waiters.all);
}

static const struct column columns[] = {
    {"KEY", 20, 24, 40, write_key, 0, true, false},
    {"STATE", 6, 6, 6, write_state, 0, true, false},
    {"KIND", 9, 9, 12, write_kind, 2, true, false},
    {"HOLDER", 14, 20, 30, write_holder, 0, true, false},
    {"HOST", 8, 12, 20, write_host, 1, true, false},
    {"PID", 7, 7, 7, write_pid, 3, true, true},
    {"HELD", 6, 6, 7, write_held, 0, true, true},
    {"WAITING", 7, 7, 7, write_waiting, 4, true, true},
    {"COMMAND", 8, 12, 20, write_program, 0, false, false},
    {"WHY", 10, 20, SIZE_MAX, write_why, 5, true, false},
    {"SINCE", 19, 23, 24, write_since, 0, false, false},
    {"LEFT", 6, 6, 7, write_left, 0, false, true},
    {"TOKEN", 16, 16, 20, write_token, 0, false, true},
    {"HOLDERS", 7, 7, 7, write_holders, 0, false, true},
    {"LIMIT", 6, 6, 6, write_limit, 0, false, true},
    {"OWNER", 8, 32, 32, write_owner, 0, false, false},
};

enum { ALL = sizeof columns / sizeof *columns };

/* ---- which of them ---- */

const char *
columns_list(char *out, size_t size)
{
	size_t used = 0;

	*out = '\0';
	for (size_t i = 0; i < ALL && used < size; i++)
		used += snprintf(
		    out + used, size - used, "%s%s", i == 0 ? "" : ", ", columns[i].name);
	return out;
}

static const struct column *
column_named(const char *name, size_t n)
{
	for (size_t i = 0; i < ALL; i++)
		if (strlen(columns[i].name) == n &&
		    strncasecmp(columns[i].name, name, n) == 0)
			return &columns[i];
	return NULL;
}

static enum rc
choose_named(struct columns *c, const char *names, struct fault *f)
{
	char list[200];

	for (const char *name = names;; name++) {
		size_t n = strcspn(name, ",");
		const struct column *column = column_named(name, n);

		if (!column)
			return fault_set(f, RC_USAGE,
			    "--output '%s': there is no column '%.*s' (there are %s)",
			    text_brief(names).text, n < 40 ? (int)n : 40, name,
			    columns_list(list, sizeof list));
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
	for (size_t i = 0; i < ALL; i++)
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

static const char *
colour_of(const struct columns *c, size_t i, const struct view *v)
{
	static const enum colour states[] = {GREEN, YELLOW, CYAN};

	if (!v)
		return screen_colour(c->screen, BOLD);
	if (c->list[i]->write == write_state)
		return screen_colour(c->screen, states[view_state(v)]);
	return "";
}

/* One value, filled up to its width but for the last; returns how long it is in bytes. */
static size_t
put_cell(const struct columns *c, size_t i, const struct view *v, char *text, char *out,
    size_t size)
{
	const char *colour = colour_of(c, i, v),
		   *plain = *colour ? screen_colour(c->screen, PLAIN) : "";
	bool right = c->list[i]->right, last = i + 1 == c->n;
	size_t width, fill;
	int n;

	if (c->cuts)
		text_fit(text, c->width[i]);
	width = text_columns(text);
	fill = width < c->width[i] ? c->width[i] - width : 0;
	n = snprintf(out, size, "%s%*s%s%s%s%*s", i == 0 ? "" : " ",
	    right ? (int)fill : 0, "", colour, text, plain, right || last ? 0 : (int)fill,
	    "");
	return (size_t)n < size ? (size_t)n : size - 1;
}

static void
put_row(const struct columns *c, const struct view *v, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < c->n; i++) {
		char text[CELL_BYTES] = "";

		if (v)
			c->list[i]->write(text, sizeof text, v);
		else
			snprintf(text, sizeof text, "%s", c->list[i]->name);
		if (!*text)
			snprintf(text, sizeof text, "-");
		used += put_cell(c, i, v, text, out + used, ROW_BYTES - used);
	}
	if (c->cuts)
		screen_cut(out, c->screen->columns - 1);
}

void
columns_heading(const struct columns *c, char *out)
{
	put_row(c, NULL, out);
}

void
columns_row(const struct columns *c, const struct view *v, char *out)
{
	put_row(c, v, out);
}
