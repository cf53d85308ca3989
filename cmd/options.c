/* options.c - see options.h. */
#include "options.h"

#include "nearest.h"
#include "parse.h"
#include "status.h"
#include "text.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (365 * 86400 * NS_PER_S) /* for a ttl, grace or min-hold: a year */
#define DURATIONS "a duration is written 30, 1.5s, 500ms, 2m or 1h30m"

enum { BACKENDS_MAX = 16 };

/* ---- what each option does with its value ---- */

static bool
refuse(struct fault *f, const char *why)
{
	fault_set(f, RC_USAGE, "%s", why);
	return false;
}

/* A duration of at least `low`, at most LONGEST. */
static bool
take_duration(int64_t *to, int64_t low, const char *value, struct fault *f)
{
	int64_t ns;
	char least[32];

	parse_duration_text(low, least, sizeof least);
	if (!parse_duration(value, &ns)) {
		fault_set(f, RC_USAGE, DURATIONS "; from %s to 365d is allowed", least);
		return false;
	}
	if (ns < low || ns > LONGEST) {
		fault_set(f, RC_USAGE, "from %s to 365d is allowed", least);
		return false;
	}
	*to = ns;
	return true;
}

/* One without an upper bound that matters. */
static bool
take_long_duration(int64_t *to, const char *value, struct fault *f)
{
	return parse_duration(value, to) || refuse(f, DURATIONS ", up to 292 years, or inf");
}

static bool
take_text(const char **to, const char *value, struct fault *f)
{
	const char *objection = text_objection(value, 200);

	if (objection) {
		fault_set(f, RC_USAGE, "%s (up to 200 bytes of UTF-8 without control characters)", objection);
		return false;
	}
	*to = value;
	return true;
}

static bool
take_flag(bool *to, const char *value, struct fault *f)
{
	return parse_truth(value, to) || refuse(f, "1 or 0 is allowed (or yes, no, true, false, on, off)");
}

static bool
set_key(struct plan *p, const char *value, struct fault *f)
{
	const char *objection = parse_key_objection(value);

	if (objection) {
		fault_set(f, RC_USAGE, "%s (a key is 1 to %d bytes of UTF-8 without control characters)",
		    objection, KEY_BYTES);
		return false;
	}
	if (p->nkeys > 0)
		return refuse(f, "one run takes one key so far");
	p->keys[p->nkeys++] = value;
	return true;
}

/* The word that was meant by one that is none; or NULL. */
static const char *
meant_by(const char *word, size_t n, const struct synonym *synonyms, const char *const *known)
{
	const char *meant = nearest_synonym(word, n, synonyms);

	return meant ? meant : nearest_word(word, n, known);
}

static void
list_backends(char *out, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; backends[i] && used < size; i++)
		used += snprintf(out + used, size - used, "%s%s", i ? ", " : "", backends[i]->name);
}

static bool
set_backend(struct plan *p, const char *value, struct fault *f)
{
	static const struct synonym synonyms[] = {
	    {"postgres", "pg"}, {"postgresql", "pg"}, {"psql", "pg"}, {"zookeeper", "zk"}, {"flock", "file"},
	    {"dir", "file"}, {"directory", "file"}, {"local", "file"}, {"sentinel", "redis"}, {NULL, NULL},
	};
	const char *known[BACKENDS_MAX + 1] = {0}, *meant;
	char names[128];

	p->backend = backend_named(value);
	if (p->backend)
		return true;
	for (size_t i = 0; i < BACKENDS_MAX && backends[i]; i++)
		known[i] = backends[i]->name;
	meant = meant_by(value, strlen(value), synonyms, known);
	list_backends(names, sizeof names);
	fault_set(f, RC_USAGE, "no such backend%s%s%s (there are %s)", meant ? ": did you mean " : "",
	    meant ? meant : "", meant ? "?" : "", names);
	return false;
}

static bool
set_url(struct plan *p, const char *value, struct fault *f)
{
	if (!*value)
		return refuse(f, "a URL begins with a scheme (such as redis://host or file:///directory)");
	if (strlen(value) >= URL_BYTES)
		return refuse(f, "too long (up to 4095 bytes are allowed)");
	p->url = value;
	return true;
}

