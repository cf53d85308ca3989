/* ls.c - dlock ls: all locks that are held, waited for or frozen, or all jobs, one a line. */
#include "cmd.h"

#include "columns.h"
#include "exit.h"
#include "look.h"
#include "metrics.h"
#include "parse.h"
#include "say.h"
#include "show.h"
#include "text.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A key, with what was last printed of it, or with what Prometheus is told. */
struct known {
	char *key; /* for Prometheus as a label */
	bool seen; /* in this round */
	bool listed;
	uint64_t facts;
	uint64_t holders, waiting, frozen;
	int64_t held; /* nanoseconds; -1: not known, or nobody has it */
};

static struct ls {
	struct rounds rounds;
	struct columns columns;
	FILE *to;
	bool changes;  /* only those are printed */
	bool headed;   /* the headings have been printed */
	uint64_t seen; /* in this round */
	size_t most;   /* so many rows, the others are only counted */
	struct known *known;
	size_t known_n, room, sorted; /* behind the first `sorted` ones: of this round */
	bool short_of_memory;         /* for what is known */
	char row[ROW_BYTES];
} ls;

/* Prints one lock or job, or (NULL) the headings. */
static void
print_lock(const struct view *v)
{
	const struct params_look *look = &ls.rounds.looker.params->look;

	if (look->json && v && look->jobs) {
		show_job(ls.to, v, ls.rounds.looker.store);
	} else if (look->json && v) {
		show_json(ls.to, v, ls.rounds.looker.store, true, instant_epoch());
	} else if (v || !(look->json || look->bare)) {
		columns_row(&ls.columns, v, ls.row);
		fprintf(ls.to, "%s\n", ls.row);
	}
}

/* ---- known keys ---- */

static int
compare_known(const void *a, const void *b)
{
	return strcmp(((const struct known *)a)->key, ((const struct known *)b)->key);
}

/* NULL: no memory. */
static struct known *
add_known(const char *key)
{
	struct known one = {.key = strdup(key)}, *list = ls.known;

	if (one.key && ls.known_n == ls.room) {
		list = reallocarray(list, 2 * ls.room + 64, sizeof one);
		ls.known = list ? list : ls.known;
		ls.room = list ? 2 * ls.room + 64 : ls.room;
	}
	if (!one.key || !list) {
		free(one.key);
		ls.short_of_memory = true;
		return NULL;
	}
	list[ls.known_n] = one;
	return &list[ls.known_n++];
}

/*
 * Sorts the keys.  A look may have found one twice, since locks change while it reads; it counts
 * once.
 */
static void
sort_known(void)
{
	size_t kept = 0;

	if (ls.known_n)
		qsort(ls.known, ls.known_n, sizeof *ls.known, compare_known);
	for (size_t i = 0; i < ls.known_n; i++)
		if (kept > 0 && strcmp(ls.known[kept - 1].key, ls.known[i].key) == 0)
			free(ls.known[i].key);
		else
			ls.known[kept++] = ls.known[i];
	ls.known_n = ls.sorted = kept;
}

/* ---- changes ---- */

/*
 * Prints a key if it has changed.  `listed`: it is one that the user asks for.  False: no memory.
 */
static bool
print_change(const struct view *v, bool listed)
{
	const struct known wanted = {.key = (char *)v->key};
	uint64_t facts = show_facts(v, ls.rounds.looker.store, true);
	struct known *k = ls.sorted
	    ? bsearch(&wanted, ls.known, ls.sorted, sizeof wanted, compare_known)
	    : NULL;

	if (!k && !listed)
		return true;
	if (!k || k->facts != facts)
		print_lock(v);
	k = k ? k : add_known(v->key);
	if (!k)
		return false;
	k->facts = facts;
	k->seen = true;
	k->listed = listed;
	return true;
}

/*
 * Prints the keys that have become free: those that a whole round has not found.  A round that
 * failed proves nothing of the keys that it has not reached.
 */
static void
end_changes(bool whole)
{
	struct view v = {0};
	size_t kept = 0;

	for (size_t i = 0; i < ls.known_n; i++) {
		struct known *k = &ls.known[i];

		if (k->listed && (k->seen || !whole)) {
			k->seen = false;
			ls.known[kept++] = *k;
			continue;
		}
		if (k->listed) {
			view_begin(&v, k->key);
			print_lock(&v);
		}
		free(k->key);
	}
	view_free(&v);
	ls.known_n = kept;
	sort_known();
}

/*
 * How long the longest holder has had the lock, in nanoseconds; -1: nobody has it, or no time is
 * known.
 */
static int64_t
longest_hold(const struct view *v)
{
	int64_t longest = -1;

	for (size_t i = 0; i < v->holders.n; i++) {
		int64_t ago = view_ago(v, v->holders.list[i].since);

		longest = ago > longest ? ago : longest;
	}
	return longest;
}

/* ---- for Prometheus: all lines of a metric stand together, so all locks come first ---- */

static void
note_lock(const struct view *v)
{
	char label[METRICS_LABEL];
	struct known *k = add_known(metrics_label(label, v->key));

	if (!k)
		return;
	k->holders = v->holders.all;
	k->waiting = v->waiters.all;
	k->frozen = v->is_frozen;
	k->held = longest_hold(v);
}

