/* words.c - cuts the command line into options, key and command, or operands. */
#include "words.h"

#include "mask.h"
#include "text.h"

#include <string.h>

/* Shows the name alone: what stands behind the = may be a password. */
static enum rc
unknown_option(struct fault *f, unsigned cmd, const char *word, size_t n)
{
	const char *meant = options_nearest(cmd, word, n);

	return fault_set(f, RC_USAGE,
	    "unknown option --%.*s%s%s%s (dlock help %s lists them)",
	    n < 40 ? (int)n : 40, word, meant ? ": did you mean --" : "",
	    meant ? meant : "", meant ? "?" : "", options_cmd(cmd));
}

static enum rc
needs_value(struct fault *f, const struct option *o)
{
	return fault_set(f, RC_USAGE, "--%s needs a value: %s", o->name, o->arg);
}

/* Shows no value: it may be a password. */
static enum rc
letter_with_equals(struct fault *f, const struct option *o)
{
	return fault_set(f, RC_USAGE,
	    "-%c=...: no = stands between a letter and its value: say -%c %s or --%s=%s",
	    o->letter, o->letter, o->arg, o->name, o->arg);
}

/*
 * A value that only a = can give stands behind the option as a word of its own: nobody
 * can tell whether it is that, or a key that looks like it.
 */
static enum rc
value_apart(struct fault *f, const struct option *o, const char *word)
{
	const struct brief b = text_brief(word);

	return fault_set(f, RC_USAGE,
	    "--%s %s: say --%s=%s, or if '%s' is no value, put it before --%s", o->name,
	    b.text, o->name, b.text, b.text, o->name);
}

static enum rc
note_option(struct words *w, int i, const char *value, struct fault *f)
{
	const struct option *o = &options[i];
	struct fault why;

	if (w->said->value[i] && !o->repeats)
		return fault_set(f, RC_USAGE, "--%s is given twice", o->name);
	w->said->value[i] = value;
	if (o->repeats && o->set(w->plan, o, value, &why) != RC_OK)
		return mask_finds(value)
		    ? fault_set(f, RC_USAGE, "--%s: %s", o->name, why.text)
		    : fault_set(f, RC_USAGE, "--%s '%s': %s", o->name,
			  text_brief(value).text, why.text);
	return RC_OK;
}

/* `--name`, `--name=value` or `--name value` */
static enum rc
read_long(struct words *w, struct fault *f)
{
	const char *word = *w->next++ + 2;
	size_t n = strcspn(word, "=");
	int i = options_named(w->cmd, word, n);

	if (strcmp(word, "help") == 0) {
		w->help = true;
		return RC_OK;
	}
	if (i < 0)
		return unknown_option(f, w->cmd, word, n);
	if (!options[i].arg && word[n])
		return fault_set(f, RC_USAGE, "--%s takes no value, but '%s' is given",
		    options[i].name, text_brief(word + n + 1).text);
	if (!options[i].arg)
		return note_option(w, i, "1", f);
	if (word[n])
		return note_option(w, i, word + n + 1, f);
	if (options[i].bare && options_takes(&options[i], *w->next))
		return value_apart(f, &options[i], *w->next);
	if (options[i].bare)
		return note_option(w, i, options[i].bare, f);
	if (!*w->next)
		return needs_value(f, &options[i]);
	return note_option(w, i, *w->next++, f);
}

/* The value of a letter: the rest of its word, or else the next one. */
static enum rc
read_letters_value(struct words *w, int i, const char *rest, struct fault *f)
{
	if (*rest == '=')
		return letter_with_equals(f, &options[i]);
	if (*rest)
		return note_option(w, i, rest, f);
	if (!*w->next)
		return needs_value(f, &options[i]);
	return note_option(w, i, *w->next++, f);
}

/* One without a letter of its own may have been meant. */
static enum rc
unknown_letter(struct fault *f, unsigned cmd, char letter)
{
	const char *meant = options_initial(cmd, letter);

	return fault_set(f, RC_USAGE,
	    "unknown option -%c%s%s%s (dlock help %s lists them)", letter,
	    meant ? ": did you mean --" : "", meant ? meant : "", meant ? "?" : "",
	    options_cmd(cmd));
}

/* A cluster such as `-nq` or `-nkKEY`.  `-key` is none, but a mistake. */
static enum rc
read_letters(struct words *w, struct fault *f)
{
	const char *word = *w->next++;
	int meant = options_named(w->cmd, word + 1, strcspn(word + 1, "="));

	if (meant >= 0)
		return fault_set(f, RC_USAGE, "-%s is written with two dashes: --%s",
		    options[meant].name, options[meant].name);
	for (const char *c = word + 1; *c; c++) {
		int i = options_lettered(w->cmd, *c);

		if (*c == 'h') {
			w->help = true;
			continue;
		}
		if (i < 0 && *c == '=' && c > word + 1)
			return fault_set(f, RC_USAGE, "-%c takes no value", c[-1]);
		if (i < 0)
			return unknown_letter(f, w->cmd, *c);
		if (options[i].arg)
			return read_letters_value(w, i, c + 1, f);
		if (note_option(w, i, "1", f) != RC_OK)
			return RC_USAGE;
	}
	return RC_OK;
}

enum rc
words_read_options(struct words *w, struct fault *f)
{
	while (*w->next) {
		const char *word = *w->next;

		if (strcmp(word, "--") == 0) {
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

enum rc
words_read_all(struct words *w,
    enum rc (*take)(struct plan *, const char *operand, struct fault *), struct fault *f)
{
	while (*w->next) {
		char **first = w->next;

		if (words_read_options(w, f) != RC_OK)
			return RC_USAGE;
		if (w->next > first && strcmp(w->next[-1], "--") == 0)
			break;
		if (*w->next && take(w->plan, *w->next++, f) != RC_OK)
			return RC_USAGE;
	}
	for (; *w->next; w->next++)
		if (take(w->plan, *w->next, f) != RC_OK)
			return RC_USAGE;
	return RC_OK;
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
 * Without a -- behind them, `dlock run backup -n x` could as well be a command whose key
 * was forgotten.
 */
static enum rc
read_options_behind(struct words *w, const char *key, struct fault *f)
{
	const char *first = *w->next;

	if (!first || first[0] != '-' || !first[1])
		return RC_OK;
	if (have_dashes(w->next) && words_read_options(w, f) != RC_OK)
		return RC_USAGE;
	if (*w->next == first || strcmp(w->next[-1], "--") != 0)
		return fault_set(f, RC_USAGE,
		    "'%s' comes after the key '%s': options go before the key, or before a -- "
		    "(dlock run %s %s ... -- COMMAND)",
		    text_brief(first).text, text_brief(key).text, text_brief(key).text,
		    text_brief(first).text);
	return RC_OK;
}

enum rc
words_read_key(struct words *w, struct fault *f)
{
	const char *key = *w->next++;
	struct fault why;

	if (!*key)
		return fault_set(f, RC_USAGE, "the key is empty");
	if (options[OPT_KEY].set(w->plan, &options[OPT_KEY], key, &why) != RC_OK)
		return fault_set(
		    f, RC_USAGE, "key '%s': %s", text_brief(key).text, why.text);
	if (read_options_behind(w, key, f) != RC_OK)
		return RC_USAGE;
	if (w->plan->nkeys > 1)
		return fault_set(f, RC_USAGE,
		    "both the word '%s' and --key '%s' are keys: say -k for each",
		    text_brief(key).text, text_brief(w->plan->keys[1]).text);
	return RC_OK;
}
