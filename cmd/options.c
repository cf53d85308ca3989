/* options.c - see options.h. */
#include "options.h"

#include "parse.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (365 * 86400 * NS_PER_S) /* for a ttl, grace or min-hold: a year */

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

	if (!parse_duration(value, &ns))
		return refuse(f, "a duration is written 30, 1.5s, 500ms, 2m or 1h30m");
	if (ns < low || ns > LONGEST) {
		duration_text(low, least, sizeof least);
		fault_set(f, RC_USAGE, "from %s to 365d is allowed", least);
		return false;
	}
	*to = ns;
	return true;
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
	return parse_truth(value, to) || refuse(f, "1 or 0 is allowed");
}

static bool
set_key(struct plan *p, const char *value, struct fault *f)
{
	const char *objection = key_objection(value);

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
	char names[128];

	p->backend = backend_named(value);
	if (p->backend)
		return true;
	list_backends(names, sizeof names);
	fault_set(f, RC_USAGE, "no such backend (there are %s)", names);
	return false;
}

static bool
set_url(struct plan *p, const char *value, struct fault *f)
{
	if (strlen(value) >= URL_BYTES)
		return refuse(f, "up to 4095 bytes are allowed");
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
		return refuse(f, "these are too many, or too long");
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
	return parse_duration(value, &p->wait) ||
	    refuse(f, "a duration is written 30, 1.5s, 500ms, 2m, 1h30m or inf");
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
	if (!parse_duration(value, &p->terms.max_run))
		return refuse(f, "a duration is written 30, 1.5s, 500ms, 2m, 1h30m or inf");
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

	if (!parse_number(value, 0, INT_MAX, &n))
		return refuse(f, "a descriptor's number is wanted");
	if (fcntl(n, F_GETFD) < 0)
		return refuse(f, "this descriptor is not open");
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
};

/* ---- the command line ---- */

static enum parsed
wrong(struct fault *f, const char *fmt, const char *a, const char *b)
{
	fault_set(f, RC_USAGE, fmt, a, b);
	return PARSED_WRONG;
}

/* A value to be shown: what is wrong with it must still fit behind it. */
static const char *
shorten(const char *value)
{
	static char shown[64];

	if (strlen(value) < sizeof shown)
		return value;
	snprintf(shown, sizeof shown, "%.*s...", (int)sizeof shown - 4, value);
	return shown;
}

