/* record.c - writes our record for others to read, and describes the records of others. */
#include "record.h"

#include "cmd/supervise/join_address.h"
#include "cmd/supervise/process.h"
#include "environment.h"
#include "json.h"
#include "mask.h"
#include "text.h"

#include "backends/common/append.h"
#include "backends/common/secret.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	NAME_BYTES = sizeof((struct record_own *)0)->host,
	ARGUMENTS_BYTES = 4096,
	TOLD_BYTES = sizeof((struct record_own *)0)->why
};

/* ---- processes ---- */

/*
 * /proc dates processes later for us than for those outside of our time namespace.  Returns by
 * how many clock ticks.
 */
static int64_t
ticks_ahead(void)
{
	char text[256], *boottime;

	boottime = process_read(getpid(), "timens_offsets", text, sizeof text)
	    ? strstr(text, "boottime")
	    : NULL;
	return boottime
	    ? strtoll(boottime + strlen("boottime"), NULL, 10) * sysconf(_SC_CLK_TCK)
	    : 0;
}

/*
 * Is the process with this number, which was started then, our parent, or its parent, and so on?
 */
static bool
kin_is_ancestor(pid_t ancestor, int64_t born)
{
	struct process p = {.pid = ancestor};

	return born != 0 && process_look_up(&p) &&
	    ((int64_t)p.born == born || (int64_t)p.born - ticks_ahead() == born) &&
	    process_kin(ancestor, getpid()) == KIN_YES;
}

/* ---- our own record ---- */

const char *
record_kind_name(enum lock_kind kind)
{
	return kind_is_exclusive(kind) ? "exclusive"
	    : kind == KIND_SHARED      ? "shared"
				       : "limit";
}

/*
 * The variables of a CI service say more of who has started us, and why, than root@host does.
 * The first row whose variables are all set counts.  Anybody can set such variables, so their
 * text is cleaned and cut, as --who and --why are.
 */
static const struct clue {
	bool who; /* else why */
	bool url;
	const char *text; /* $NAME stands for a variable */
} clues[] = {
    {true, false, "$GITHUB_ACTOR"},
    {true, false, "$GITLAB_USER_LOGIN"},
    {true, false, "$BUILD_USER_ID"}, /* Jenkins, with a plugin */
    {true, false, "$SUDO_USER"},
    {false, true, "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID"},
    {false, true, "$CI_JOB_URL"}, /* GitLab */
    {false, true, "$BUILD_URL"},  /* Jenkins */
    {false, false, "$JOB_NAME"},
};

/* Puts the values of its variables into a text, and cuts it to `size`.  False: one is not set. */
static bool
expand(char *out, size_t size, const char *text)
{
	size_t used = 0;

	*out = '\0';
	while (*text) {
		size_t n = strcspn(text, *text == '$' ? "/" : "$");
		char name[32];
		const char *value;

		/* the names are those of our table, and fit */
		memcpy(name, text, n);
		name[n] = '\0';
		text += n;
		value = *name == '$' ? environment_get(name + 1) : name;
		if (!value)
			return false;
		used = append_text(out + used, out + size, value) - out;
	}
	return true;
}

/* Cuts a URL down to what cannot be a secret: user, password, query and fragment go. */
static void
bare_url(char *text)
{
	char *host = text + strcspn(text, "/@?#"), *at;
	size_t n;

	text[strcspn(text, "?#")] = '\0';
	host = host > text && strncmp(host - 1, "://", 3) == 0 ? host + 2
							       : text + strspn(text, "/");
	n = strcspn(host, "/");
	at = memrchr(host, '@', n);
	if (at)
		memmove(host, at + 1, strlen(at + 1) + 1);
	else if (n >= TOLD_BYTES) /* the @ before the host may have been cut off */
		*host = '\0';
}

/* Writes what the environment tells into out[TOLD_BYTES].  False: it tells nothing. */
static bool
find_clue(char *out, bool who)
{
	char text[4 * TOLD_BYTES];

	for (size_t i = 0; i < sizeof clues / sizeof *clues; i++)
		if (clues[i].who == who && expand(text, sizeof text, clues[i].text)) {
			mask_spoken(text); /* also password=x outside a URL */
			if (clues[i].url)
				bare_url(text);
			text_clean(out, TOLD_BYTES, text, strlen(text));
			return true;
		}
	return false;
}

