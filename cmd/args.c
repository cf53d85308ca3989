/*
 * args.c - cuts the command line into options, key and command, or operands, and checks all.
 *
 *	read     variables are noted, then the words.  Keys take effect at once
 *	apply    files are read for these keys.  Of each option the strongest value counts (said.c)
 *	settle   with all values known, the command and the site are found, and it is checked whether
 *	         the values go together
 */
#include "args.h"

#include "conf.h"
#include "environment.h"
#include "exit.h"
#include "mask.h"
#include "parse.h"
#include "say.h"
#include "text.h"
#include "variables.h"

#include "backends/common/append.h"
#include "backends/common/setting.h"
#include "backends/registry.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * The command line while it is read.  Keys take effect at once, since the files that are read
 * next have sections for keys; all other options are only noted.
 */
struct args {
	char **next;           /* what has not been read yet, NULL-ended */
	struct params *params; /* where keys and operands take effect */
	struct said_list *all; /* where all options are noted */
	bool help;             /* -h or --help was among them */
	bool ended;            /* a -- has ended the options */
	bool named;            /* of dlock run: the key came as a word, without -k */
};

/* ---- options ---- */

static enum rc
take_key(struct args *w, const char *called, const char *key, struct fault *f)
{
	struct fault why;

	said_add(w->all, &w->all->words, OPT_KEY, key, 0);
	if (options_take(w->params, OPT_KEY, key, &why) != RC_OK)
		return fault_set(f, RC_USAGE, "%s%s", called, why.text);
	return RC_OK;
}

/*
 * Overwrites a password in the URL at once, so that ps(1) does not show it for long, even if the
 * next word is wrong.  Returns our copy.  A URL that is too long for
 * the copy is refused later.
 */
static const char *
hide_url(struct params *p, char *url)
{
	bool fits = strlen(url) < sizeof p->texts.url;

	if (fits)
		strcpy(p->texts.url, url);
	mask_passwords(url);
	return fits ? p->texts.url : url;
}

static enum rc
note_option(struct args *w, int i, const char *value, struct fault *f)
{
	const struct said *before = said_of(w->all, i);

	if (i == OPT_KEY)
		return take_key(w, "--key", value, f);
	if (i == OPT_URL) /* a word of argv, or a part of one */
		value = hide_url(w->params, (char *)value);
	if (before && before->origin->by == BY_WORDS && !options[i].repeats)
		return fault_set(f, RC_USAGE, "--%s is given twice", options[i].name);
	said_add(w->all, &w->all->words, i, value, 0);
	return RC_OK;
}

/* Finds the option with this letter; if there is none, the last row, which has no name. */
static const struct option *
option_of_letter(unsigned cmd, char letter)
{
	const struct option *o = options;

	while (o->name && (!(o->cmds & cmd) || o->letter != letter))
		o++;
	return o;
}

/*
 * Would this word behind a dash be an option where options are read?  Returns how many of its bytes
 * name the option: `--`, a long option, or letters up to one that takes a value.  0: it is no option.
 */
static size_t
option_length(unsigned cmd, const char *word)
{
	size_t n = strcspn(word, "=");

	if (!word[1])
		return 0;
	if (word[1] == '-')
		return !word[2] || strcmp(word, "--help") == 0 ||
			options_named(cmd, word + 2, n - 2) >= 0
		    ? n
		    : 0;
	for (n = 1; word[n]; n++) {
		const struct option *o = option_of_letter(cmd, word[n]);

		if (!o->name && word[n] != 'h')
			return 0;
		if (o->arg)
			return n + 1;
	}
	return n;
}

/*
 * The value of an option is the next word.  Where a shell has left out an empty variable, the
 * next word is an option.  An option is not taken for a value, since then dlock would use another
 * lock.  The error does not show the text behind the option's name, which may be a password.
 */
static enum rc
read_value(struct args *w, int i, struct fault *f)
{
	const struct option *o = &options[i];
	const char *next = *w->next;
	size_t n = next && *next == '-' ? option_length(w->params->cmd, next) : 0;

	if (!next)
		return fault_set(f, RC_USAGE, "--%s needs a value: %s", o->name, o->arg);
	if (n > 0)
		return fault_set(f, RC_USAGE,
		    "--%s needs a value, but '%.*s' comes next (is a variable empty?): a value that looks like an option is written --%s=VALUE",
		    o->name, n < 40 ? (int)n : 40, next, o->name);
	w->next++;
	return note_option(w, i, next, f);
}

