/* options.c - the table of options, and what each does with its value. */
#include "options.h"

#include "mask.h"
#include "parse.h"

#include "backends/registry.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DAY (86400 * NS_PER_S)
#define YEAR (365 * DAY)
#define DURATIONS "a duration is written 30, 1.5s, 500ms, 2m or 1h30m"

/* ---- setters that several rows share ---- */

/* The member of the parameters that keeps the option's value. */
static void *
target(struct params *p, const struct option *o)
{
	return (char *)p + o->at;
}

/* "3s", "365d" */
static struct word
bound(int64_t ns)
{
	struct word s = parse_span(ns);

	if (ns >= DAY && ns % DAY == 0)
		snprintf(s.text, sizeof s.text, "%lldd", (long long)(ns / DAY));
	return s;
}

/* Takes a duration from min to max; max NEVER: any length. */
static enum rc
set_duration(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	int64_t ns;
	bool legible = parse_duration(value, &ns);

	if (legible && ns >= o->min && ns <= o->max) {
		*(int64_t *)target(p, o) = ns;
		return RC_OK;
	}
	if (legible && o->max == NEVER)
		return fault_set(f, RC_USAGE, "more than 0 is allowed, or inf");
	if (o->max == NEVER)
		return fault_set(f, RC_USAGE, DURATIONS ", up to 292 years, or inf");
	return fault_set(f, RC_USAGE, "%sfrom %s to %s is allowed",
	    legible ? "" : DURATIONS "; ", bound(o->min).text, bound(o->max).text);
}

static enum rc
set_number(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	long n;

	if (!parse_number(value, o->min, o->max, &n))
		return fault_set(f, RC_USAGE, "a number from %lld to %lld is allowed",
		    (long long)o->min, (long long)o->max);
	*(int *)target(p, o) = n;
	if (o->group == GROUP_KIND)
		p->claim.kind = KIND_LIMIT;
	return RC_OK;
}

/*
 * Sets a flag.  A flag of GROUP_KIND sets the kind in max, one of GROUP_WAIT does not wait; "no"
 * sets neither.
 */
static enum rc
set_flag(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	bool on;

	if (!parse_truth(value, &on))
		return fault_set(
		    f, RC_USAGE, "1 or 0 is allowed (or yes, no, true, false, on, off)");
	if (o->group == GROUP_NONE)
		*(bool *)target(p, o) = on;
	else if (on && o->group == GROUP_KIND)
		p->claim.kind = (enum lock_kind)o->max;
	else if (on)
		p->wait.most = 0;
	return RC_OK;
}

/* Takes a text from min (0 or 1) to max bytes. */
static enum rc
set_text(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	const char *objection = o->min && !*value ? "it is empty"
						  : text_objection(value, o->max);

	if (objection)
		return fault_set(f, RC_USAGE,
		    "%s (%s %lld bytes of UTF-8 without control characters)", objection,
		    o->min ? "1 to" : "up to", (long long)o->max);
	*(const char **)target(p, o) = value;
	return RC_OK;
}

/* Takes a text for people.  record_write() cuts it and makes it one line. */
static enum rc
set_told(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	(void)f;
	*(const char **)target(p, o) = value;
	return RC_OK;
}

/* ---- setters of one row ---- */

static enum rc
add_key(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	const char *objection = *value ? text_objection(value, KEY_BYTES)
				       : "a key cannot be empty";

	(void)o;
	if (objection)
		return fault_set(f, RC_USAGE,
		    "%s (a key is 1 to %d bytes of UTF-8 without control characters)",
		    objection, KEY_BYTES);
	for (size_t i = 0; i < p->nkeys; i++)
		if (strcmp(p->keys[i], value) == 0)
			return fault_set(f, RC_USAGE, "the key is given twice");
	if (p->nkeys == KEYS_MAX)
		return fault_set(f, RC_USAGE, "one run takes up to %d keys", KEYS_MAX);
	p->keys[p->nkeys++] = value;
	return RC_OK;
}

struct brief
options_backends(const char *last)
{
	struct brief b = {""};
	size_t used = 0;

	for (size_t i = 0; backends[i] && used < sizeof b.text; i++)
		used += snprintf(b.text + used, sizeof b.text - used, "%s%s",
		    i == 0                ? ""
			: backends[i + 1] ? ", "
					  : last,
		    backends[i]->name);
	return b;
}

static enum rc
set_backend(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	static const struct synonym others[] = {{"postgres", "pg"}, {"postgresql", "pg"},
	    {"zookeeper", "zk"}, {"mariadb", "mysql"}, {"valkey", "redis"}, {NULL, NULL}};
	const char *known[OPTIONS_BACKENDS + 1] = {0}, *meant;

	(void)o;
	p->site.backend = registry_named(value);
	if (p->site.backend)
		return RC_OK;
	for (size_t i = 0; i < OPTIONS_BACKENDS && backends[i]; i++)
		known[i] = backends[i]->name;
	meant = parse_meant(value, strlen(value), others, known);
	return fault_set(f, RC_USAGE, "no such backend%s (there are %s)",
	    parse_hint(": did you mean ", meant, "?").text, options_backends(", ").text);
}