/* Finds the unit of systemd that we run in: the last part of our cgroup, if that is a service. */
static bool
find_unit(char *out)
{
	static char text[4096]; /* on the stack it would be a page fault */
	char *rest = text, *line, *name = NULL;
	size_t n;

	if (!environment_get("INVOCATION_ID") ||
	    !process_read(getpid(), "cgroup", text, sizeof text))
		return false;
	/* "1:name=systemd:/..." of version 1, then "0::/..." of version 2, which counts more */
	while ((line = strsep(&rest, "\n")))
		if (strncmp(line, "0::/", 4) == 0 || strstr(line, ":name=systemd:/"))
			name = strrchr(line, '/') + 1;
	n = name ? strlen(name) : 0;
	if (n <= strlen(".service") ||
	    strcmp(name + n - strlen(".service"), ".service") != 0)
		return false;
	text_clean(out, TOLD_BYTES, name, n);
	return true;
}

/* The user's name from the environment.  NULL: only the password database knows it. */
static const char *
known_user(void)
{
	const char *names[] = {getenv("USER"), getenv("LOGNAME")};

	for (size_t i = 0; i < 2; i++)
		if (names[i] && *names[i])
			return names[i];
	return geteuid() == 0 ? "root" : NULL;
}

/*
 * Names the user.  The password database is asked last: it costs as much as all the rest of our
 * start, and may ask LDAP.
 */
static const char *
user_name(void)
{
	static char found[NAME_BYTES];
	const char *known = known_user();
	struct passwd *pw;

	if (known || *found)
		return known ? known : found;
	pw = getpwuid(geteuid());
	if (pw)
		snprintf(found, sizeof found, "%s", pw->pw_name);
	else
		snprintf(found, sizeof found, "uid %u", (unsigned)geteuid());
	return found;
}

void
record_find_user(const struct params *p)
{
	char told_of[TOLD_BYTES];

	if (!p->show.who && !known_user() && !find_clue(told_of, true))
		(void)user_name();
}

static void
host_name(char *out, size_t size)
{
	if (gethostname(out, size) != 0)
		snprintf(out, size, "localhost");
	out[size - 1] = '\0';
}

void
record_find_own(struct record_own *r, const struct params *p, pid_t pid)
{
	const char *end = r->who + sizeof r->who;
	const char *path = pid ? p->command.argv[0] : NULL;
	const char *slash = path ? strrchr(path, '/') : NULL;
	char user[NAME_BYTES];

	r->said = (struct record){.who = r->who, .host = r->host, .pid = pid};
	host_name(r->host, sizeof r->host);
	if (p->show.who) {
		text_told(r->who, TOLD_BYTES, p->show.who);
	} else {
		char *at = append_text(
		    r->who, end, find_clue(user, true) ? user : user_name());

		append_text(append_text(at, end, "@"), end, r->host);
	}
	if (p->show.why)
		r->said.why = text_told(r->why, sizeof r->why, p->show.why);
	else if (find_clue(r->why, false) || find_unit(r->why))
		r->said.why = r->why;
	if (r->said.why && !*r->said.why)
		r->said.why = NULL;
	r->said.command = slash && slash[1] ? slash + 1 : path;
}

/* The beginning of a word, with passwords masked: quotes of ours would hide where they end. */
static const char *
masked_word(const char *word)
{
	static char copy[ARGUMENTS_BYTES];
	size_t n = strnlen(word, sizeof copy - 1);

	memcpy(copy, word, n);
	copy[n] = '\0';
	mask_word(copy, n, word);
	return copy;
}

/*
 * The words behind the first, as a shell would have to be told them, into out[ARGUMENTS_BYTES].
 */