/* `--name`, `--name=value` or `--name value` */
static enum rc
read_long(struct args *w, struct fault *f)
{
	const char *word = *w->next++ + 2;
	size_t n = strcspn(word, "=");
	int i = options_named(w->params->cmd, word, n);
	int64_t ns;

	if (strcmp(word, "help") == 0) {
		w->help = true;
		return RC_OK;
	}
	if (i < 0) /* the text behind a = is not shown: it may be a password */
		return fault_set(f, RC_USAGE,
		    "unknown option --%.*s%s (dlock help %s lists them)",
		    n < 40 ? (int)n : 40, word,
		    options_hint(w->params->cmd, ": did you mean --", word, n).text,
		    options_cmd(w->params->cmd));
	if (!options[i].arg && word[n])
		return fault_set(f, RC_USAGE, "--%s takes no value, but '%s' is given",
		    options[i].name, text_brief(word + n + 1).text);
	if (!options[i].arg)
		return note_option(w, i, "1", f);
	if (word[n])
		return note_option(w, i, word + n + 1, f);
	/* the next word may be the value, or a key that looks like a duration */
	if (options[i].bare && *w->next && parse_duration(*w->next, &ns)) {
		const char *name = options[i].name;
		const struct brief next = text_brief(*w->next);

		return fault_set(f, RC_USAGE,
		    "--%s %s: say --%s=%s, or if '%s' is no value, put it before --%s",
		    name, next.text, name, next.text, next.text, name);
	}
	if (options[i].bare)
		return note_option(w, i, options[i].bare, f);
	return read_value(w, i, f);
}

/* Refuses a long option behind one dash, ours or another program's: `-key` would name the key "ey". */
static enum rc
check_letters(struct args *w, const char *letters, struct fault *f)
{
	size_t n = strcspn(letters, "=");
	int meant = options_named(w->params->cmd, letters, n);
	const struct brief other = options_synonym(
	    w->params->cmd, ": did you mean --", letters, n);

	if (meant >= 0)
		return fault_set(f, RC_USAGE, "-%s is written with two dashes: --%s",
		    options[meant].name, options[meant].name);
	if (*other.text)
		return fault_set(f, RC_USAGE,
		    "unknown option -%.*s%s (dlock help %s lists them)", (int)n, letters,
		    other.text, options_cmd(w->params->cmd));
	return RC_OK;
}

/* Reads letters in a row, such as `-nq` or `-nkKEY`. */
static enum rc
read_letters(struct args *w, struct fault *f)
{
	const char *word = *w->next++;

	if (word[2] && check_letters(w, word + 1, f) != RC_OK)
		return RC_USAGE;
	for (const char *c = word + 1; *c; c++) {
		const struct option *o = option_of_letter(w->params->cmd, *c);

		if (*c == 'h') {
			w->help = true;
			continue;
		}
		if (!o->name && *c == '=' && c > word + 1)
			return fault_set(f, RC_USAGE, "-%c takes no value", c[-1]);
		if (!o->name)
			return fault_set(f, RC_USAGE,
			    "unknown option -%c%s (dlock help %s lists them)", *c,
			    options_hint(w->params->cmd, ": did you mean --", c, 1).text,
			    options_cmd(w->params->cmd));
		/* the text behind a = is not shown: it may be a password */
		if (o->arg && c[1] == '=')
			return fault_set(f, RC_USAGE,
			    "-%c=...: there is no = between a letter and its value: say -%c %s or --%s=%s",
			    *c, *c, o->arg, o->name, o->arg);
		if (o->arg)
			return c[1] ? note_option(w, o - options, c + 1, f)
				    : read_value(w, o - options, f);
		if (note_option(w, o - options, "1", f) != RC_OK)
			return RC_USAGE;
	}
	return RC_OK;
}

static enum rc
read_options(struct args *w, struct fault *f)
{
	while (*w->next) {
		const char *word = *w->next;

		w->ended = strcmp(word, "--") == 0;
		if (w->ended) {
			w->next++;
			return RC_OK;
		}
		if (word[0] != '-' || !word[1])
			return RC_OK;
		if ((word[1] == '-' ? read_long(w, f) : read_letters(w, f)) != RC_OK)
			return RC_USAGE;
	}
	return RC_OK;
}