/* One NAME=VALUE of n bytes. */
static bool
add_setting(struct plan *p, const char *text, size_t n, struct fault *f)
{
	const char *equals = memchr(text, '=', n);
	char *copy = p->settings_text + p->settings_used;

	if (!equals || equals == text)
		return refuse(f, "a backend's setting is written NAME=VALUE");
	if (p->nsettings == SETTINGS_MAX || p->settings_used + n + 1 > SETTINGS_BYTES)
		return refuse(f, "too many settings, or too long ones (up to 32, 8192 bytes in all)");
	memcpy(copy, text, n);
	copy[n] = '\0';
	copy[equals - text] = '\0';
	p->settings[p->nsettings++] = (struct setting){copy, copy + (equals - text) + 1};
	p->settings_used += n + 1;
	return true;
}

static bool
set_option(struct plan *p, const char *value, struct fault *f)
{
	return add_setting(p, value, strlen(value), f);
}

/* DLOCK_OPTION: several settings, blanks between them. */
static bool
set_options(struct plan *p, const char *value, struct fault *f)
{
	static const char blanks[] = " \t\n";

	for (value += strspn(value, blanks); *value; value += strspn(value, blanks)) {
		size_t n = strcspn(value, blanks);

		if (!add_setting(p, value, n, f))
			return false;
		value += n;
	}
	return true;
}

static bool
set_nonblock(struct plan *p, const char *value, struct fault *f)
{
	bool on = false;

	if (!take_flag(&on, value, f))
		return false;
	if (on)
		p->wait = 0;
	return true;
}

static bool
set_wait(struct plan *p, const char *value, struct fault *f)
{
	p->persist = true;
	return take_long_duration(&p->wait, value, f);
}

static bool
set_conflict(struct plan *p, const char *value, struct fault *f)
{
	long n;

	if (!parse_number(value, 0, 255, &n))
		return refuse(f, "a number from 0 to 255 is allowed");
	p->conflict_status = n;
	return true;
}

static bool
set_ttl(struct plan *p, const char *value, struct fault *f)
{
	return take_duration(&p->terms.ttl, 3 * NS_PER_S, value, f);
}

static bool
set_grace(struct plan *p, const char *value, struct fault *f)
{
	p->terms.grace_fixed = true;
	return take_duration(&p->terms.grace, 0, value, f);
}