static const char *
join_arguments(char *out, char *const *words)
{
	static const char plain[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
	const char *end = out + ARGUMENTS_BYTES;
	char *at = out;

	*out = '\0';
	for (words++; *words && at < end - 1; words++) {
		bool quoted = !**words || (*words)[strspn(*words, plain)];

		at = append_text(at, end, at > out ? " " : "");
		at = append_text(at, end, quoted ? "'" : "");
		for (const char *c = masked_word(*words), *quote; *c && at < end - 1;
		     c = quote) {
			quote = c + strcspn(c, "'");
			at += snprintf(at, end - at, "%.*s%s", (int)(quote - c), c,
			    *quote ? "'\\''" : "");
			at = at < end ? at : out + ARGUMENTS_BYTES - 1;
			quote += *quote != '\0';
		}
		at = append_text(at, end, quoted ? "'" : "");
	}
	return out;
}

/*
 * Writes how long the lock is to last, as far as others may know.  Each of several keys has a time of its own.
 */
static void
put_lengths(struct json *j, const struct params *p)
{
	int64_t keep = p->terms.min_hold, end = p->steer.length;

	if (p->cmd == CMD_RUN)
		end = instant_after(p->terms.max_run, p->terms.grace);
	json_put_number(j, "ttl", ns_to_ms(p->terms.ttl));
	if (p->nkeys > 1)
		return;
	if (keep > 0)
		json_put_number(j, "keep_ms", ns_to_ms(keep));
	if (end != NEVER)
		json_put_number(j, "end_ms", ns_to_ms(end > keep ? end : keep));
}

void
record_write(char *out, const struct params *p, pid_t pid, const char *door)
{
	record_write_newest(out, p, pid, door, -1);
}

void
record_write_newest(
    char *out, const struct params *p, pid_t pid, const char *door, int64_t newest)
{
	/* of a stack their pages are touched in each run */
	static char arguments[ARGUMENTS_BYTES], told_of[RECORD_BYTES];
	struct record_own own;
	struct json j;

	record_find_own(&own, p, pid);
	json_begin(&j, out, RECORD_BYTES);
	if (pid) {
		json_put_number(&j, "pid", pid);
		json_put_number(&j, pid == p->steer.pid ? "script_born" : "born",
		    (int64_t)process_born(pid));
	}
	json_put_number(&j, "since", time(NULL));
	if (pid)
		put_lengths(&j, p);
	json_put_string(&j, "door", door);
	if (newest >= 0)
		json_put_number(&j, "newest", newest);
	if (p->cmd == CMD_FREEZE)
		json_put_number(&j, "for_ms",
		    p->steer.length == NEVER ? -1 : p->steer.length / NS_PER_MS);
	json_put_string(&j, "who", own.who);
	json_put_string(&j, "host", own.host);
	json_put_string(&j, "command", own.said.command);
	json_put_string(&j, "why", own.said.why);
	if (pid && p->show.arguments && p->command.argv[1])
		json_put_cut(&j, "arguments",
		    text_told(told_of, sizeof told_of,
			join_arguments(arguments, p->command.argv)));
	json_end(&j);
}

/* ---- records of others ---- */

static const char *
record_member(const json_t *root, const char *name)
{
	const char *text = json_string_value(json_object_get(root, name));

	return text && *text ? text : NULL;
}

#define CENTURY_MS INT64_C(3155760000000)

/* In nanoseconds; 0: not said, or it is nothing to rely on. */
static int64_t
record_length(const json_t *root, const char *name)
{
	int64_t ms = json_integer_value(json_object_get(root, name));

	return ms > 0 && ms < CENTURY_MS ? ms * NS_PER_MS : 0;
}

struct json_t *
record_read(struct record *ret, const char *record)
{
	json_t *root = record ? json_loads(record, JSON_REJECT_DUPLICATES, NULL) : NULL;
	int64_t pid = json_integer_value(json_object_get(root, "pid"));
	int64_t for_ms = json_integer_value(json_object_get(root, "for_ms"));
	const json_t *newest = json_object_get(root, "newest");

	*ret = (struct record){
	    .who = record_member(root, "who"),
	    .host = record_member(root, "host"),
	    .command = record_member(root, "command"),
	    .arguments = record_member(root, "arguments"),
	    .why = record_member(root, "why"),
	    .door = record_member(root, "door"),
	    .pid = pid > 0 ? pid : 0,
	    .born = json_integer_value(json_object_get(root, "born")),
	    .script_born = json_integer_value(json_object_get(root, "script_born")),
	    .ttl = record_length(root, "ttl"),
	    .keep = record_length(root, "keep_ms"),
	    .end = record_length(root, "end_ms"),
	    .for_ms = for_ms >= -1 && for_ms < NEVER / NS_PER_MS ? for_ms : 0,
	    .newest = json_is_integer(newest) && json_integer_value(newest) >= 0
		? json_integer_value(newest)
		: -1,
	};
	return root;
}

const char *
record_command(const struct record *r, char *out, size_t size)
{
	char words[RECORD_BYTES + 100];

	if (!r->arguments)
		return text_name(out, size, r->command);
	snprintf(words, sizeof words, "%.99s %s", r->command, r->arguments);
	return text_quote(out, size, words, '"'); /* the words have other quotes */
}

/*
 * Writes " (pid 4711 on ci-3, running deploy.sh)".  The host stands beside the pid, which means
 * nothing without it.
 */
static void
describe_process(const struct record *r, char *out, size_t size)
{
	char clean[200];
	size_t n;

	*out = '\0';
	if (!r->pid)
		return;
	n = snprintf(out, size, " (pid %" PRId64, r->pid);
	if (r->host)
		n += snprintf(
		    out + n, size - n, " on %s", text_name(clean, 100, r->host));
	if (r->command)
		n += snprintf(out + n, size - n, ", running %s",
		    record_command(r, clean, r->arguments ? sizeof clean : 100));
	snprintf(out + n, size - n, ")");
}

void
record_words(const struct record *r, char *out, size_t size)
{
	char name[160], process[400], reason[162] = " ";

	text_name(name, sizeof name, r->who ? r->who : "somebody");
	describe_process(r, process, sizeof process);
	if (r->why)
		text_quote(reason + 1, sizeof reason - 1, r->why, '"');
	snprintf(out, size, "%s%s%s", name, process, r->why ? reason : "");
}

/* Is the run's door open?  Yes where the record is of an earlier version and names none. */
static bool
door_is_open(const struct record *r, const char *own)
{
	return !r->door ||
	    (strcmp(r->door, own) != 0 && join_address_is_open(r->door, (pid_t)r->pid));
}

enum record_kin
record_kin(const char *record, const char *own)
{
	enum record_kin kin = KIN_NONE;
	char host[NAME_BYTES];
	struct record r;
	json_t *root = record_read(&r, record);

	host_name(host, sizeof host);
	if (!r.host || strcmp(r.host, host) != 0 || r.pid <= 0 || r.pid > INT_MAX)
		;
	else if (r.born > 0 && kin_is_ancestor((pid_t)r.pid, r.born))
		kin = KIN_RUN;
	else if (r.script_born > 0 && kin_is_ancestor((pid_t)r.pid, r.script_born))
		kin = KIN_SCRIPT;
	if (kin != KIN_NONE && !door_is_open(&r, own))
		kin = KIN_NONE;
	json_decref(root);
	return kin;
}

bool
record_is_among(const char *record, const char *keepers)
{
	struct record r;
	json_t *root = record_read(&r, record);
	bool is = r.door && strstr(keepers, r.door);

	json_decref(root);
	return is;
}

/*
 * Blots decoded texts: JSON can write a character in several ways, so the secret may not stand in
 * the raw text.
 */
static char *
blot_strings(json_t *root, const char *secret)
{
	for (void *i = json_object_iter(root); i; i = json_object_iter_next(root, i)) {
		json_t *member = json_object_iter_value(i);
		const char *text = json_string_value(member);
		char *copy = text ? strdup(text) : NULL;

		if (copy)
			secret_blot(copy, secret);
		if (text)
			json_string_set_nocheck(member, copy ? copy : "");
		free(copy);
	}
	return json_dumps(root, JSON_COMPACT);
}

void
record_blot(char *record, const char *secret)
{
	json_t *root = secret && *secret ? json_loads(record, 0, NULL) : NULL;
	char *text = json_is_object(root) ? blot_strings(root, secret) : NULL;

	if (text && strlen(text) <= strlen(record))
		strcpy(record, text);
	else
		secret_blot(record, secret);
	free(text);
	json_decref(root);
}

void
record_describe(const char *record, char *out, size_t size)
{
	struct record r;
	json_t *root = record_read(&r, record);

	record_words(&r, out, size);
	json_decref(root);
}