/* ---- operands, of all subcommands but run ---- */

/* A word between the options of a subcommand that runs nothing. */
static enum rc
take_operand(struct args *w, const char *operand, struct fault *f)
{
	struct params *p = w->params;
	bool is_word = (p->cmd & CMD_TAKES_WORD) ||
	    (p->cmd == CMD_FORGET && p->nkeys > 0);

	if (is_word && !p->word) {
		p->word = operand;
		return RC_OK;
	}
	if (is_word || !(options[OPT_KEY].cmds & p->cmd))
		return fault_set(
		    f, RC_USAGE, "'%s' is one word too many", text_brief(operand).text);
	if (strpbrk(operand, "*?["))
		p->odd = operand;
	if (p->odd && (p->cmd & (CMD_FREEZE | CMD_THAW | CMD_FORGET)))
		return fault_set(f, RC_USAGE, PARAMS_NO_PATTERNS, text_brief(p->odd).text,
		    options_cmd(p->cmd));
	return take_key(w, "key", operand, f);
}

/* Reads all words: options wherever they stand (up to a `--`), and operands between them. */
static enum rc
read_operands(struct args *w, struct fault *f)
{
	while (*w->next) {
		if (!w->ended && read_options(w, f) != RC_OK)
			return RC_USAGE;
		if (*w->next && take_operand(w, *w->next++, f) != RC_OK)
			return RC_USAGE;
	}
	return RC_OK;
}

/* ---- the key of dlock run ---- */

bool
args_have(char **words, const char *word)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words;
}

/* A key, and the options behind it. */
static enum rc
read_key(struct args *w, struct fault *f)
{
	const char *key = *w->next++, *first = *w->next;
	bool options_follow = first && first[0] == '-' && first[1];

	if (take_key(w, "key", key, f) != RC_OK)
		return RC_USAGE;
	if (options_follow && args_have(w->next, "--") && read_options(w, f) != RC_OK)
		return RC_USAGE;
	/* without a -- the word may as well be a command, and the key was forgotten */
	if (options_follow && !w->ended &&
	    (strncmp(first, "-c", 2) == 0 || strncmp(first, "--command", 9) == 0))
		return fault_set(f, RC_USAGE,
		    "'%s' comes after the key '%s': name the key by -k (dlock run -k %s -c ...)",
		    text_brief(first).text, text_brief(key).text, text_brief(key).text);
	if (options_follow && !w->ended)
		return fault_set(f, RC_USAGE,
		    "'%s' comes after the key '%s': options go before the key, or before a -- "
		    "(dlock run %s %s ... -- COMMAND)",
		    text_brief(first).text, text_brief(key).text, text_brief(key).text,
		    text_brief(first).text);
	if (w->params->nkeys > 1)
		return fault_set(f, RC_USAGE,
		    "both the word '%s' and --key '%s' are keys: say -k for each",
		    text_brief(key).text, text_brief(w->params->keys[1]).text);
	return RC_OK;
}

/* ---- which backend, and which server of it ---- */

/*
 * Finds the backend, by its name or by the URL's scheme.  The user may say either or both; both
 * must name the same one.
 */
static enum rc
settle_backend(struct params *p, struct fault *f)
{
	const struct backend *of_url = p->site.url ? registry_of_url(p->site.url) : NULL;
	const struct said *by = said_of(p->said, OPT_URL);

	if (of_url && p->site.backend && of_url != p->site.backend)
		return fault_set(f, said_wrong(by),
		    "%s (%s) and %s (%s) contradict each other",
		    said_call(said_of(p->said, OPT_BACKEND), OPT_BACKEND).text,
		    p->site.backend->name, said_call(by, OPT_URL).text, of_url->name);
	if (of_url)
		p->site.backend = of_url;
	if (!p->site.backend && p->cmd != CMD_CONFIG)
		return fault_set(f, RC_USAGE,
		    "no backend named: say -b NAME or -u URL, or set DLOCK_BACKEND or DLOCK_URL, or name one in dlock.conf(5) (there are %s)",
		    options_backends(", ").text);
	return RC_OK;
}

/*
 * Takes the URL from the backend's own variable, such as DLOCK_REDIS_URL.  Settings in a file,
 * such as a password, are for the server that the file names, so they are dropped with the file's
 * URL.
 */
