/* columns.c - chooses the columns of `dlock ls`, their widths, and fills their cells. */
#include "columns.h"

#include "parse.h"
#include "show.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

enum { CELL_BYTES = 2600, RANKS = 5, STAYS };

/* The content of a cell: something of the lock, or (from TEXT on) a member of a person. */
enum cell {
	KEY,
	STATE,
	KIND,
	HOLDER,
	HOLDERS,
	WAITING,
	ID, /* of a job */
	SUCCESS,
	TEXT, /* a const char *, as QUOTED; below: an int64_t */
	QUOTED,
	NUMBER,
	STATUS, /* a number that may be 0 */
	TIME,
	AGO,
	LEFT,
	ENDS, /* since the grant: as the holder has said */
	TOOK, /* from that to the end */
	COMMAND,
	RENEWED,
};

/* The offset of a member of a person.  The member must have the type that its cell needs. */
#define TEXT_AT(m) \
	_Generic(((struct person *)NULL)->m, const char * : offsetof(struct person, m))
#define NUMBER_AT(m) \
	_Generic(((struct person *)NULL)->m, int64_t : offsetof(struct person, m))

struct column {
	const char *name;
	size_t least, usual, most; /* widths */
	/*
	 * Where the user names no columns, those with a rank are shown.  Without room they are
	 * left out, the lowest rank first; columns that STAY are never left out.
	 */
	int rank;
	bool right; /* numbers */
	enum cell is;
	size_t at; /* the member */
};

static const struct column of_locks[] = {
    {"KEY", 20, 24, 40, STAYS, false, KEY, 0},
    {"STATE", 6, 6, 6, STAYS, false, STATE, 0},
    {"KIND", 9, 9, 12, 2, false, KIND, 0},
    {"HOLDER", 14, 20, 30, STAYS, false, HOLDER, 0},
    {"HOST", 8, 12, 20, 1, false, TEXT, TEXT_AT(said.host)},
    {"PID", 7, 7, 7, 3, true, NUMBER, NUMBER_AT(said.pid)},
    {"HELD", 6, 6, 7, STAYS, true, AGO, NUMBER_AT(since)},
    {"WAITING", 7, 7, 7, 4, true, WAITING, 0},
    {"COMMAND", 8, 12, 20, 0, false, COMMAND, NUMBER_AT(since)},
    {"WHY", 10, 20, SIZE_MAX, 5, false, QUOTED, TEXT_AT(said.why)},
    {"SINCE", 19, 23, 24, 0, false, TIME, NUMBER_AT(since)},
    {"LEFT", 6, 6, 7, 0, true, LEFT, NUMBER_AT(until)},
    {"RENEWED", 7, 7, 7, 0, true, RENEWED, NUMBER_AT(until)},
    {"ENDS", 19, 23, 24, 0, false, ENDS, NUMBER_AT(said.end)},
    {"TOKEN", 16, 16, 20, 0, true, NUMBER, NUMBER_AT(token)},
    {"HOLDERS", 7, 7, 7, 0, true, HOLDERS, 0},
    {"LIMIT", 6, 6, 6, 0, true, NUMBER, NUMBER_AT(limit)},
    {"OWNER", 8, 32, 32, 0, false, TEXT, TEXT_AT(owner)},
    {.name = NULL},
};

/* The person of a row is that of the last run, or of the run of an ID. */
static const struct column of_jobs[] = {
    {"KEY", 20, 24, 40, STAYS, false, KEY, 0},
    {"ID", 8, 12, 40, STAYS, false, ID, 0},
    {"STATUS", 6, 6, 6, STAYS, true, STATUS, NUMBER_AT(status)},
    {"WHO", 10, 20, 30, 2, false, TEXT, TEXT_AT(said.who)},
    {"BEGAN", 19, 23, 24, STAYS, false, TIME, NUMBER_AT(since)},
    {"TOOK", 6, 6, 7, 1, true, TOOK, NUMBER_AT(since)},
    {"SUCCESS", 19, 23, 24, 3, false, SUCCESS, 0},
    {"ENDED", 19, 23, 24, 0, false, TIME, NUMBER_AT(until)},
    {"HOST", 8, 12, 20, 0, false, TEXT, TEXT_AT(said.host)},
    {"COMMAND", 8, 12, 20, 0, false, COMMAND, NUMBER_AT(since)},
    {"WHY", 10, 20, SIZE_MAX, 0, false, QUOTED, TEXT_AT(said.why)},
    {"TOKEN", 16, 16, 20, 0, true, NUMBER, NUMBER_AT(token)},
    {.name = NULL},
};

/* ---- cells: "" where nothing is known ---- */

static void
cell_text(char *out, const char *text)
{
	if (text)
		text_name(out, CELL_BYTES, text);
}

static void
cell_length(char *out, int64_t ns)
{
	if (ns >= 0)
		snprintf(out, CELL_BYTES, "%s", parse_span(ns).text);
}

static void
cell_kind(char *out, const struct view *v)
{
	const struct person *h = view_holder(v);

	if (h && kind_is_exclusive(h->kind))
		snprintf(out, CELL_BYTES, "exclusive");
	else if (h && h->limit > 0)
		snprintf(out, CELL_BYTES, "limit %" PRIu64 "/%" PRId64, v->holders.all,
		    h->limit);
	else if (h) /* also where a limited lock does not tell its limit */
		snprintf(out, CELL_BYTES, "%s %" PRIu64, record_kind_name(h->kind),
		    v->holders.all);
}

