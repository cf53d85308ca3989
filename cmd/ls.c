/* ls.c - dlock ls: all locks that are held, waited for or frozen, one a line. */
#include "cmd.h"

#include "columns.h"
#include "options.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "status.h"
#include "text.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int
cmd_ls_explain(void)
{
	char list[200], *fold = strchr(columns_list(list, sizeof list) + 60, ' ');

	*fold = '\n';
	puts(
	    "usage: dlock ls [options] [PATTERN]\n"
	    "\n"
	    "Lists the locks that are held, waited for or frozen, one a line, as they are found:\n"
	    "all, or those whose key fits PATTERN (as in file names; * also stands for /).\n"
	    "Changes nothing, and waits for nobody who works with the server.\n"
	    "\n"
	    "  dlock ls -u redis://10.0.0.5\n"
	    "  dlock ls -b pg 'deploy/*' -o key,holder,held,why\n"
	    "  dlock ls -b zk -J | jq -r 'select(.waiting > 5).key'\n"
	    "  dlock ls -b file --watch\n");
	options_print_help(stdout, CMD_LS);
	printf("\nColumns: %s.\n", list);
	puts(
	    "On a terminal they are cut to fit; elsewhere nothing is.  With --watch: on a terminal\n"
	    "the list is drawn anew, elsewhere what has changed is printed.  Status: 0, also when\n"
	    "there is none; 64 to 78 as dlock run has them.");
	return say_written();
}

/* What has been printed of a key, to tell what has changed. */
struct printed {
	char *key;
	uint64_t facts;
};

struct printed_list {
	struct printed *list;
	size_t n, room;
};

struct ls {
	const struct plan *plan;
	struct looking looking;
	struct screen screen;
	struct columns columns;
	FILE *to;
	uint64_t seen;              /* in this round */
	size_t most;                /* so many rows, the others are only counted */
	struct printed_list before; /* sorted */
	struct printed_list now;
	bool short_of_memory;
	char row[ROW_BYTES];
};

/* ---- rows ---- */

static void
print_lock(struct ls *ls, const struct view *v)
{
	if (ls->plan->look.json) {
		show_json(ls->to, v, &ls->looking, true);
		return;
	}
	columns_row(&ls->columns, v, ls->row);
	fprintf(ls->to, "%s\n", ls->row);
}

static void
print_heading(struct ls *ls)
{
	if (ls->plan->look.json || ls->plan->look.bare)
		return;
	columns_heading(&ls->columns, ls->row);
	fprintf(ls->to, "%s\n", ls->row);
}

static bool
fits_pattern(const struct ls *ls, const struct view *v)
{
	return !ls->plan->look.pattern || fnmatch(ls->plan->look.pattern, v->key, 0) == 0;
}

/* False: nobody reads what we write. */
static bool
see(void *ctx, const struct view *v)
{
	struct ls *ls = ctx;

	if (!fits_pattern(ls, v))
		return true;
	ls->seen++;
	if (ls->seen <= ls->most)
		print_lock(ls, v);
	return !ferror(ls->to);
}

static enum rc
look_all(struct ls *ls, bool (*see_one)(void *, const struct view *), struct fault *f)
{
	ls->seen = 0;
	return look_at_all(&ls->looking, see_one, ls, NEVER, f);
}

static int
refuse_list(const struct ls *ls, enum rc rc, const struct fault *f)
{
	return look_refuse(ls->plan, "list", NULL, rc, f);
}

static int
list_once(struct ls *ls)
{
	struct fault f;
	enum rc rc;

	print_heading(ls);
	rc = look_all(ls, see, &f);
	if (rc != RC_OK) {
		fflush(stdout); /* what has been found */
		return refuse_list(ls, rc, &f);
	}
	return say_written();
}

/* ---- --watch, drawn ---- */

/* "37 locks at redis 10.0.0.5:6379, every 2s" */
static void
print_top(struct ls *ls, char *rows, size_t size, enum rc rc, const struct fault *f)
{
	const char *where = ls->looking.store->where;
	char clean[700], every[32];

	fprintf(ls->to, "%s%" PRIu64 " lock%s at %s, every %s%s\n",
	    screen_colour(&ls->screen, DIM), ls->seen, ls->seen == 1 ? "" : "s",
	    text_clean(clean, sizeof clean, where, strlen(where)),
	    parse_duration_text(ls->plan->look.again, every, sizeof every),
	    screen_colour(&ls->screen, PLAIN));
	if (rc != RC_OK)
		fprintf(ls->to, "dlock: %s; trying again\n",
		    text_clean(clean, sizeof clean, f->text, strlen(f->text)));
	print_heading(ls);
	fwrite(rows, 1, size, ls->to);
	if (ls->seen > ls->most)
		fprintf(ls->to, "... and %" PRIu64 " more\n", ls->seen - ls->most);
}