static enum rc
read_variable(struct params *p, bool file_names_one, struct fault *f)
{
	const struct said *const *by = p->said->settings;
	const struct brief name = variables_url(p->site.backend);
	const char *url = environment_get(name.text);
	struct fault why;

	if (!url)
		return RC_OK;
	if (options_take(p, OPT_URL, url, &why) != RC_OK)
		return fault_set(f, RC_USAGE, "%s%s", name.text, why.text);
	if (registry_of_url(url) != p->site.backend)
		return fault_set(f, RC_USAGE, "%s is not a URL of %s", name.text,
		    p->site.backend->name);
	p->site.of_variable = true;
	while (file_names_one && p->site.nsettings > 0 &&
	    said_in_file(by[p->site.nsettings - 1]))
		p->site.nsettings--;
	return RC_OK;
}

/*
 * Finds the URL once the backend is known.  Without a URL of the words or of DLOCK_URL,
 * DLOCK_<BACKEND>_URL counts, after it what files say, and then the backend's default.
 */
static enum rc
settle_url(struct params *p, struct fault *f)
{
	const struct said *of_url = said_of(p->said, OPT_URL);
	struct params_site *s = &p->site;
	const char *outer = p->said->outer;
	enum rc rc = RC_OK;

	if (!s->backend) /* dlock config */
		return RC_OK;
	/* a variable is stronger than a file */
	if (!of_url || said_in_file(of_url))
		rc = read_variable(p, of_url != NULL, f);
	/* without a URL at all, the outer run's site counts, if its backend is ours */
	s->inherits = !s->url && outer && strcmp(outer, s->backend->name) == 0;
	return rc;
}

/*
 * Checks that the backend has such settings.  The backend would refuse them as well, but could
 * not say where they come from.  Only the backend can judge their values.
 */
static enum rc
settle_settings(struct params *p, struct fault *f)
{
	const struct backend *b = p->site.backend;

	/* dlock config shows settings even of a backend that is not compiled in */
	for (size_t i = 0; i < p->site.nsettings && p->cmd != CMD_CONFIG && b->open;
	     i++) {
		const struct said *by = p->said->settings[i];
		struct fault why;

		if (setting_named(b, p->site.settings[i].name, &why))
			continue;
		mask_spoken(why.text); /* -O may have been typed for -u */
		return fault_set(f, said_wrong(by), "%s: %s",
		    said_call(by, OPT_OPTION).text, why.text);
	}
	return RC_OK;
}

/*
 * Refuses a program that takes by itself the lock that -O derive= names: it would wait for this run
 * for ever.
 */
static enum rc
settle_program(struct params *p, struct fault *f)
{
	const struct backend *b = p->site.backend;
	const struct site site = {NULL, p->site.settings, p->site.nsettings};
	const char *own = b->runs_own ? b->runs_own(&site, p->command.argv) : NULL;

	if (!own)
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "'%s' takes by itself the lock that -O derive= names, and would wait for this run for ever: run it without dlock (dlock-joins(7))",
	    own);
}

/* Refuses a URL whose user may be a password by mistake, in a file that others can read. */
static enum rc
settle_secret(struct params *p, struct fault *f)
{
	const struct said *by = said_of(p->said, OPT_URL);
	const struct conf_file *file;
	size_t n;

	if (!p->site.url || p->site.of_variable || !said_in_file(by) ||
	    !params_lone_user(p, p->site.url, &n))
		return RC_OK;
	for (file = conf_files(&n); by->origin->file != file->shown; file++)
		;
	if (file->is_secret)
		return RC_OK;
	return fault_set(f, RC_CONFIG,
	    "%s: the user has no password, and may be one by mistake, and others can read the file: chmod 600 %s",
	    said_call(by, OPT_URL).text, file->shown);
}

/* ---- the parameters as a whole ---- */

/* The words behind options and key of dlock run are its command. */
static enum rc
settle_command(const struct args *w, struct fault *f)
{
	struct params *p = w->params;
	char **words = w->next;

	if (p->nkeys == 0)
		return fault_set(f, RC_USAGE,
		    "no key%s: say dlock run -k KEY -- COMMAND, with a name for the lock",
		    w->ended ? " before the -- (is a variable empty?)" : "");
	if (p->command.line && *words)
		return fault_set(f, RC_USAGE,
		    "both --command and '%s' are given: give only one of them",
		    text_brief(*words).text);
	if (p->command.line) {
		p->command.shell[2] = (char *)p->command.line;
		p->command.argv = p->command.shell;
		return RC_OK;
	}
	if (!*words || !**words)
		return fault_set(f, RC_USAGE,
		    *words ? "the command to run under '%s' is empty"
			: w->named
			? "no command after the key '%s' (with -k KEY all words are the command)"
			: "no command to run under '%s'",
		    text_brief(p->keys[0]).text);
	p->command.argv = words;
	return RC_OK;
}