/* Shows the name alone: what stands behind the = may be a password. */
static enum parsed
unknown_option(struct fault *f, const char *word, size_t n)
{
	fault_set(f, RC_USAGE, "unknown option --%.*s (dlock help run lists them)", n < 40 ? (int)n : 40, word);
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

/* A cluster such as `-nq` or `-nkKEY`; moves *words past it and its value. */
static enum parsed
short_options(struct plan *p, struct given *g, char ***words, struct fault *f)
{
	const char *word = *(*words)++;

	for (const char *c = word + 1; *c; c++) {
		int i = find_letter(*c);
		const char *value = "1";

		if (*c == 'h') {
			g->help = true;
			continue;
		}
		if (i < 0)
			return wrong(f, "unknown option -%.1s%s (dlock help run lists them)", c, "");
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
	bool place = g->flag[OPT_BACKEND] || g->flag[OPT_URL];
	bool patience = g->flag[OPT_NONBLOCK] || g->flag[OPT_WAIT];

	if (g->flag[i])
		return NULL;
	if (i == OPT_KEY && is_nested())
		return NULL;
	if (i == OPT_BACKEND && (place || (is_nested() && variable("DLOCK_URL"))))
		return NULL;
	if (i == OPT_URL && place)
		return NULL;
	if ((i == OPT_NONBLOCK || i == OPT_WAIT) && patience)
		return NULL;
	return variable(options[i].env);
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

/* Backend and URL: each may name the backend; both must name the same one. */
static enum parsed
settle_place(struct plan *p, const struct given *g, struct fault *f)
{
	const struct backend *of_url = p->url ? backend_of_url(p->url) : NULL;
	const char *c, *enclosing;
	char name[64], names[128];

	list_backends(names, sizeof names);
	if (p->url && !of_url) {
		fault_set(f, RC_USAGE,
		    "--url '%.*s...': begins with no scheme known here (such as redis://host or file:///directory)",
		    (int)strcspn(p->url, ":/@ ="), p->url);
		return PARSED_WRONG;
	}
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
	snprintf(name, sizeof name, "DLOCK_%s_URL", p->backend->name);
	for (char *up = name; *up; up++)
		*up = toupper((unsigned char)*up);
	c = variable(name);
	if (c && backend_of_url(c) != p->backend)
		return wrong(f, "%s is not a URL of %s", name, p->backend->name);
	p->url = c;
	enclosing = variable("DLOCK_BACKEND");
	p->inherits = !c && is_nested() && enclosing && strcmp(enclosing, p->backend->name) == 0;
	return PARSED_PLAN;
}

/* The words after the options: [KEY] [--] COMMAND [ARGUMENT...]. */
static enum parsed
settle_words(struct plan *p, char **words, struct fault *f)
{
	static char *shell[] = {"/bin/sh", "-c", NULL, NULL};
	bool first_is_key = p->nkeys == 0;
	struct fault why;

	if (first_is_key) {
		if (!*words)
			return wrong(f, "no key: say dlock run -k KEY -- COMMAND, with a name for the lock%s%s", "", "");
		if (!set_key(p, *words, &why))
			return wrong(f, "key '%s': %s", shorten(*words), why.text);
		words++;
		if (*words && strcmp(*words, "--") == 0)
			words++;
		else if (*words && **words == '-')
			return wrong(f, "'%s' comes after the key '%s': options go before it", shorten(*words), p->keys[0]);
	}
	if (p->command && *words)
		return wrong(f, "both --command and '%s' are given: which one is to run?%s", shorten(*words), "");
	if (p->command) {
		shell[2] = (char *)p->command;
		p->argv = shell;
		return PARSED_PLAN;
	}
	if (!*words && first_is_key)
		return wrong(f, "no command after the key '%s' (with -k KEY all words are the command)%s",
		    p->keys[0], "");
	if (!*words)
		return wrong(f, "no command to run under '%s'%s", p->keys[0], "");
	if (!**words)
		return wrong(f, "the command to run under '%s' is empty%s", p->keys[0], "");
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
	duration_text((lease_least(t->grace) + NS_PER_S - 1) / NS_PER_S * NS_PER_S, least, sizeof least);
	fault_set(f, RC_USAGE,
	    "--ttl %s is too short for --grace %s: two renewals would not fit (at least --ttl %s)",
	    duration_text(t->ttl, ttl, sizeof ttl), duration_text(t->grace, grace, sizeof grace), least);
	return PARSED_WRONG;
}

enum parsed
options_parse(struct plan *p, char **words, struct fault *f)
{
	struct given g = {0};

	*p = (struct plan){
	    .wait = NEVER,
	    .conflict_status = 75,
	    .terms = {.ttl = 30 * NS_PER_S, .max_run = NEVER},
	    .signal = SIGTERM,
	    .status_fd = -1,
	};
	if (read_flags(p, &g, &words, f) == PARSED_WRONG)
		return PARSED_WRONG;
	if (g.help)
		return PARSED_HELP;
	if (g.flag[OPT_NONBLOCK] && g.flag[OPT_WAIT])
		return wrong(f, "--nonblock and --wait %s contradict each other%s", g.flag[OPT_WAIT], "");
	if (*words && !g.flag[OPT_KEY] && !inherited(&g, OPT_KEY) && !*words[0])
		return wrong(f, "the key is empty%s%s", "", "");
	if (apply(p, &g, f) == PARSED_WRONG || settle_words(p, words, f) == PARSED_WRONG ||
	    settle_place(p, &g, f) == PARSED_WRONG)
		return PARSED_WRONG;
	return settle_lease(p, f);
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