/* How many locks there are is known last, but stands at the top. */
static enum rc
draw_locks(struct ls *ls, bool first, struct fault *f)
{
	FILE *picture = screen_begin(&ls->screen);
	char *rows = NULL;
	size_t size = 0;
	enum rc rc;

	ls->to = picture ? open_memstream(&rows, &size) : NULL;
	if (!ls->to)
		return fault_set(f, RC_SYSTEM, "no memory");
	columns_fit(&ls->columns, ls->plan->look.columns);
	ls->most = ls->screen.rows > 5 ? ls->screen.rows - 5 : 1;
	rc = look_all(ls, see, f);
	fclose(ls->to);
	ls->to = picture;
	if (rc == RC_OK || !first)
		print_top(ls, rows, size, rc, f);
	free(rows);
	if (rc != RC_OK && first)
		screen_drop(&ls->screen);
	else if (!screen_draw(&ls->screen))
		return fault_set(f, RC_SYSTEM, "cannot write to standard output");
	return rc;
}

/* ---- --watch, told line by line ---- */

static int
compare_printed(const void *a, const void *b)
{
	return strcmp(((const struct printed *)a)->key, ((const struct printed *)b)->key);
}

/* Takes over `key`, which was allocated. */
static bool
note_printed(struct printed_list *l, char *key, uint64_t facts)
{
	if (key && l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct printed *list = reallocarray(l->list, room, sizeof *list);

		if (!list) {
			free(key);
			return false;
		}
		l->list = list;
		l->room = room;
	}
	if (key)
		l->list[l->n++] = (struct printed){key, facts};
	return key != NULL;
}

static const struct printed *
find_printed(const struct printed_list *l, const char *key)
{
	const struct printed wanted = {(char *)key, 0};

	return l->n ? bsearch(&wanted, l->list, l->n, sizeof *l->list, compare_printed)
		    : NULL;
}

static void
forget_printed(struct printed_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->list[i].key);
	l->n = 0;
}

static bool
see_change(void *ctx, const struct view *v)
{
	struct ls *ls = ctx;
	const struct printed *before = find_printed(&ls->before, v->key);
	uint64_t facts = show_facts(v);

	if (!fits_pattern(ls, v))
		return true;
	if (!before || before->facts != facts)
		print_lock(ls, v);
	ls->short_of_memory |= !note_printed(&ls->now, strdup(v->key), facts);
	return !ferror(ls->to) && !ls->short_of_memory;
}

/* Those that are no longer told of have become free. */
static void
print_gone(struct ls *ls)
{
	struct view v = {0};

	for (size_t i = 0; i < ls->before.n; i++)
		if (!find_printed(&ls->now, ls->before.list[i].key)) {
			view_begin(&v, ls->before.list[i].key);
			print_lock(ls, &v);
		}
	view_free(&v);
}

/* A round that failed says nothing of those it has not told of. */
static enum rc
tell_changes(struct ls *ls, struct fault *f)
{
	struct printed_list spare = ls->before;
	enum rc rc = look_all(ls, see_change, f);

	if (rc == RC_OK && ls->short_of_memory)
		rc = fault_set(f, RC_SYSTEM, "no memory for so many locks");
	if (rc != RC_OK) {
		forget_printed(&ls->now);
		return rc;
	}
	if (ls->now.n)
		qsort(ls->now.list, ls->now.n, sizeof *ls->now.list, compare_printed);
	print_gone(ls);
	forget_printed(&spare);
	ls->before = ls->now;
	ls->now = spare;
	return rc;
}

/* Ends with a signal, or where the very first look fails. */
static int
watch_locks(struct ls *ls)
{
	bool draws = ls->screen.moves && !ls->plan->look.json, told = false;
	struct fault f;
	int status;

	if (!draws)
		print_heading(ls);
	for (bool first = true;; first = false) {
		enum rc rc = draws ? draw_locks(ls, first, &f) : tell_changes(ls, &f);

		if ((rc != RC_OK && (first || rc != RC_AGAIN)) || say_written() != 0)
			return rc != RC_OK ? refuse_list(ls, rc, &f) : STATUS_SYSTEM;
		if (rc != RC_OK && !draws && !told)
			refuse_list(ls, rc, &f);
		told = rc != RC_OK;
		status = look_pause(&ls->looking);
		if (status != 0)
			return status;
	}
}

/* ---- the subcommand ---- */

/* -o means the table; to name columns of something else is a mistake. */
static enum rc
choose_columns(struct ls *ls, struct fault *f)
{
	const struct plan_look *look = &ls->plan->look;

	if (look->json && look->columns)
		return fault_set(f, RC_USAGE,
		    "--json and --output contradict each other: an object has all there is");
	return columns_choose(&ls->columns, look->columns, &ls->screen, f);
}

int
cmd_ls(char **words)
{
	static struct ls ls;
	struct plan plan;
	struct fault f;
	enum rc rc;
	int status;

	if (!look_plan(&plan, CMD_LS, words, cmd_ls_explain, &status))
		return status;
	ls = (struct ls){.plan = &plan, .to = stdout, .most = SIZE_MAX};
	screen_open(&ls.screen);
	if (choose_columns(&ls, &f) != RC_OK) {
		say_last("%s", f.text);
		return STATUS_USAGE;
	}
	rc = look_open(&ls.looking, &plan, 0, &f);
	if (rc != RC_OK)
		return refuse_list(&ls, rc, &f);
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* each as soon as it is known */
	status = plan.look.again ? watch_locks(&ls) : list_once(&ls);
	look_close(&ls.looking);
	return status;
}