/* Refuses a subcommand that is about a lock and has no key. */
static enum rc
settle_key(const struct params *p, struct fault *f)
{
	if (p->nkeys == 0 && !(p->cmd & (CMD_CONFIG | CMD_DOCTOR | CMD_RELEASE)) &&
	    (options[OPT_KEY].cmds & p->cmd))
		return fault_set(f, RC_USAGE, "no key: say dlock %s KEY%s",
		    options_cmd(p->cmd),
		    p->cmd & (CMD_STATUS | CMD_WAIT | CMD_BREAK | CMD_THAW)
			? " (dlock ls lists all locks)"
			: "");
	return RC_OK;
}

/*
 * Refuses to ask a person where there is none.  This check comes last, when the passwords in argv
 * are overwritten: writing the error may take long, and ps(1) must not show a password meanwhile.
 */
static enum rc
settle_asking(struct params *p, struct fault *f)
{
	if (p->nkeys > 1 && (p->cmd & (CMD_BREAK | CMD_FORGET)))
		return fault_set(f, RC_USAGE,
		    "%s takes one key at a time; nothing was done", options_cmd(p->cmd));
	if (!p->steer.yes && !p->steer.token && !say_can_ask())
		return fault_set(f, RC_USAGE,
		    "cannot ask you, because this is no terminal: say -y%s; nothing was done",
		    p->cmd == CMD_BREAK ? ", or --token N, which dlock status shows"
					: "");
	return RC_OK;
}

/* Refuses --newest with several keys: such a run waits in several queues, one after the other. */
static enum rc
settle_newest(struct params *p, struct fault *f)
{
	const struct said *of = said_of(p->said, OPT_NEWEST);

	if (!p->before.newest || p->nkeys <= 1)
		return RC_OK;
	return fault_set(f, said_wrong(of), "%s takes one key, and this run has %zu",
	    said_call(of, OPT_NEWEST).text, p->nkeys);
}

/* Refuses a lease that is too short for two attempts to renew, the grace and the margin. */
static enum rc
settle_lease(struct params *p, struct fault *f)
{
	struct terms *t = &p->terms;
	const struct said *of = said_of(p->said, OPT_TTL);

	t->grace_fixed = said_of(p->said, OPT_GRACE);
	if (!t->grace_fixed)
		t->grace = lease_grace(t->ttl);
	if (!of && !t->grace_fixed) /* the default fits */
		return RC_OK;
	if (lease_fits(t->ttl, lease_pace(t->ttl), t->grace))
		return RC_OK;
	if (!of)
		of = said_of(p->said, OPT_GRACE);
	return fault_set(f, said_wrong(of),
	    "%s %s is too short for %s %s: two renewals would not fit (at least --ttl %s)",
	    said_call(said_of(p->said, OPT_TTL), OPT_TTL).text, parse_span(t->ttl).text,
	    said_call(said_of(p->said, OPT_GRACE), OPT_GRACE).text,
	    parse_span(t->grace).text, parse_span(lease_least(t->grace)).text);
}

/*
 * Refuses -E 0, which only a run has.  From dlock hold, 0 says that the lock is held; from dlock wait,
 * that it is free.
 */
static enum rc
settle_conflict(struct params *p, struct fault *f)
{
	const struct said *of = said_of(p->said, OPT_CONFLICT);

	if (p->wait.conflict_status != 0)
		return RC_OK;
	return fault_set(f, said_wrong(of), "%s 0: status 0 of dlock %s says that %s",
	    said_call(of, OPT_CONFLICT).text, options_cmd(p->cmd),
	    p->cmd == CMD_HOLD ? "the lock is held" : "the lock is free");
}

/*
 * Checks that the offset of a period is shorter than the period.  An offset in a file or a
 * variable is for the runs that have a period, and counts for nothing in others.
 */
