/* ls.c - dlock ls: all locks that are held, waited for or frozen, one a line. */
#include "cmd.h"

#include "columns.h"
#include "exit.h"
#include "look.h"
#include "parse.h"
#include "say.h"
#include "text.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What has been printed of keys, to tell what has changed. */
struct printed {
	struct printed_key {
		char *key;
		uint64_t facts;
	} * list; /* sorted, once the round is over */
	size_t n, room;
};

static struct ls {
	struct rounds rounds;
	struct columns columns;
	FILE *to;
	bool changes;  /* only those are printed */
	uint64_t seen; /* in this round */
	size_t most;   /* so many rows, the others are only counted */
	struct printed before, now;
	bool headed;          /* the headings have been printed */
	bool short_of_memory; /* for `now` */
	char row[ROW_BYTES];
} ls;

/* One lock, or (NULL) the headings. */
static void
print_lock(const struct view *v)
{
	const struct plan_look *look = &ls.rounds.looking.plan->look;

	if (look->json && v) {
		show_json(ls.to, v, ls.rounds.looking.store, true);
	} else if (v || !(look->json || look->bare)) {
		columns_row(&ls.columns, v, ls.row);
		fprintf(ls.to, "%s\n", ls.row);
	}
}

/* ---- what has changed ---- */

static int
compare_printed(const void *a, const void *b)
{
	return strcmp(
	    ((const struct printed_key *)a)->key, ((const struct printed_key *)b)->key);
}

static const struct printed_key *
find_printed(const struct printed *p, const char *key)
{
	const struct printed_key wanted = {(char *)key, 0};

	return p->n ? bsearch(&wanted, p->list, p->n, sizeof *p->list, compare_printed)
		    : NULL;
}

static void
print_change(const struct view *v)
{
	const struct printed_key *before = find_printed(&ls.before, v->key);
	struct printed_key one = {
	    strdup(v->key), show_facts(v, ls.rounds.looking.store, true)};
	struct printed *now = &ls.now;

	if (!before || before->facts != one.facts)
		print_lock(v);
	if (now->n == now->room) {
		size_t room = now->room ? 2 * now->room : 64;
		void *list = reallocarray(now->list, room, sizeof one);

		now->list = list ? list : now->list;
		now->room = list ? room : now->room;
	}
	ls.short_of_memory |= !one.key || now->n == now->room;
	if (ls.short_of_memory)
		free(one.key);
	else
		now->list[now->n++] = one;
}

/*
 * A key that a whole round has not told of has become free; a round that failed says nothing
 * of the other keys.
 */
static void
end_changes(bool whole)
{
	struct printed old = ls.now;
	struct view v = {0};

	if (whole && ls.now.n)
		qsort(ls.now.list, ls.now.n, sizeof *ls.now.list, compare_printed);
	for (size_t i = 0; whole && i < ls.before.n; i++)
		if (!find_printed(&ls.now, ls.before.list[i].key)) {
			view_begin(&v, ls.before.list[i].key);
			print_lock(&v);
		}
	view_free(&v);
	if (whole) {
		old = ls.before;
		ls.before = ls.now;
	}
	for (size_t i = 0; i < old.n; i++)
		free(old.list[i].key);
	old.n = 0;
	ls.now = old; /* its memory is used again */
}

/* ---- a round ---- */

/* False: nobody reads what we write. */
static bool
see(void *ctx, const struct view *v)
{
	const char *pattern = ls.rounds.looking.plan->look.pattern;

	(void)ctx;
	if (pattern && fnmatch(pattern, v->key, 0) != 0)
		return true;
	ls.seen++;
	if (ls.changes)
		print_change(v);
	else if (ls.seen <= ls.most)
		print_lock(v);
	return !ferror(ls.to) && !ls.short_of_memory;
}

static enum rc
list_locks(FILE *to, struct fault *f)
{
	ls.to = to;
	ls.seen = 0;
	return look_at_all(&ls.rounds.looking, see, NULL, NEVER, f);
}