static void
print_gauges(void)
{
	static const struct {
		const char *name, *help;
	} gauges[] = {
	    {"dlock_lock_holders", "How many hold the lock now."},
	    {"dlock_lock_waiting", "How many wait for the lock now."},
	    {"dlock_lock_frozen", "Whether the lock is frozen: 1, or 0."},
	    {"dlock_lock_held_seconds", "How long the first of its holders has had it."},
	};

	sort_known();
	for (size_t g = 0; g < sizeof gauges / sizeof *gauges; g++) {
		metrics_head(ls.to, gauges[g].name, gauges[g].help, "gauge");
		for (const struct known *k = ls.known; k < ls.known + ls.known_n; k++) {
			const uint64_t whole[] = {k->holders, k->waiting, k->frozen,
			    (uint64_t)k->held / NS_PER_S};

			if (g == 3 && k->held < 0)
				continue;
			fprintf(ls.to, "%s{key=\"%s\",backend=\"%s\"} %" PRIu64 "\n",
			    gauges[g].name, k->key, ls.rounds.looker.store->backend->name,
			    whole[g]);
		}
	}
}

/* ---- a round ---- */

/* Shows or notes one view.  False ends the look, since nobody reads what we write. */
static bool
see(void *ctx, const struct view *v)
{
	const struct params *p = ls.rounds.looker.params;

	(void)ctx;
	if (p->word && fnmatch(p->word, v->key, 0) != 0)
		return true;
	if (p->look.held_over && longest_hold(v) <= p->look.held_over)
		return !ls.changes || print_change(v, false);
	ls.seen++;
	if (p->look.prometheus)
		note_lock(v);
	else if (ls.changes)
		print_change(v, true);
	else if (ls.seen <= ls.most)
		print_lock(v);
	return !ferror(ls.to) && !ls.short_of_memory;
}

static enum rc
list_locks(FILE *to, struct fault *f)
{
	ls.to = to;
	ls.seen = 0;
	return look_at_all(&ls.rounds.looker, see, NULL, NEVER, f);
}

/*
 * Draws "37 locks at redis 10.0.0.5:6379, every 2s" and a row for each.  The number is known only
 * at the end, so the rows go into a text of their own first.
 */
static enum rc
draw_locks(FILE *picture, struct fault *f)
{
	const struct screen *s = &ls.rounds.screen;
	struct looker *l = &ls.rounds.looker;
	char *rows = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&rows, &size);
	enum rc rc;

	if (!to)
		return fault_set(f, RC_SYSTEM, "no memory");
	columns_fit(&ls.columns, l->params->look.columns);
	ls.most = s->rows > 5 ? s->rows - 5 : 1;
	rc = list_locks(to, f);
	fclose(to);
	fprintf(picture, "%s%" PRIu64 " lock%s at %s, every %s%s\n",
	    screen_colour(s, DIM), ls.seen, ls.seen == 1 ? "" : "s",
	    text_shown(l->store->where).text, parse_span(l->params->look.again).text,
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

	if (to && to != stdout)
		return draw_locks(to, f);
	ls.to = stdout;
	ls.changes = !to;
	if (!ls.headed && !r->looker.params->look.prometheus)
		print_lock(NULL);
	ls.headed = true;
	rc = list_locks(stdout, f);
	if (rc == RC_OK && ls.short_of_memory)
		rc = fault_set(f, RC_SYSTEM, "no memory for so many locks");
	if (rc == RC_OK && r->looker.params->look.prometheus)
		print_gauges();
	if (ls.changes)
		end_changes(rc == RC_OK);
	return rc;
}

static int
run_ls(struct params *p)
{
	struct fault f;
	int status;

	ls.rounds.show = show_locks;
	ls.most = SIZE_MAX;
	screen_open(&ls.rounds.screen);
	if (columns_choose(&ls.columns, p->look.jobs, p->look.columns, &ls.rounds.screen,
		&f) != RC_OK) {
		say_last("%s", f.text);
		return STATUS_USAGE;
	}
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* a reader gets each line at once */
	status = look_rounds(&ls.rounds, p);
	return status == 0 && p->look.held_over && ls.seen ? STATUS_FOUND : status;
}

const struct cmd cmd_ls = {.help = "list all locks, one a line",
    .bit = CMD_LS,
    .usage =
	"usage: dlock ls [options] [PATTERN]\n"
	"\n"
	"Lists the locks that are held, waited for or frozen, one a line, as they are found:\n"
	"all, or those whose key fits PATTERN (as in file names; * also stands for /).\n"
	"Changes nothing, and waits for nobody who works with the server.\n"
	"With --jobs it lists what is remembered of runs with --once and --cooldown: of each\n"
	"key how it was run last, and of each ID the run that ended with 0.\n"
	"\n"
	"  dlock ls -u redis://10.0.0.5\n"
	"  dlock ls -b pg 'deploy/*' -o key,holder,held,why\n"
	"  dlock ls -b zk -J | jq -r 'select(.waiting > 5).key'\n"
	"  dlock ls -b file --watch\n"
	"  dlock ls -b file --jobs 'nightly*'\n"
	"  dlock ls -b pg --held-over 2h 'backup/*' || mail -s 'held for hours' ops\n",
    .notes =
	"Columns: KEY, STATE, KIND, HOLDER, HOST, PID, HELD, WAITING, COMMAND,\n"
	"WHY, SINCE, LEFT, RENEWED, ENDS, TOKEN, HOLDERS, LIMIT, OWNER.\n"
	"With --jobs: KEY, ID, STATUS, WHO, BEGAN, TOOK, SUCCESS, ENDED, HOST, COMMAND,\n"
	"WHY, TOKEN.\n"
	"On a terminal they are cut to fit; elsewhere nothing is.  With --watch: on a terminal\n"
	"the list is drawn anew, elsewhere what has changed is printed.  Status: 0, also when\n"
	"there is none; 1 with --held-over if there is one; 64 to 78 as dlock run has them.",
    .run = run_ls};