/* An empty value takes back what weaker origins say, and stands before any other. */
static enum rc
add_switch(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	struct params_before *b = &p->before;
	const char *objection = text_objection(value, KEY_BYTES);

	(void)o;
	if (objection)
		return fault_set(f, RC_USAGE,
		    "%s (a key is 1 to %d bytes of UTF-8 without control characters)",
		    objection, KEY_BYTES);
	if (!*value && (b->nswitches > 0 || b->takes_back))
		return fault_set(f, RC_USAGE,
		    "an empty value takes back what files say, and stands before all others");
	for (size_t i = 0; i < b->nswitches; i++)
		if (strcmp(b->switches[i], value) == 0)
			return fault_set(f, RC_USAGE, "the key is given twice");
	if (b->nswitches == SWITCHES_MAX)
		return fault_set(f, RC_USAGE, "up to %d keys are allowed", SWITCHES_MAX);
	if (*value)
		b->switches[b->nswitches++] = value;
	else
		b->takes_back = true;
	return RC_OK;
}

/* Is it a path, which somebody has given as a URL? */
static bool
is_path(const char *value)
{
	return *value == '/' || *value == '.' || *value == '~';
}

static enum rc
set_url(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	/* etcdctl writes its endpoints as http:// */
	static const struct synonym others[] = {{"zookeeper", "zk"}, {"http", "etcd"},
	    {"https", "etcds"}, {"pg", "postgresql"}, {"valkey", "redis"},
	    {"valkeys", "rediss"}, {NULL, NULL}};
	const char *known[OPTIONS_BACKENDS + 1] = {0}, *meant = NULL;
	size_t n = strcspn(value, ":");

	if (strlen(value) > (size_t)o->max)
		return fault_set(f, RC_USAGE, "too long (up to %lld bytes are allowed)",
		    (long long)o->max);
	if (registry_of_url(value)) {
		p->site.url = value;
		return RC_OK;
	}
	if (is_path(value))
		return fault_set(f, RC_USAGE, "a directory is written file://%s",
		    *value == '/' ? text_brief(value).text : "/DIRECTORY");
	for (size_t i = 0; i < OPTIONS_BACKENDS && backends[i]; i++)
		known[i] = backends[i]->schemes[0];
	if (strncmp(value + n, "://", 3) == 0)
		meant = parse_meant(value, n, others, known);
	return fault_set(f, RC_USAGE,
	    "does not begin with a scheme that dlock knows%s (such as redis://host or file:///directory)",
	    parse_hint(": did you mean ", meant, "://?").text);
}

static enum rc
add_setting(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	struct params_site *s = &p->site;
	char *copy = p->texts.settings + s->settings_used, *equals = strchr(value, '=');
	size_t n = strlen(value) + 1;

	(void)o;
	if (!equals || equals == value)
		return fault_set(
		    f, RC_USAGE, "a backend's setting is written NAME=VALUE");
	if (s->nsettings == SETTINGS_MAX || s->settings_used + n > SETTINGS_BYTES)
		return fault_set(f, RC_USAGE,
		    "too many settings, or too long ones (up to %d, %d bytes in all)",
		    SETTINGS_MAX, SETTINGS_BYTES);
	memcpy(copy, value, n);
	copy[equals - value] = '\0';
	s->settings[s->nsettings++] = (struct setting){copy, copy + (equals - value) + 1};
	s->settings_used += n;
	return RC_OK;
}