/*
 * "37 locks at redis 10.0.0.5:6379, every 2s": how many there are is known last, but stands
 * at the top.
 */
static enum rc
draw_locks(FILE *picture, struct fault *f)
{
	const struct screen *s = &ls.rounds.screen;
	struct looking *l = &ls.rounds.looking;
	char *rows = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&rows, &size);
	enum rc rc;

	if (!to)
		return fault_set(f, RC_SYSTEM, "no memory");
	columns_fit(&ls.columns, l->plan->look.columns);
	ls.most = s->rows > 5 ? s->rows - 5 : 1;
	rc = list_locks(to, f);
	fclose(to);
	fprintf(picture, "%s%" PRIu64 " lock%s at %s, every %s%s\n",
	    screen_colour(s, DIM), ls.seen, ls.seen == 1 ? "" : "s",
	    text_shown(l->store->where).text, parse_span(l->plan->look.again).text,
	    screen_colour(s, PLAIN));
	if (rc != RC_OK)
		look_tell_failure(picture, f);
	ls.to = picture;
	print_lock(NULL);
	fwrite(rows, 1, size, picture);
	if (ls.seen > ls.most)
		fprintf(picture, "... and %" PRIu64 " more\n", ls.seen - ls.most);
	free(rows);
	return rc;
}

static enum rc
show_locks(struct rounds *r, FILE *to, struct fault *f)
{
	enum rc rc;

	(void)r;
	if (to && to != stdout)
		return draw_locks(to, f);
	ls.to = stdout;
	ls.changes = !to;
	if (!ls.headed)
		print_lock(NULL);
	ls.headed = true;
	rc = list_locks(stdout, f);
	if (rc == RC_OK && ls.short_of_memory)
		rc = fault_set(f, RC_SYSTEM, "no memory for so many locks");
	if (ls.changes)
		end_changes(rc == RC_OK);
	return rc;
}

static int
run_ls(struct plan *p)
{
	struct fault f;

	ls.rounds.show = show_locks;
	ls.most = SIZE_MAX;
	screen_open(&ls.rounds.screen);
	/* -o means the table; to name columns of something else is a mistake */
	if (p->look.json && p->look.columns)
		fault_set(&f, RC_USAGE,
		    "--json and --output contradict each other: an object has all there is");
	else if (columns_choose(&ls.columns, p->look.columns, &ls.rounds.screen, &f) ==
	    RC_OK) {
		setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* each as soon as it is known */
		return look_rounds(&ls.rounds, p);
	}
	say_last("%s", f.text);
	return STATUS_USAGE;
}

const struct cmd cmd_ls = {.name = "ls",
    .help = "list all locks, one a line",
    .bit = CMD_LS,
    .usage =
	"usage: dlock ls [options] [PATTERN]\n"
	"\n"
	"Lists the locks that are held, waited for or frozen, one a line, as they are found:\n"
	"all, or those whose key fits PATTERN (as in file names; * also stands for /).\n"
	"Changes nothing, and waits for nobody who works with the server.\n"
	"\n"
	"  dlock ls -u redis://10.0.0.5\n"
	"  dlock ls -b pg 'deploy/*' -o key,holder,held,why\n"
	"  dlock ls -b zk -J | jq -r 'select(.waiting > 5).key'\n"
	"  dlock ls -b file --watch\n",
    .notes =
	"Columns: KEY, STATE, KIND, HOLDER, HOST, PID, HELD, WAITING, COMMAND,\n"
	"WHY, SINCE, LEFT, TOKEN, HOLDERS, LIMIT, OWNER.\n"
	"On a terminal they are cut to fit; elsewhere nothing is.  With --watch: on a terminal\n"
	"the list is drawn anew, elsewhere what has changed is printed.  Status: 0, also when\n"
	"there is none; 64 to 78 as dlock run has them.",
    .run = run_ls};