static enum rc
settle_period(struct params *p, struct fault *f)
{
	static const int64_t lengths[] = {[PER_DAY] = 86400 * NS_PER_S,
	    [PER_HOUR] = 3600 * NS_PER_S,
	    [PER_WEEK] = 7 * 86400 * NS_PER_S};
	const struct said *of = said_of(p->said, OPT_AT_OFFSET);
	struct period *per = &p->claim.period;

	if (!per->kind && of->origin->by != BY_WORDS)
		return RC_OK;
	if (!per->kind)
		return fault_set(f, RC_USAGE, "--at-offset needs --once-per");
	if (per->offset >= lengths[per->kind])
		return fault_set(f, said_wrong(of),
		    "%s %s is not less than the period, %s",
		    said_call(of, OPT_AT_OFFSET).text, parse_span(per->offset).text,
		    parse_span(lengths[per->kind]).text);
	return RC_OK;
}

/*
 * Makes the path of the log absolute, since the keeper leaves our directory.  Refuses a descriptor
 * for a hold, which goes on when its caller has ended and keeps none of the caller's descriptors.
 */
static enum rc
settle_log(struct params *p, struct fault *f)
{
	struct params_log *log = &p->show.log;
	const struct said *of = said_of(p->said, OPT_LOG);
	const size_t size = sizeof p->texts.log;
	char *path = p->texts.log;
	struct fault why;

	if (log->kind == LOG_TO_FD && p->cmd == CMD_HOLD)
		return fault_set(f, RC_USAGE,
		    "%s fd:%d: dlock hold goes on in the background, without your descriptors: name syslog or a file",
		    said_call(of, OPT_LOG).text, log->fd);
	if (log->kind == LOG_TO_FD && options_check_fd(log->fd, &why) != RC_OK)
		return fault_set(f, RC_USAGE, "%s fd:%d: %s", said_call(of, OPT_LOG).text,
		    log->fd, why.text);
	if (log->kind != LOG_TO_FILE || *log->path == '/')
		return RC_OK;
	if (!getcwd(path, size) || strlen(path) + 1 + strlen(log->path) >= size)
		return fault_set(f, RC_USAGE,
		    "%s '%s': the path of the working directory is not known, or too long",
		    said_call(of, OPT_LOG).text, text_brief(log->path).text);
	append_text(
	    append_text(path + strlen(path), path + size, "/"), path + size, log->path);
	log->path = path;
	return RC_OK;
}

/* A file or a variable that says --remember means the servers that can remember. */
static enum rc
settle_remember(struct params *p, struct fault *f)
{
	(void)f;
	if (p->claim.remembers)
		p->claim.job.remember = said_of(p->said, OPT_REMEMBER)->origin->by ==
			BY_WORDS
		    ? REMEMBER_SURELY
		    : REMEMBER_IF_ABLE;
	return RC_OK;
}

/* A file or a variable that says --no-retry means the runs that have an ID. */
static enum rc
settle_no_retry(struct params *p, struct fault *f)
{
	const struct said *of = said_of(p->said, OPT_NO_RETRY);
	struct job *job = &p->claim.job;

	if (!job->no_retry || job->once || job->per || (p->cmd & CMD_CONFIG))
		return RC_OK;
	if (of->origin->by == BY_WORDS)
		return fault_set(f, RC_USAGE,
		    "--no-retry needs --once or --once-per: it is about the runs of one ID (a --cooldown counts those that ended with 0)");
	job->no_retry = false;
	return RC_OK;
}

/* Refuses two options that ask different questions. */
static enum rc
settle_look(struct params *p, struct fault *f)
{
	const struct params_look *l = &p->look;
	static const char form[] = ": it has its own form, of one moment";
	const struct {
		bool said;
		const char *one, *other, *why;
	} pairs[] = {
	    {l->jobs && l->held_over, "jobs", "held-over", ""},
	    {l->jobs && l->prometheus, "jobs", "format prometheus", ""},
	    {l->jobs && l->again, "jobs", "watch", ""},
	    {l->done_within && l->again, "done-within", "watch", ""},
	    {l->json && l->columns, "json", "output", ": an object has all there is"},
	    {l->prometheus && l->columns, "format prometheus", "output", form},
	    {l->prometheus && l->again, "format prometheus", "watch", form},
	};
	const char *objection = p->word && p->cmd == CMD_FORGET
	    ? !*p->word ? "it is empty" : text_objection(p->word, ONCE_BYTES)
	    : NULL;

	if (objection)
		return fault_set(f, RC_USAGE,
		    "ID '%s': %s (1 to %d bytes of UTF-8 without control characters)",
		    text_brief(p->word).text, objection, ONCE_BYTES);
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		if (pairs[i].said)
			return fault_set(f, RC_USAGE,
			    "--%s and --%s contradict each other%s", pairs[i].one,
			    pairs[i].other, pairs[i].why);
	return RC_OK;
}