static void
cell_of_person(
    char *out, const struct column *c, const struct view *v, const struct person *p)
{
	const void *at = (const char *)p + c->at;
	const char *text = c->is <= QUOTED ? *(const char *const *)at : NULL;
	int64_t n = c->is <= QUOTED ? 0 : *(const int64_t *)at;

	if (c->is == TEXT)
		cell_text(out, text);
	else if (c->is == QUOTED && text)
		text_quote(out, CELL_BYTES, text, '"'); /* as in a sentence */
	else if (c->is == NUMBER && n)
		snprintf(out, CELL_BYTES, "%" PRId64, n);
	else if (c->is == STATUS)
		snprintf(out, CELL_BYTES, "%" PRId64, n);
	else if (c->is == TIME)
		snprintf(out, CELL_BYTES, "%s", text_time(n).text);
	else if (c->is == AGO)
		cell_length(out, view_ago(v, n));
	else if (c->is == LEFT)
		cell_length(out, view_left(v, n));
	else if (c->is == RENEWED)
		cell_length(out, view_renewed(v, p));
	else if (c->is == ENDS && view_after(p, n) >= 0)
		snprintf(out, CELL_BYTES, "%s", text_time(view_after(p, n)).text);
	else if (c->is == COMMAND && p->said.command)
		record_command(&p->said, out, CELL_BYTES);
	else if (c->is == TOOK)
		cell_length(out, view_span(n, p->until));
}

/* The person of a row: the first holder, else who has frozen the key; of a job who ran it. */
static const struct person *
person_of(const struct view *v)
{
	const struct person *holder = view_holder(v);

	if (holder || v->is_frozen)
		return holder ? holder : &v->frozen;
	return v->has_last ? &v->last : v->has_good ? &v->good : NULL;
}

static void
cell_value(char *out, const struct column *c, const struct view *v)
{
	const struct person *p = person_of(v), *good = view_good(v);

	if (c->is == KEY)
		cell_text(out, v->key);
	else if (c->is == STATE)
		cell_text(out, view_state_name(v));
	else if (c->is == KIND)
		cell_kind(out, v);
	else if (c->is == HOLDERS || c->is == WAITING)
		snprintf(out, CELL_BYTES, "%" PRIu64,
		    c->is == HOLDERS ? v->holders.all : v->waiters.all);
	else if (c->is == ID && v->of_id)
		cell_text(out, view_id(v));
	else if (c->is == SUCCESS && good)
		snprintf(out, CELL_BYTES, "%s", text_time(view_end(good)).text);
	else if (c->is == HOLDER)
		cell_text(out, !p ? v->unknown : p->said.who ? p->said.who : p->foreign);
	else if (p)
		cell_of_person(out, c, v, p);
}

/* ---- which columns ---- */

static const struct column *
all_of(const struct columns *c)
{
	return c->jobs ? of_jobs : of_locks;
}

static enum rc
choose_named(struct columns *c, const char *names, struct fault *f)
{
	const struct column *columns = all_of(c);
	char list[200];
	size_t used = 0;

	for (size_t i = 0; columns[i].name; i++)
		used += snprintf(list + used, sizeof list - used, "%s%s",
		    i == 0 ? "" : ", ", columns[i].name);
	for (const char *name = names;; name++) {
		size_t n = strcspn(name, ","), i = 0;

		while (columns[i].name &&
		    (strlen(columns[i].name) != n ||
			strncasecmp(columns[i].name, name, n) != 0))
			i++;
		if (!columns[i].name)
			return fault_set(f, RC_USAGE,
			    "--output '%s': there is no column '%.*s' (there are %s)",
			    text_brief(names).text, n < 40 ? (int)n : 40, name, list);
		if (c->n == COLUMNS_MOST)
			return fault_set(f, RC_USAGE,
			    "--output '%s': more than %d columns", text_brief(names).text,
			    COLUMNS_MOST);
		c->list[c->n++] = &columns[i];
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

/* ---- widths ---- */

/* Widens the columns, from the first to the last, as long as there is room. */
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

	for (int dropped = 0; !names && dropped <= RANKS; dropped++) {
		c->n = 0;
		for (const struct column *k = all_of(c); k->name; k++)
			if (k->rank > dropped)
				c->list[c->n++] = k;
		if (!c->screen->columns || least_width(c) < c->screen->columns)
			break;
	}
	for (size_t i = 0; i < c->n; i++)
		c->width[i] = c->screen->columns ? c->list[i]->least : c->list[i]->usual;
	if (!c->screen->columns || least_width(c) >= c->screen->columns)
		return;
	room = c->screen->columns - 1 - least_width(c);
	widen(c, &room, false);
	widen(c, &room, true);
}

enum rc
columns_choose(struct columns *c, bool jobs, const char *names, const struct screen *s,
    struct fault *f)
{
	*c = (struct columns){.jobs = jobs, .screen = s};
	if (names && choose_named(c, names, f) != RC_OK)
		return RC_USAGE;
	columns_fit(c, names);
	return RC_OK;
}

/* ---- rows ---- */

/* Prints one value and pads it, unless it is the last one.  Returns its length in bytes. */
static size_t
print_cell(
    const struct columns *c, size_t i, const struct view *v, char *out, size_t size)
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
		cell_value(text, column, v);
		if (column->is == STATE)
			colour = show_colour(c->screen, v);
	}
	if (!*text)
		snprintf(text, sizeof text, "-");
	if (c->screen->columns)
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
		used += print_cell(c, i, v, out + used, ROW_BYTES - used);
	if (c->screen->columns)
		screen_cut(out, c->screen->columns - 1);
}