static enum rc
set_signal(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	static const int useless[] = {
	    SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
	int sig;

	(void)o;
	if (!parse_signal(value, &sig))
		return fault_set(f, RC_USAGE, "a signal is written TERM, SIGTERM or 15");
	for (size_t i = 0; i < sizeof useless / sizeof *useless; i++)
		if (sig == useless[i])
			return fault_set(
			    f, RC_USAGE, "this signal does not ask a command to end");
	p->command.signal = sig;
	return RC_OK;
}

static enum rc
set_command(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	(void)o;
	if (!*value)
		return fault_set(f, RC_USAGE, "the command is empty");
	p->command.line = value;
	return RC_OK;
}

static enum rc
set_period(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	static const char *const names[] = {
	    [PER_DAY] = "day", [PER_HOUR] = "hour", [PER_WEEK] = "week"};

	(void)o;
	for (int i = PER_DAY; i <= PER_WEEK; i++)
		if (strcmp(value, names[i]) == 0) {
			p->claim.period.kind = i;
			p->claim.job.per = &p->claim.period;
			return RC_OK;
		}
	return fault_set(f, RC_USAGE, "day, hour or week is allowed");
}

enum rc
options_check_fd(int fd, struct fault *f)
{
	int mode = fcntl(fd, F_GETFL);

	if (mode < 0)
		return fault_set(f, RC_USAGE, "this descriptor is not open");
	if ((mode & O_ACCMODE) == O_RDONLY || (mode & O_PATH))
		return fault_set(f, RC_USAGE, "this descriptor is not open for writing");
	return RC_OK;
}

/* Whether the descriptor is open is asked when it is known that this value counts: args.c. */
static enum rc
set_log(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	static const char fd[] = "fd:";
	const char *objection = text_objection(value, o->max);
	long n = 0;

	if (objection)
		return fault_set(f, RC_USAGE, "%s", objection);
	if (strncmp(value, fd, strlen(fd)) == 0 &&
	    !parse_number(value + strlen(fd), 0, INT_MAX, &n))
		return fault_set(f, RC_USAGE,
		    "a descriptor is written fd:3 (and a file of such a name ./%s)",
		    text_brief(value).text);
	if (strcmp(value, "-") == 0)
		return fault_set(f, RC_USAGE, "standard output is written fd:1");
	p->show.log = (struct params_log){.path = value, .fd = (int)n};
	p->show.log.kind = !*value                ? LOG_NOWHERE
	    : strcmp(value, "syslog") == 0        ? LOG_TO_SYSLOG
	    : strncmp(value, fd, strlen(fd)) == 0 ? LOG_TO_FD
						  : LOG_TO_FILE;
	return RC_OK;
}

static enum rc
set_status_fd(
    struct params *p, const struct option *o, const char *value, struct fault *f)
{
	long n;

	if (!parse_number(value, o->min, o->max, &n))
		return fault_set(
		    f, RC_USAGE, "give the number of an open descriptor, such as 3");
	if (options_check_fd(n, f) != RC_OK)
		return RC_USAGE;
	p->show.status_fd = n;
	return RC_OK;
}

static enum rc
set_token(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	long n;

	(void)o;
	if (!parse_number(value, 1, LONG_MAX, &n))
		return fault_set(f, RC_USAGE, "a token is a number, as status shows it");
	p->steer.token = n;
	return RC_OK;
}

/* Takes a moment.  The server is told how long it is until then by our clock. */
static enum rc
set_until(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	int64_t us;
	bool twice;

	(void)o;
	if (!parse_time(value, &us, &twice))
		return fault_set(f, RC_USAGE,
		    twice
			? "clocks show this time twice, as summer time ends: write which, as 2026-11-24T18:00+01:00"
			: "a time is written 2026-11-24T18:00:00Z, 2026-11-24T18:00+01:00 or, in local time, '2026-11-24 18:00'");
	us -= instant_epoch();
	if (us <= 0)
		return fault_set(f, RC_USAGE, "this time has passed");
	if (us > YEAR / 1000)
		return fault_set(f, RC_USAGE, "up to 365d from now is allowed");
	p->steer.length = us * 1000;
	return RC_OK;
}

static enum rc
set_format(struct params *p, const struct option *o, const char *value, struct fault *f)
{
	bool table = strcmp(value, "table") == 0, json = strcmp(value, "json") == 0,
	     prometheus = strcmp(value, "prometheus") == 0;

	(void)o;
	if (!table && !json && !prometheus)
		return fault_set(f, RC_USAGE, "table, json or prometheus is allowed");
	if (p->look.json && !json)
		return fault_set(f, RC_USAGE, "it contradicts --json");
	p->look.json = json;
	p->look.prometheus = prometheus;
	return RC_OK;
}

/* ---- the table ---- */

/*
 * The setter of an option, and the member of the parameters that keeps its value.  The member
 * must have the type that the setter writes.
 */
#define DURATION(m) \
	.set = set_duration, \
	.at = _Generic(((struct params *)NULL)->m, int64_t \
		       : offsetof(struct params, m))
#define NUMBER(m) \
	.set = set_number, \
	.at = _Generic(((struct params *)NULL)->m, int \
		       : offsetof(struct params, m))
#define FLAG(m) \
	.set = set_flag, \
	.at = _Generic(((struct params *)NULL)->m, bool \
		       : offsetof(struct params, m))
#define TEXT_BY(setter, m) \
	.set = (setter), \
	.at = _Generic(((struct params *)NULL)->m, const char * : offsetof(struct params, m))
#define TEXT(m) TEXT_BY(set_text, m)
#define TOLD(m) TEXT_BY(set_told, m)

#define INSTEAD(...) ((const struct wording[]){__VA_ARGS__, {0, NULL}})

const struct option options[] = {
    [OPT_KEY] = {"key", 'k', "KEY", "DLOCK_KEY",
	"the lock's name (without -k: the first word);\nrepeatable: all of them or none",
	.instead = INSTEAD(
	    {CMD_HOLD,
		"the lock's name (also as a word of its own);\nrepeatable: all of them or none"},
	    {CMD_WAIT,
		"the lock's name (also as a word of its own);\nrepeatable: until all of them are free"},
	    {CMD_STATUS | CMD_FREEZE | CMD_THAW,
		"the lock's name (also as a word of its own);\nrepeatable"},
	    {CMD_BREAK, "the lock's name (also as a word of its own)"},
	    {CMD_FORGET, "the job's lock (also as a word of its own)"},
	    {CMD_RELEASE,
		"your hold of this lock on this machine;\nrepeatable, for a hold of several"},
	    {CMD_CONFIG, "a lock whose sections in the files count;\nrepeatable"},
	    {CMD_DOCTOR,
		"a lock whose sections in the files count, and\nwith whose name the probe's begins"}),
	.cmds = (CMD_ASKS & ~CMD_LS) | CMD_CONFIG | CMD_RELEASE, .set = add_key,
	.repeats = true, .occasional = true},
    [OPT_CONFIG] = {"config", 0, "FILE", "DLOCK_CONFIG",
	"read this file only, not the user's dlock.conf\nand /etc/dlock.conf",
	.cmds = CMD_ASKS | CMD_CONFIG, TEXT(config.file), .max = PATH_MAX - 1,
	.occasional = true},
    [OPT_PROFILE] = {"profile", 0, "NAME", "DLOCK_PROFILE",
	"a profile of the configuration files", .cmds = CMD_ASKS | CMD_CONFIG,
	TEXT(config.profile), .max = 100, .occasional = true},
    [OPT_BACKEND] = {"backend", 'b', "NAME", "DLOCK_BACKEND", "where locks are kept:\n",
	.cmds = CMD_ASKS | CMD_CONFIG, .set = set_backend, .group = GROUP_SERVER},
    [OPT_URL] = {"url", 'u', "URL", "DLOCK_URL",
	"the server or directory; names the backend, too\n(default: DLOCK_<BACKEND>_URL, or this machine)",
	.cmds = CMD_ASKS | CMD_CONFIG, .set = set_url, .group = GROUP_SERVER,
	.max = URL_BYTES - 1},
    [OPT_OPTION] = {"option", 'O', "NAME=VALUE", "DLOCK_OPTION",
	"a setting of the backend; repeatable", .cmds = CMD_ASKS | CMD_CONFIG,
	.set = add_setting, .repeats = true},
    [OPT_SHARED] = {"shared", 's', NULL, "DLOCK_SHARED",
	"take it as a reader, beside other readers",
	.instead = INSTEAD({CMD_WAIT, "until a reader could have it"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT, .set = set_flag, .max = KIND_SHARED,
	.group = GROUP_KIND},
    [OPT_EXCLUSIVE] = {"exclusive", 'x', NULL, "DLOCK_EXCLUSIVE",
	"take it alone: the default",
	.instead = INSTEAD({CMD_WAIT, "until one could have it alone: the default"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT, .set = set_flag, .max = KIND_WRITER,
	.group = GROUP_KIND},
    [OPT_LIMIT] = {"limit", 0, "N", "DLOCK_LIMIT",
	"take it beside up to N - 1 others; the command\ngets DLOCK_SLOT, 0 to N - 1",
	.instead = INSTEAD(
	    {CMD_HOLD,
		"take it beside up to N - 1 others; --shell prints\nDLOCK_SLOT too, 0 to N - 1"},
	    {CMD_WAIT, "until one could have it beside up to N - 1 others"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT, NUMBER(claim.limit),
	.group = GROUP_KIND, .min = 1, .max = LIMIT_MAX},
    [OPT_NONBLOCK] = {"nonblock", 'n', NULL, "DLOCK_NONBLOCK", "do not wait for the lock",
	.instead = INSTEAD({CMD_WAIT, "look once"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT, .set = set_flag, .group = GROUP_WAIT},
    [OPT_WAIT] = {"wait", 'w', "DURATION", "DLOCK_WAIT",
	"wait at most this long; 0 is -n (default: inf)",
	.instead = INSTEAD(
	    {CMD_WAIT, "look for at most this long; 0 is -n (default: inf)"},
	    {CMD_BREAK,
		"wait at most this long for the holder to give it\nup (default: inf)"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT | CMD_BREAK, .group = GROUP_WAIT,
	DURATION(wait.most), .max = NEVER},
    [OPT_CONFLICT] = {"conflict-exit-code", 'E', "N", "DLOCK_CONFLICT_EXIT_CODE",
	"status if the lock is not free\n(default: 75)",
	.instead = INSTEAD({CMD_WAIT, "status when it is not free (default: 75)"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT, NUMBER(wait.conflict_status),
	.max = 255},
    [OPT_UNLESS_FROZEN] = {"unless-frozen", 0, "KEY", "DLOCK_UNLESS_FROZEN",
	"begin only while KEY is not frozen: one switch\nfor many locks; repeatable",
	.instead = INSTEAD(
	    {CMD_STATUS,
		"tell whether KEY is frozen, on which runs wait\nwith --unless-frozen; repeatable"},
	    {CMD_DOCTOR, "a key that runs name with --unless-frozen;\nrepeatable"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_STATUS | CMD_DOCTOR, .set = add_switch,
	.repeats = true},
    [OPT_NEWEST] = {"newest", 0, NULL, "DLOCK_NEWEST",
	"of the runs that wait with this, only the last to\ncome is to run; the others end with 75",
	.cmds = CMD_KEEPS | CMD_CONFIG, FLAG(before.newest)},
    [OPT_TTL] = {"ttl", 't', "DURATION", "DLOCK_TTL",
	"the lease, renewed at a third (default: 30s)",
	.instead = INSTEAD(
	    {CMD_DOCTOR, "the lease that runs will ask for\n(default: 30s)"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_DOCTOR, DURATION(terms.ttl),
	.min = 3 * NS_PER_S, .max = YEAR},
    [OPT_GRACE] = {"grace", 0, "DURATION", "DLOCK_GRACE",
	"from --signal to KILL (default: 5s, at most\na sixth of the ttl)",
	.instead = INSTEAD(
	    {CMD_HOLD,
		"from --signal to KILL, if the lock is lost\n(default: 5s, at most a sixth of the ttl)"},
	    {CMD_DOCTOR, "from TERM to KILL (default: 5s, at most\na sixth of the ttl)"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_DOCTOR, DURATION(terms.grace), .max = YEAR},
    [OPT_SIGNAL] = {"signal", 0, "SIG", "DLOCK_SIGNAL",
	"asks the command to stop (default: TERM)",
	.instead = INSTEAD(
	    {CMD_HOLD, "asks PID to stop, if the lock is lost\n(default: TERM)"}),
	.cmds = CMD_KEEPS | CMD_CONFIG, .set = set_signal},
    [OPT_MIN_HOLD] = {"min-hold", 0, "DURATION", "DLOCK_MIN_HOLD",
	"keep the lock at least this long; dlock itself\nreturns with the command",
	.cmds = CMD_RUN | CMD_CONFIG, DURATION(terms.min_hold), .max = YEAR},
    [OPT_MAX_RUN] = {"max-run", 0, "DURATION", "DLOCK_MAX_RUN",
	"stop the command after this long: status 124", .cmds = CMD_RUN | CMD_CONFIG,
	DURATION(terms.max_run), .min = 1, .max = NEVER},
    [OPT_KILL_AFTER] = {"kill-after", 0, "DURATION", "DLOCK_KILL_AFTER",
	"kill the command this long after TERM, HUP, or an\nINT that is no Ctrl-C, has reached dlock",
	.cmds = CMD_RUN | CMD_CONFIG, DURATION(terms.kill_after), .min = 1, .max = NEVER},
    [OPT_WAIT_TREE] = {"wait-tree", 0, NULL, "DLOCK_WAIT_TREE",
	"release only when every descendant has ended", .cmds = CMD_RUN | CMD_CONFIG,
	FLAG(terms.wait_tree)},
    [OPT_ONCE] = {"once", 0, "ID", "DLOCK_ONCE",
	"skip it if a run of KEY and ID ended with 0", .cmds = CMD_RUN | CMD_CONFIG,
	TEXT(claim.job.once), .group = GROUP_JOB, .min = 1, .max = ONCE_BYTES},
    [OPT_ONCE_PER] = {"once-per", 0, "PERIOD", "DLOCK_ONCE_PER",
	"the same, the ID being the server's day, hour or\nweek in UTC",
	.cmds = CMD_RUN | CMD_CONFIG, .group = GROUP_JOB, .set = set_period},
    [OPT_AT_OFFSET] = {"at-offset", 0, "DURATION", "DLOCK_AT_OFFSET",
	"of --once-per: begins so long after midnight,\nthe hour or Monday",
	.cmds = CMD_RUN | CMD_CONFIG, DURATION(claim.period.offset), .max = 7 * DAY},
    [OPT_COOLDOWN] = {"cooldown", 0, "DURATION", "DLOCK_COOLDOWN",
	"skip it if a run of KEY that ended with 0\nbegan less than this long ago",
	.cmds = CMD_RUN | CMD_CONFIG, DURATION(claim.job.cooldown), .max = YEAR},
    [OPT_NO_RETRY] = {"no-retry", 0, NULL, "DLOCK_NO_RETRY",
	"of --once, --once-per: a run of the ID that ended\ncounts, whatever its status",
	.cmds = CMD_RUN | CMD_CONFIG, FLAG(claim.job.no_retry)},
    [OPT_SKIPPED] = {"skipped-exit-code", 0, "N", "DLOCK_SKIPPED_EXIT_CODE",
	"status of a skipped run (default: 0)", .cmds = CMD_RUN | CMD_CONFIG,
	NUMBER(claim.skipped_status), .max = 255},
    [OPT_REMEMBER] = {"remember", 0, NULL, "DLOCK_REMEMBER",
	"let status show how it ended; it counts for no\n--once and no --cooldown",
	.instead = INSTEAD({CMD_HOLD, "let status show it when it has been given back"}),
	.cmds = CMD_KEEPS | CMD_CONFIG, FLAG(claim.remembers)},
    [OPT_COMMAND] = {"command", 'c', "STRING", "DLOCK_COMMAND", "run STRING with sh -c",
	.cmds = CMD_RUN, .set = set_command, .occasional = true},
    [OPT_WHO] = {"who", 0, "TEXT", "DLOCK_WHO", "shown to others (default: user@host)",
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_STEERS, TOLD(show.who)},
    [OPT_WHY] = {"why", 0, "TEXT", "DLOCK_WHY", "shown to others, such as a ticket",
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_STEERS, TOLD(show.why)},
    [OPT_SHOW_ARGUMENTS] = {"show-arguments", 0, NULL, "DLOCK_SHOW_ARGUMENTS",
	"show others the command's arguments, too: they\nmay hold secrets",
	.instead = INSTEAD(
	    {CMD_HOLD, "show others the arguments of PID, too: they\nmay hold secrets"}),
	.cmds = CMD_KEEPS | CMD_CONFIG, FLAG(show.arguments)},
    [OPT_STATUS_FD] = {"status-fd", 0, "N", "DLOCK_STATUS_FD",
	"write every event to descriptor N, one JSON\nobject a line", .cmds = CMD_RUN,
	.set = set_status_fd, .max = INT_MAX, .occasional = true},
    [OPT_METRICS] = {"metrics-file", 0, "FILE", "DLOCK_METRICS_FILE",
	"count the run in FILE, for Prometheus's\nnode_exporter",
	.cmds = CMD_RUN | CMD_CONFIG, TEXT(show.metrics), .min = 1, .max = PATH_MAX - 1},
    [OPT_LOG] = {"log", 0, "PLACE", "DLOCK_LOG",
	"write a line for each grant and each end to\nsyslog, a FILE or fd:N",
	.instead = INSTEAD({CMD_STEERS | CMD_FORGET,
	    "write a line that says what was done to syslog,\na FILE or fd:N"}),
	.cmds = CMD_KEEPS | CMD_STEERS | CMD_FORGET | CMD_CONFIG, .set = set_log,
	.max = PATH_MAX - 1},
    [OPT_TOKEN] = {"token", 0, "N", NULL, "only the grant with this token",
	.cmds = CMD_BREAK, .set = set_token},
    [OPT_FORCE] = {"force", 0, NULL, NULL,
	"take it away at once; its command may still run", .cmds = CMD_BREAK,
	FLAG(steer.force)},
    [OPT_FOR] = {"for", 0, "DURATION", NULL, "thaw it after this long",
	.instead = INSTEAD({CMD_HOLD, "release it after this long"}),
	.cmds = CMD_FREEZE | CMD_HOLD, DURATION(steer.length), .group = GROUP_LENGTH,
	.min = NS_PER_MS, .max = YEAR},
    [OPT_UNTIL] = {"until", 0, "TIME", NULL,
	"thaw it then: 2026-11-24T18:00:00Z, or in local\ntime '2026-11-24 18:00'",
	.cmds = CMD_FREEZE, .set = set_until, .group = GROUP_LENGTH},
    [OPT_PID] = {"pid", 0, "PID", NULL,
	"hold it until this process ends\n(default, without --for: the parent process)",
	.cmds = CMD_HOLD, NUMBER(steer.pid), .min = 1, .max = INT_MAX},
    [OPT_WITH_PARENT] = {"with-parent", 0, NULL, "DLOCK_WITH_PARENT",
	"end as on TERM when the parent process ends",
	.instead = INSTEAD(
	    {CMD_HOLD, "end the waiting as on TERM when the parent process\nends"}),
	.cmds = CMD_KEEPS, FLAG(with_parent), .occasional = true},
    [OPT_SHELL] = {"shell", 0, NULL, NULL, "print assignments for eval",
	.instead = INSTEAD({CMD_RELEASE, "print commands for eval that take them back"}),
	.cmds = CMD_HOLD | CMD_RELEASE, FLAG(steer.shell)},
    [OPT_YES] = {"yes", 'y', NULL, NULL, "do not ask",
	.cmds = CMD_BREAK | CMD_THAW | CMD_FORGET, FLAG(steer.yes)},
    [OPT_JOBS] = {"jobs", 0, NULL, NULL, "list runs of --once and --cooldown instead",
	.cmds = CMD_LS, FLAG(look.jobs)},
    [OPT_DONE_WITHIN] = {"done-within", 0, "DURATION", NULL,
	"ask whether a run ended with 0 so recently", .cmds = CMD_STATUS,
	DURATION(look.done_within), .min = NS_PER_MS, .max = 400 * DAY},
    [OPT_JSON] = {"json", 'J', NULL, NULL, "one JSON object a line",
	.instead = INSTEAD({CMD_STEERS, "print what was done, one JSON object a key"}),
	.cmds = CMD_STATUS | CMD_LS | CMD_CONFIG | CMD_STEERS | CMD_DOCTOR | CMD_VERSION,
	FLAG(look.json)},
    [OPT_NOHEADINGS] = {"noheadings", 'n', NULL, NULL, "print no line of headings",
	.cmds = CMD_LS, FLAG(look.bare)},
    [OPT_OUTPUT] = {"output", 'o', "COL,...", NULL, "which columns", .cmds = CMD_LS,
	TEXT(look.columns), .max = 200},
    [OPT_FORMAT] = {"format", 0, "FORMAT", NULL, "table, json (as -J) or prometheus",
	.cmds = CMD_LS, .set = set_format},
    [OPT_HELD_OVER] = {"held-over", 0, "DURATION", NULL,
	"only those held for longer; status 1 if there is\none, 0 if there is none",
	.cmds = CMD_LS, DURATION(look.held_over), .min = NS_PER_MS, .max = YEAR},
    [OPT_WATCH] = {"watch", 0, "DURATION", NULL,
	"look again and again (default: every 2s)", .cmds = CMD_LS | CMD_STATUS,
	.bare = "2s", DURATION(look.again), .min = NS_PER_S / 10, .max = DAY},
    [OPT_QUIET] = {"quiet", 'q', NULL, "DLOCK_QUIET",
	"say nothing about waiting or a busy lock",
	.instead = INSTEAD({CMD_WAIT, "print nothing about the wait or its end"},
	    {CMD_STEERS | CMD_FORGET | CMD_RELEASE, "print only what goes wrong"}),
	.cmds = CMD_KEEPS | CMD_CONFIG | CMD_WAIT | CMD_STEERS | CMD_FORGET | CMD_RELEASE,
	FLAG(show.quiet)},
    [OPT_VERBOSE] = {"verbose", 'v', NULL, "DLOCK_VERBOSE",
	"report each call to the backend", .cmds = CMD_KEEPS | CMD_CONFIG,
	FLAG(show.verbose)},
    [OPTIONS] = {.name = NULL},
};

enum rc
options_take(struct params *p, int i, const char *value, struct fault *f)
{
	struct fault why;
	size_t scheme;

	if (options[i].set(p, &options[i], value, &why) == RC_OK)
		return RC_OK;
	scheme = strcspn(value, ":/@ =");
	/* the error shows no more than the scheme: a wrong URL may have a password anywhere */
	if (i == OPT_URL && *value && !is_path(value))
		return fault_set(f, RC_USAGE, " '%.*s...': %s",
		    scheme < 60 ? (int)scheme : 60, value, why.text);
	if (mask_finds(value))
		return fault_set(f, RC_USAGE, ": %s", why.text);
	return fault_set(f, RC_USAGE, " '%s': %s", text_brief(value).text, why.text);
}

enum rc
options_check(int i, const char *value, struct fault *f)
{
	static struct params nobody; /* a setter checks a value while it sets it */
	struct fault why;

	nobody.site.nsettings = nobody.site.settings_used = 0;
	nobody.before = (struct params_before){.nswitches = 0};
	if (options_take(&nobody, i, value, &why) != RC_OK)
		return fault_set(f, RC_CONFIG, "%s%s", options[i].name, why.text);
	if (i == OPT_LOG && nobody.show.log.kind == LOG_TO_FD)
		return fault_set(f, RC_CONFIG,
		    "log '%s': a descriptor is for one call of dlock: name syslog or a file",
		    text_brief(value).text);
	if (i == OPT_LOG && nobody.show.log.kind == LOG_TO_FILE && *value != '/')
		return fault_set(f, RC_CONFIG,
		    "log '%s': here the path of a file begins with a /, whatever the working directory is",
		    text_brief(value).text);
	return RC_OK;
}

const char *
options_default(const struct params *p, int i, char *out, size_t size)
{
	const struct option *o = &options[i];
	void *at = (char *)p + o->at;

	if (i == OPT_SHARED)
		return p->claim.kind == KIND_SHARED ? "yes" : "no";
	if (i == OPT_EXCLUSIVE)
		return kind_is_exclusive(p->claim.kind) ? "yes" : "no";
	if (i == OPT_NONBLOCK)
		return p->wait.most == 0 ? "yes" : "no";
	if (o->set == set_flag)
		return *(bool *)at ? "yes" : "no";
	if (i == OPT_SIGNAL)
		snprintf(out, size, "%s",
		    parse_signal_text(p->command.signal).text + strlen("SIG"));
	else if (o->set == set_duration)
		snprintf(out, size, "%s", parse_span(*(int64_t *)at).text);
	else if (o->set == set_number && i != OPT_LIMIT)
		snprintf(out, size, "%d", *(int *)at);
	else
		return "-";
	return out;
}

const char *
options_cmd(unsigned cmd)
{
#define NAME(bit, name) [__builtin_ctz(bit)] = (name)
	static const char *const names[] = {
	    NAME(CMD_RUN, "run"),
	    NAME(CMD_HOLD, "hold"),
	    NAME(CMD_STATUS, "status"),
	    NAME(CMD_LS, "ls"),
	    NAME(CMD_WAIT, "wait"),
	    NAME(CMD_BREAK, "break"),
	    NAME(CMD_FREEZE, "freeze"),
	    NAME(CMD_THAW, "thaw"),
	    NAME(CMD_RELEASE, "release"),
	    NAME(CMD_CONFIG, "config"),
	    NAME(CMD_VERSION, "version"),
	    NAME(CMD_DOCTOR, "doctor"),
	    NAME(CMD_FORGET, "forget"),
	    NAME(CMD_HELP, "help"),
	};
#undef NAME

	return names[__builtin_ctz(cmd)];
}

int
options_named(unsigned cmd, const char *name, size_t n)
{
	for (int i = 0; i < OPTIONS; i++)
		if ((options[i].cmds & cmd) && text_is(options[i].name, name, n))
			return i;
	return -1;
}

/* Finds our option that flock, etcdctl, consul and clients of redis call so.  NULL: none. */
static const char *
synonym_of(unsigned cmd, const char *word, size_t n)
{
	static const struct {
		const char *said;
		int meant; /* OPT_... */
	} others[] = {{"timeout", OPT_WAIT}, {"try", OPT_WAIT}, {"endpoints", OPT_URL},
	    {"endpoint", OPT_URL}, {"server", OPT_URL}, {"host", OPT_URL},
	    {"lease", OPT_TTL}, {"expire", OPT_TTL}, {"expiry", OPT_TTL}};

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if ((options[others[i].meant].cmds & cmd) &&
		    text_is(others[i].said, word, n))
			return i == 0 && cmd == CMD_RUN /* what timeout(1) does */
			    ? "wait, or --max-run"
			    : options[others[i].meant].name;
	return NULL;
}

struct brief
options_synonym(unsigned cmd, const char *before, const char *word, size_t n)
{
	return parse_hint(before, synonym_of(cmd, word, n), "?");
}

struct brief
options_hint(unsigned cmd, const char *before, const char *word, size_t n)
{
	const struct synonym none = {NULL, NULL};
	const char *known[OPTIONS + 1] = {0}, *meant = synonym_of(cmd, word, n);
	size_t k = 0;

	for (const struct option *o = options; o->name; o++)
		if ((o->cmds & cmd) && (n > 1 || (!o->letter && *o->name == *word)))
			known[k++] = o->name;
	if (!meant)
		meant = n > 1 ? parse_meant(word, n, &none, known)
		    : k == 1  ? known[0]
			      : NULL;
	return parse_hint(before, meant, "?");
}

/* ---- what people and tests read ---- */

void
options_print_help(FILE *to, unsigned cmd)
{
	for (const struct option *o = options; o->name; o++) {
		const char *help = o->help, *rest;
		struct brief names = {""};
		char head[64];

		if (!(o->cmds & cmd))
			continue;
		for (const struct wording *w = o->instead; w && w->cmds; w++)
			if (w->cmds & cmd)
				help = w->help;
		rest = strchr(help, '\n');
		/* its help ends with the names of the backends, from their table */
		if (o == &options[OPT_BACKEND])
			names = options_backends(" or ");
		snprintf(head, sizeof head, "%s%c%s --%s%s%s%s", o->letter ? "-" : " ",
		    o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
		    o->bare      ? "[="
			: o->arg ? " "
				 : "",
		    o->arg ? o->arg : "", o->bare ? "]" : "");
		fprintf(to, "  %-28s %.*s\n", head, (int)strcspn(help, "\n"), help);
		if (rest)
			fprintf(to, "  %-28s %s%s\n", "", rest + 1, names.text);
	}
}

void
options_print_raw(FILE *to)
{
	for (const struct option *o = options; o->name; o++) {
		const char *between = "\t";

		fprintf(to, "%s\t%c\t%s\t%s", o->name, o->letter ? o->letter : '-',
		    o->arg ? o->arg : "-", o->env ? o->env : "-");
		for (unsigned cmd = 1; cmd <= o->cmds; cmd <<= 1) {
			if (!(o->cmds & cmd))
				continue;
			fprintf(to, "%s%s", between, options_cmd(cmd));
			between = ",";
		}
		putc('\n', to);
	}
}