/*
 * `dlock run` ends its options where the command begins.  The words behind a -- are the command,
 * and none of them is a key: `dlock run $KEY -- nice make` with an empty variable would lock
 * "nice".
 */
static enum rc
read_run_words(struct args *w, struct fault *f)
{
	if (read_options(w, f) != RC_OK)
		return RC_USAGE;
	w->named = !w->help && !w->ended && !said_of(w->all, OPT_KEY);
	return w->named && *w->next ? read_key(w, f) : RC_OK;
}

enum rc
args_read(struct params *p, unsigned cmd, char **argv, struct fault *f)
{
	static const struct {
		unsigned cmds; /* which it concerns */
		int option;    /* only where this is said; OPTIONS: always */
		enum rc (*settle)(struct params *, struct fault *);
	} steps[] = {
	    {CMD_ASKS | CMD_CONFIG, OPTIONS, settle_backend},
	    {CMD_ASKS | CMD_CONFIG, OPTIONS, settle_url},
	    {~0U, OPT_OPTION, settle_settings},
	    {~0U, OPT_URL, settle_secret},
	    {CMD_RUN, OPT_OPTION, settle_program},
	    {CMD_KEEPS | CMD_CONFIG | CMD_DOCTOR, OPTIONS, settle_lease},
	    {CMD_KEEPS, OPT_NEWEST, settle_newest},
	    {CMD_LS | CMD_STATUS | CMD_FORGET, OPTIONS, settle_look},
	    {CMD_RUN, OPT_AT_OFFSET, settle_period},
	    {CMD_KEEPS | CMD_CONFIG, OPT_REMEMBER, settle_remember},
	    {CMD_KEEPS | CMD_CONFIG, OPT_NO_RETRY, settle_no_retry},
	    {CMD_HOLD | CMD_WAIT, OPT_CONFLICT, settle_conflict},
	    {~0U, OPT_LOG, settle_log},
	    {CMD_BREAK | CMD_THAW | CMD_FORGET, OPTIONS, settle_asking},
	};
	/* static: -fstack-clash-protection would touch all of it, 20 page faults */
	static struct said_list all;
	struct args args = {.next = argv, .params = p, .all = &all};
	enum rc rc;

	memset(p, 0, offsetof(struct params, texts));
	p->cmd = cmd;
	p->wait = (struct params_wait){.most = NEVER, .conflict_status = STATUS_BUSY};
	p->terms = (struct terms){
	    .ttl = 30 * NS_PER_S, .max_run = NEVER, .kill_after = NEVER};
	p->show.status_fd = -1;
	p->command = (struct params_command){
	    .shell = {"/bin/sh", "-c"}, .signal = SIGTERM};
	p->steer.length = NEVER;
	p->said = &all;
	said_init(&all, cmd);
	variables_read(&all);
	rc = cmd == CMD_RUN ? read_run_words(&args, f) : read_operands(&args, f);
	if (rc == RC_OK && args.help)
		return RC_DONE;
	/* the keys and the words about files say what is read of the files */
	if (rc == RC_OK)
		rc = said_apply(&all, OPT_KEY, OPT_BACKEND, p, f);
	if (rc == RC_OK && (options[OPT_CONFIG].cmds & cmd))
		rc = conf_read(&all, p, f);
	if (rc == RC_OK)
		rc = said_apply(&all, OPT_BACKEND, OPTIONS, p, f);
	if (rc == RC_OK)
		rc = cmd == CMD_RUN ? settle_command(&args, f) : settle_key(p, f);
	for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == RC_OK; i++)
		if ((steps[i].cmds & cmd) &&
		    (steps[i].option == OPTIONS || said_of(&all, steps[i].option)))
			rc = steps[i].settle(p, f);
	p->wait.persist = said_of(&all, OPT_WAIT);
	return rc;
}