static bool
set_signal(struct plan *p, const char *value, struct fault *f)
{
	static const int useless[] = {SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
	int sig;

	if (!parse_signal(value, &sig))
		return refuse(f, "a signal is written TERM, SIGTERM or 15");
	for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
		if (sig == useless[i])
			return refuse(f, "this signal does not ask a command to end");
	p->signal = sig;
	return true;
}

static bool
set_min_hold(struct plan *p, const char *value, struct fault *f)
{
	return take_duration(&p->terms.min_hold, 0, value, f);
}

static bool
set_max_run(struct plan *p, const char *value, struct fault *f)
{
	if (!take_long_duration(&p->terms.max_run, value, f))
		return false;
	if (p->terms.max_run == 0)
		return refuse(f, "a command needs some time (more than 0, or inf)");
	return true;
}

static bool
set_wait_tree(struct plan *p, const char *value, struct fault *f)
{
	return take_flag(&p->terms.wait_tree, value, f);
}

static bool
set_command(struct plan *p, const char *value, struct fault *f)
{
	if (!*value)
		return refuse(f, "the command is empty");
	p->command = value;
	return true;
}

static bool
set_who(struct plan *p, const char *value, struct fault *f)
{
	return take_text(&p->who, value, f);
}

static bool
set_why(struct plan *p, const char *value, struct fault *f)
{
	return take_text(&p->why, value, f);
}

static bool
set_status_fd(struct plan *p, const char *value, struct fault *f)
{
	long n;
	int mode;

	if (!parse_number(value, 0, INT_MAX, &n))
		return refuse(f, "the number of an open descriptor is wanted, such as 3");
	mode = fcntl(n, F_GETFL);
	if (mode < 0)
		return refuse(f, "this descriptor is not open");
	if ((mode & O_ACCMODE) == O_RDONLY || (mode & O_PATH))
		return refuse(f, "this descriptor is not open for writing");
	p->status_fd = n;
	return true;
}

static bool
set_quiet(struct plan *p, const char *value, struct fault *f)
{
	return take_flag(&p->quiet, value, f);
}

static bool
set_verbose(struct plan *p, const char *value, struct fault *f)
{
	return take_flag(&p->verbose, value, f);
}

/* The rows that the parser itself must know; same order as the table. */
enum { OPT_KEY, OPT_BACKEND, OPT_URL, OPT_OPTION, OPT_NONBLOCK, OPT_WAIT };

const struct option options[] = {
    [OPT_KEY] = {"key", 'k', "KEY", "DLOCK_KEY", set_key,
	"the lock's name (without -k: the first word)"},
    [OPT_BACKEND] = {"backend", 'b', "NAME", "DLOCK_BACKEND", set_backend,
	"where locks are kept: file, redis, zk or pg"},
    [OPT_URL] = {"url", 'u', "URL", "DLOCK_URL", set_url,
	"which server or directory; names the backend\ntoo (default: DLOCK_<BACKEND>_URL, then local)"},
    [OPT_OPTION] = {"option", 'O', "NAME=VALUE", "DLOCK_OPTION", set_option,
	"a setting of the backend; repeatable"},
    [OPT_NONBLOCK] = {"nonblock", 'n', NULL, "DLOCK_NONBLOCK", set_nonblock,
	"do not wait for the lock"},
    [OPT_WAIT] = {"wait", 'w', "DURATION", "DLOCK_WAIT", set_wait,
	"wait at most so long; 0 is -n (default: inf)"},
    {"conflict-exit-code", 'E', "N", "DLOCK_CONFLICT_EXIT_CODE", set_conflict,
	"status when the lock was not to be had\n(default: 75)"},
    {"ttl", 't', "DURATION", "DLOCK_TTL", set_ttl,
	"the lease, renewed at a third (default: 30s)"},
    {"grace", 0, "DURATION", "DLOCK_GRACE", set_grace,
	"from --signal to KILL (default: 5s, at most\na sixth of the ttl)"},
    {"signal", 0, "SIG", "DLOCK_SIGNAL", set_signal,
	"asks the command to stop (default: TERM)"},
    {"min-hold", 0, "DURATION", "DLOCK_MIN_HOLD", set_min_hold,
	"keep the lock at least so long; dlock itself\nreturns with the command"},
    {"max-run", 0, "DURATION", "DLOCK_MAX_RUN", set_max_run,
	"stop the command after so long: status 124"},
    {"wait-tree", 0, NULL, "DLOCK_WAIT_TREE", set_wait_tree,
	"release only when every descendant has ended"},
    {"command", 'c', "STRING", "DLOCK_COMMAND", set_command,
	"run STRING with sh -c"},
    {"who", 0, "TEXT", "DLOCK_WHO", set_who,
	"shown to others (default: user@host)"},
    {"why", 0, "TEXT", "DLOCK_WHY", set_why,
	"shown to others, such as a ticket"},
    {"status-fd", 0, "N", "DLOCK_STATUS_FD", set_status_fd,
	"write every event to descriptor N, one JSON\nobject a line"},
    {"quiet", 'q', NULL, "DLOCK_QUIET", set_quiet,
	"say nothing about waiting or a busy lock"},
    {"verbose", 'v', NULL, "DLOCK_VERBOSE", set_verbose,
	"tell what happens, call by call"},
    {NULL, 0, NULL, NULL, NULL, NULL},
};

enum { OPTIONS = sizeof options / sizeof *options - 1 };

/* What has been said so far, before any of it takes effect. */
struct given {
	const char *flag[OPTIONS]; /* the value, "1" for a flag; NULL: not said */
	bool help;
	bool first_is_key; /* no other word was the key */
};

/* ---- the command line ---- */

static enum parsed
wrong(struct fault *f, const char *fmt, const char *a, const char *b)
{
	fault_set(f, RC_USAGE, fmt, a, b);
	return PARSED_WRONG;
}

/* A value to be shown, or two: what is wrong with it must still fit behind it. */
static const char *
shorten(const char *value)
{
	static char shown[2][64];
	static int turn;

	if (strlen(value) < sizeof *shown)
		return value;
	turn = !turn;
	snprintf(shown[turn], sizeof *shown, "%.*s...", (int)sizeof *shown - 4, value);
	return shown[turn];
}

/* "; did you mean --wait?", or nothing. */
static const char *
suggest_option(const char *word, size_t n, char *out, size_t size)
{
	static const struct synonym synonyms[] = {
	    {"nowait", "nonblock"}, {"no-wait", "nonblock"}, {"nb", "nonblock"}, {"try", "nonblock"},
	    {"timeout", "wait"}, {"wait-timeout", "wait"}, {"lock-timeout", "wait"}, {"kill-after", "grace"},
	    {"lease", "ttl"}, {"expire", "ttl"}, {"name", "key"}, {"lock", "key"}, {"id", "key"}, {"server", "url"},
	    {"host", "url"}, {"address", "url"}, {"directory", "url"}, {"dir", "url"}, {"type", "backend"},
	    {"reason", "why"}, {"comment", "why"}, {"owner", "who"}, {"user", "who"}, {"hold", "min-hold"},
	    {"shell", "command"}, {"exec", "command"}, {"set", "option"}, {"silent", "quiet"}, {"debug", "verbose"},
	    {"events", "status-fd"}, {NULL, NULL},
	};
	const char *known[OPTIONS + 1] = {0}, *meant;

	for (int i = 0; i < OPTIONS; i++)
		known[i] = options[i].name;
	meant = meant_by(word, n, synonyms, known);
	*out = '\0';
	if (meant)
		snprintf(out, size, ": did you mean --%s?", meant);
	return out;
}

/* Shows the name alone: what stands behind the = may be a password. */
static enum parsed
unknown_option(struct fault *f, const char *word, size_t n)
{
	char meant[64];

	fault_set(f, RC_USAGE, "unknown option --%.*s%s (dlock help run lists them)", n < 40 ? (int)n : 40, word,
	    suggest_option(word, n, meant, sizeof meant));
	return PARSED_WRONG;
}

static int
find_long(const char *name, size_t n)
{
	for (int i = 0; i < OPTIONS; i++)
		if (strlen(options[i].name) == n && strncmp(options[i].name, name, n) == 0)
			return i;
	return -1;
}

static int
find_letter(char c)
{
	for (int i = 0; i < OPTIONS; i++)
		if (options[i].letter && options[i].letter == c)
			return i;
	return -1;
}

/* Notes one flag.  -k and -O take effect as they come, since they may come again. */
static enum parsed
note(struct plan *p, struct given *g, int i, const char *value, struct fault *f)
{
	struct fault why;

	if (i == OPT_KEY || i == OPT_OPTION) {
		g->flag[i] = value;
		if (options[i].set(p, value, &why))
			return PARSED_PLAN;
		fault_set(f, RC_USAGE, "--%s '%s': %s", options[i].name, shorten(value), why.text);
		return PARSED_WRONG;
	}
	if (g->flag[i])
		return wrong(f, "--%s is given twice%s", options[i].name, "");
	g->flag[i] = value;
	return PARSED_PLAN;
}

/* `--name`, `--name=value` or `--name value`; moves *words past it. */
static enum parsed
long_option(struct plan *p, struct given *g, char ***words, struct fault *f)
{
	const char *word = *(*words)++ + 2;
	size_t n = strcspn(word, "=");
	int i = find_long(word, n);

	if (strcmp(word, "help") == 0) {
		g->help = true;
		return PARSED_PLAN;
	}
	if (i < 0)
		return unknown_option(f, word, n);
	if (!options[i].arg && word[n])
		return wrong(f, "--%s takes no value, but '%s' is given", options[i].name, shorten(word + n + 1));
	if (!options[i].arg)
		return note(p, g, i, "1", f);
	if (word[n])
		return note(p, g, i, word + n + 1, f);
	if (!**words)
		return wrong(f, "--%s needs a value: %s", options[i].name, options[i].arg);
	return note(p, g, i, *(*words)++, f);
}

/* Shows no value: it may be a password. */
static enum parsed
letter_with_equals(struct fault *f, const struct option *o)
{
	fault_set(f, RC_USAGE, "-%c=...: no = stands between a letter and its value: say -%c %s or --%s=%s", o->letter,
	    o->letter, o->arg, o->name, o->arg);
	return PARSED_WRONG;
}

/* A cluster such as `-nq` or `-nkKEY`; moves *words past it and its value.  `-key` is none, but a mistake. */
static enum parsed
short_options(struct plan *p, struct given *g, char ***words, struct fault *f)
{
	const char *word = *(*words)++;
	int meant = find_long(word + 1, strcspn(word + 1, "="));

	if (meant >= 0)
		return wrong(f, "-%s is written with two dashes: --%s", options[meant].name, options[meant].name);
	for (const char *c = word + 1; *c; c++) {
		int i = find_letter(*c);
		const char *value = "1";

		if (*c == 'h') {
			g->help = true;
			continue;
		}
		if (i < 0 && *c == '=' && c > word + 1)
			return wrong(f, "-%.1s takes no value%s", c - 1, "");
		if (i < 0)
			return wrong(f, "unknown option -%.1s%s (dlock help run lists them)", c, "");
		if (options[i].arg && c[1] == '=')
			return letter_with_equals(f, &options[i]);
		if (options[i].arg) {
			value = c[1] ? c + 1 : *(*words);
			if (!value)
				return wrong(f, "--%s needs a value: %s", options[i].name, options[i].arg);
			if (!c[1])
				(*words)++;
			return note(p, g, i, value, f);
		}
		if (note(p, g, i, value, f) == PARSED_WRONG)
			return PARSED_WRONG;
	}
	return PARSED_PLAN;
}

static enum parsed
read_flags(struct plan *p, struct given *g, char ***words, struct fault *f)
{
	while (**words) {
		const char *word = **words;
		enum parsed so_far;

		if (strcmp(word, "--") == 0) {
			(*words)++;
			return PARSED_PLAN;
		}
		if (word[0] != '-' || !word[1])
			return PARSED_PLAN;
		so_far = word[1] == '-' ? long_option(p, g, words, f) : short_options(p, g, words, f);
		if (so_far != PARSED_PLAN)
			return so_far;
	}
	return PARSED_PLAN;
}

/* Does a `--` stand among them? */
static bool
have_dashes(char **words)
{
	for (; *words; words++)
		if (strcmp(*words, "--") == 0)
			return true;
	return false;
}

/*
 * Without -k the first word is the key.  Options may stand behind it where a --
 * comes behind them; without it, `dlock run backup -n x` could as well be a
 * command whose key was forgotten.
 */
static enum parsed
read_key(struct plan *p, struct given *g, char ***words, struct fault *f)
{
	const char *key = *(*words)++, *next = **words;
	struct fault why;

	if (!*key)
		return wrong(f, "the key is empty%s%s", "", "");
	if (!set_key(p, key, &why))
		return wrong(f, "key '%s': %s", shorten(key), why.text);
	if (!next || next[0] != '-' || !next[1])
		return PARSED_PLAN;
	if (have_dashes(*words) && read_flags(p, g, words, f) == PARSED_WRONG)
		return PARSED_WRONG;
	if (**words == next || strcmp((*words)[-1], "--") != 0) {
		fault_set(f, RC_USAGE,
		    "'%s' comes after the key '%s': options go before the key, or before a -- (dlock run %s %s ... -- COMMAND)",
		    shorten(next), shorten(key), shorten(key), shorten(next));
		return PARSED_WRONG;
	}
	return PARSED_PLAN;
}

/* ---- both sources together ---- */

/* An empty variable is as good as none, so that `DLOCK_WAIT= dlock run` resets it. */
static const char *
variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static bool
is_nested(void)
{
	return variable("DLOCK_KEEPER") != NULL;
}

/*
 * The variable of option i, unless a flag has said the same thing with another
 * word, or the variable is only what an enclosing dlock tells its command.
 */
static const char *
inherited(const struct given *g, int i)
{
	bool server = g->flag[OPT_BACKEND] || g->flag[OPT_URL];
	bool patience = g->flag[OPT_NONBLOCK] || g->flag[OPT_WAIT];

	if (g->flag[i])
		return NULL;
	if (i == OPT_KEY && is_nested())
		return NULL;
	if (i == OPT_BACKEND && (server || (is_nested() && variable("DLOCK_URL"))))
		return NULL;
	if (i == OPT_URL && server)
		return NULL;
	if ((i == OPT_NONBLOCK || i == OPT_WAIT) && patience)
		return NULL;
	return variable(options[i].env);
}

/* Not to wait and to wait: whoever says both, in one way, has made a mistake. */
static enum parsed
check_patience(const struct given *g, struct fault *f)
{
	const char *nonblock = inherited(g, OPT_NONBLOCK);
	bool on = false;

	if (g->flag[OPT_NONBLOCK] && g->flag[OPT_WAIT])
		return wrong(f, "--nonblock and --wait %s contradict each other%s", shorten(g->flag[OPT_WAIT]), "");
	if (nonblock && inherited(g, OPT_WAIT) && parse_truth(nonblock, &on) && on)
		return wrong(f, "DLOCK_NONBLOCK and DLOCK_WAIT contradict each other%s%s", "", "");
	return PARSED_PLAN;
}

static enum parsed
apply(struct plan *p, const struct given *g, struct fault *f)
{
	for (int i = 0; i < OPTIONS; i++) {
		const char *env = inherited(g, i), *value = env ? env : g->flag[i];
		struct fault why;
		bool done;

		if (!value || (!env && (i == OPT_KEY || i == OPT_OPTION)))
			continue;
		done = i == OPT_OPTION ? set_options(p, value, &why) : options[i].set(p, value, &why);
		if (!done) {
			fault_set(f, RC_USAGE, "%s%s '%s': %s", env ? "" : "--", env ? options[i].env : options[i].name,
			    shorten(value), why.text);
			return PARSED_WRONG;
		}
	}
	return PARSED_PLAN;
}

/* The password of scheme://user:password@host/..., and its length; NULL: it has none. */
static char *
password_of_user(char *url, size_t *n)
{
	char *host = strstr(url, "://"), *at, *colon;

	if (!host)
		return NULL;
	host += 3;
	at = memrchr(host, '@', strcspn(host, "/"));
	colon = at ? memchr(host, ':', at - host) : NULL;
	*n = colon ? (size_t)(at - colon - 1) : 0;
	return colon ? colon + 1 : NULL;
}

/* The same of ...?password=WORD&... and of password='WO\'RD' among other pairs, at or after `text`. */
static char *
password_of_pair(char *text, size_t *n)
{
	static const char blanks[] = " \t\n\v\f\r"; /* as libpq skips them */
	char *word = text, *end;

	do {
		word = strstr(word, "password");
		if (!word)
			return NULL;
		word += strlen("password");
		word += strspn(word, blanks);
	} while (*word != '=');
	word++;
	word += strspn(word, blanks);
	for (end = word; *end && *end != '&' && (!strchr(blanks, *end) || *word == '\''); end++) {
		if (*end == '\\' && end[1])
			end++;
		else if (*end == '\'' && end > word && *word == '\'')
			break;
	}
	*n = end - word;
	return word;
}

bool
options_has_password(const char *url)
{
	size_t n;

	return url && (password_of_user((char *)url, &n) || password_of_pair((char *)url, &n));
}

/* ps(1) shows arguments to everybody: keep a copy of the URL, blot out its passwords. */
static void
hide_password(struct plan *p, char *url)
{
	char *word;
	size_t n;

	snprintf(p->url_text, sizeof p->url_text, "%s", url);
	p->url = p->url_text;
	word = password_of_user(url, &n);
	if (word)
		memset(word, 'x', n);
	for (char *rest = url; (word = password_of_pair(rest, &n)); rest = word + n)
		memset(word, 'x', n);
}

/* "DLOCK_REDIS_URL" */
static void
url_variable(const struct backend *b, char *out, size_t size)
{
	snprintf(out, size, "DLOCK_%s_URL", b->name);
	for (char *c = out; *c; c++)
		*c = toupper((unsigned char)*c);
}

static enum parsed
wrong_path(struct fault *f, const char *named, const char *path, const char *from_the_root_on)
{
	fault_set(f, RC_USAGE, "%s '%s': a directory is written file://%s", named, shorten(path),
	    shorten(from_the_root_on));
	return PARSED_WRONG;
}

/* Shows the scheme alone, for there may be a password behind it; a path has none. */
static enum parsed
no_url(struct fault *f, const char *named, const char *url)
{
	static const struct synonym synonyms[] = {
	    {"zookeeper", "zk"}, {"pg", "postgresql"}, {"psql", "postgresql"}, {"dir", "file"}, {"valkey", "redis"},
	    {NULL, NULL},
	};
	static const char *const known[] = {"file", "redis", "zk", "postgresql", NULL};
	size_t n = strcspn(url, ":/@ =");
	const char *meant = strncmp(url + n, "://", 3) == 0 ? meant_by(url, n, synonyms, known) : NULL;

	if (*url == '/')
		return wrong_path(f, named, url, url);
	if (*url == '.' || *url == '~')
		return wrong_path(f, named, url, "/DIRECTORY");
	fault_set(f, RC_USAGE, "%s '%.*s...': begins with no scheme known here%s%s%s (such as redis://host or file:///directory)",
	    named, n < 60 ? (int)n : 60, url, meant ? ": did you mean " : "", meant ? meant : "", meant ? "://?" : "");
	return PARSED_WRONG;
}

/* Backend and URL: each may name the backend; both must name the same one. */
static enum parsed
settle_backend(struct plan *p, const struct given *g, struct fault *f)
{
	const struct backend *of_url = p->url ? backend_of_url(p->url) : NULL;
	const char *c, *enclosing;
	char name[64], names[128];

	list_backends(names, sizeof names);
	if (p->url && !of_url)
		return no_url(f, g->flag[OPT_URL] ? "--url" : "DLOCK_URL", p->url);
	if (of_url && p->backend && of_url != p->backend)
		return wrong(f, "--backend %s and the URL of %s contradict each other", p->backend->name,
		    of_url->name);
	if (of_url)
		p->backend = of_url;
	if (!p->backend)
		return wrong(f,
		    "no backend named: say -b NAME or -u URL, or set DLOCK_BACKEND or DLOCK_URL (there are %s)%s",
		    names, "");
	if (g->flag[OPT_URL])
		hide_password(p, (char *)g->flag[OPT_URL]);
	if (p->url)
		return PARSED_PLAN;
	url_variable(p->backend, name, sizeof name);
	c = variable(name);
	if (c && !backend_of_url(c))
		return no_url(f, name, c);
	if (c && backend_of_url(c) != p->backend)
		return wrong(f, "%s is not a URL of %s", name, p->backend->name);
	p->url = c;
	enclosing = variable("DLOCK_BACKEND");
	p->inherits = !c && is_nested() && enclosing && strcmp(enclosing, p->backend->name) == 0;
	return PARSED_PLAN;
}

/* The words after options and key. */
static enum parsed
settle_command(struct plan *p, const struct given *g, char **words, struct fault *f)
{
	static char *shell[] = {"/bin/sh", "-c", NULL, NULL};

	if (p->nkeys == 0)
		return wrong(f, "no key: say dlock run -k KEY -- COMMAND, with a name for the lock%s%s", "", "");
	if (p->command && *words)
		return wrong(f, "both --command and '%s' are given: which one is to run?%s", shorten(*words), "");
	if (p->command) {
		shell[2] = (char *)p->command;
		p->argv = shell;
		return PARSED_PLAN;
	}
	if (!*words && g->first_is_key)
		return wrong(f, "no command after the key '%s' (with -k KEY all words are the command)%s",
		    shorten(p->keys[0]), "");
	if (!*words)
		return wrong(f, "no command to run under '%s'%s", shorten(p->keys[0]), "");
	if (!**words)
		return wrong(f, "the command to run under '%s' is empty%s", shorten(p->keys[0]), "");
	p->argv = words;
	return PARSED_PLAN;
}

/* Can the lease carry two attempts to renew, the grace and the margin? */
static enum parsed
settle_lease(struct plan *p, struct fault *f)
{
	struct terms *t = &p->terms;
	char ttl[32], grace[32], least[32];

	if (!t->grace_fixed)
		t->grace = lease_grace(t->ttl);
	if (lease_fits(t->ttl, lease_pace(t->ttl), t->grace))
		return PARSED_PLAN;
	parse_duration_text((lease_least(t->grace) + NS_PER_S - 1) / NS_PER_S * NS_PER_S, least, sizeof least);
	fault_set(f, RC_USAGE,
	    "--ttl %s is too short for --grace %s: two renewals would not fit (at least --ttl %s)",
	    parse_duration_text(t->ttl, ttl, sizeof ttl), parse_duration_text(t->grace, grace, sizeof grace), least);
	return PARSED_WRONG;
}

enum parsed
options_parse(struct plan *p, char **words, struct fault *f)
{
	struct given g = {0};

	*p = (struct plan){
	    .wait = NEVER,
	    .conflict_status = STATUS_BUSY,
	    .terms = {.ttl = 30 * NS_PER_S, .max_run = NEVER},
	    .signal = SIGTERM,
	    .status_fd = -1,
	};
	if (read_flags(p, &g, &words, f) == PARSED_WRONG)
		return PARSED_WRONG;
	g.first_is_key = !g.help && !g.flag[OPT_KEY] && !inherited(&g, OPT_KEY);
	if (g.first_is_key && *words && read_key(p, &g, &words, f) == PARSED_WRONG)
		return PARSED_WRONG;
	if (g.help)
		return PARSED_HELP;
	if (check_patience(&g, f) == PARSED_WRONG || apply(p, &g, f) == PARSED_WRONG ||
	    settle_command(p, &g, words, f) == PARSED_WRONG || settle_backend(p, &g, f) == PARSED_WRONG)
		return PARSED_WRONG;
	return settle_lease(p, f);
}

/* ---- variables that nobody reads ---- */

static bool
is_word(const char *word, const char *text, size_t n)
{
	return strlen(word) == n && strncmp(word, text, n) == 0;
}

/* The variable of an option, of a URL, or one that dlock itself sets for commands. */
static bool
is_known_variable(const char *name, size_t n)
{
	static const char *const told[] = {"DLOCK_TOKEN", "DLOCK_TOKENS", "DLOCK_OWNER", "DLOCK_KEEPER", "DLOCK_SLOT",
	    "DLOCK_HANDLE"};
	char url[64];

	for (int i = 0; i < OPTIONS; i++)
		if (is_word(options[i].env, name, n))
			return true;
	for (size_t i = 0; i < sizeof told / sizeof *told; i++)
		if (is_word(told[i], name, n))
			return true;
	for (size_t i = 0; backends[i]; i++) {
		url_variable(backends[i], url, sizeof url);
		if (is_word(url, name, n))
			return true;
	}
	return false;
}

/* "DLOCK_WIAT (did you mean DLOCK_WAIT?)"; returns its length, which may be more than fits. */
static size_t
describe_variable(const char *name, size_t n, char *out, size_t size)
{
	const char *known[OPTIONS + 1] = {0}, *meant;
	char clean[64];

	for (int i = 0; i < OPTIONS; i++)
		known[i] = options[i].env + strlen("DLOCK_");
	meant = nearest_word(name + strlen("DLOCK_"), n - strlen("DLOCK_"), known);
	return snprintf(out, size, "%s%s%s%s", text_clean(clean, sizeof clean, name, n), meant ? " (did you mean DLOCK_" : "",
	    meant ? meant : "", meant ? "?)" : "");
}

bool
options_stray(char *out, size_t size)
{
	size_t used = 0;

	for (char **e = environ; *e; e++) {
		size_t n;

		if (strncmp(*e, "DLOCK_", strlen("DLOCK_")) != 0)
			continue;
		n = strcspn(*e, "=");
		if ((*e)[n] != '=' || !(*e)[n + 1] || is_known_variable(*e, n))
			continue;
		if (used > 0 && used < size)
			used += snprintf(out + used, size - used, ", ");
		if (used < size)
			used += describe_variable(*e, n, out + used, size - used);
	}
	return used > 0;
}

/* ---- what people and tests read ---- */

void
options_print_help(FILE *to)
{
	for (const struct option *o = options; o->name; o++) {
		const char *rest = strchr(o->help, '\n');
		char head[64];

		snprintf(head, sizeof head, "%s%c%s --%s%s%s", o->letter ? "-" : " ", o->letter ? o->letter : ' ',
		    o->letter ? "," : " ", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
		fprintf(to, "  %-28s %.*s\n", head, rest ? (int)(rest - o->help) : (int)strlen(o->help), o->help);
		if (rest)
			fprintf(to, "  %-28s %s\n", "", rest + 1);
	}
}

void
options_print_raw(FILE *to)
{
	for (const struct option *o = options; o->name; o++)
		fprintf(to, "%s\t%c\t%s\t%s\n", o->name, o->letter ? o->letter : '-', o->arg ? o->arg : "-", o->env);
}
