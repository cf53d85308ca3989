/*
 * conf.c - reads the configuration files.
 *
 *	find     the user's file and the system's, or the one that --config names
 *	trust    a file that somebody else could write is refused
 *	cut      the text becomes lines, and each is checked
 *	take     a line begins a section, or has a value.  Each value is checked; those of sections
 *	         that are for this run go into the list (said.h)
 */
#include "conf.h"

#include "environment.h"
#include "mask.h"
#include "parse.h"

#include "backends/common/append.h"
#include "backends/common/libc.h"
#include "backends/common/trusted.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The tests' dlock reads another one. */
#ifndef CONF_SYSTEM_FILE
#define CONF_SYSTEM_FILE "/etc/dlock.conf"
#endif

bool
conf_allows(int i)
{
	return options[i].env && !options[i].occasional;
}

/* ---- lines ---- */

enum { LINE_BYTES = 8191 };

static bool
is_space(char c)
{
	return c == ' ' || c == '\t';
}

/* Cuts blanks off both ends of a piece of text, and ends it there. */
static char *
trim(char *text, char **end)
{
	while (text < *end && is_space(*text))
		text++;
	while (*end > text && is_space((*end)[-1]))
		--*end;
	**end = '\0';
	return text;
}

/* Checks one line that is no comment, before its parts are looked at. */
static enum rc
check_line(const char *line, size_t n, struct fault *f)
{
	if (n > LINE_BYTES)
		return fault_set(
		    f, RC_CONFIG, "this line is longer than %d bytes", LINE_BYTES);
	for (size_t i = 0; i < n; i++) {
		unsigned char c = line[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return fault_set(
			    f, RC_CONFIG, "this line has a control character in it");
		if (i > 0 && is_space(line[i - 1]) && (c == ';' || c == '#'))
			return fault_set(f, RC_CONFIG,
			    "a comment needs a line of its own (no value has a blank before a %c)",
			    c);
	}
	if (*line == '[' && strchr(line, ']') != line + n - 1)
		return fault_set(f, RC_CONFIG,
		    "a section's line ends with its ], and has no other one");
	if (*line != '[' && !strpbrk(line, "=:"))
		return fault_set(f, RC_CONFIG,
		    "neither NAME = VALUE nor a [section] nor a comment (behind # or ;)");
	return RC_OK;
}

enum rc
conf_cut(char *text, size_t n,
    enum rc (*take)(void *, const struct conf_line *, struct fault *), void *ctx,
    int *number, struct fault *f)
{
	static const char mark[] = "\xef\xbb\xbf"; /* some editors put it before UTF-8 */
	struct conf_line l = {.section = ""};
	char *stop = text + n, *next;
	enum rc rc = RC_OK;

	if (n >= 3 && memcmp(text, mark, 3) == 0)
		text += 3;
	for (char *line = text; rc == RC_OK && line < stop; line = next) {
		char *end = memchr(line, '\n', stop - line);

		if (!end)
			end = stop;
		next = end < stop ? end + 1 : stop;
		*number = ++l.number;
		if (end > line && end[-1] == '\r')
			end--;
		line = trim(line, &end);
		if (line == end || *line == ';' || *line == '#')
			continue;
		rc = check_line(line, end - line, f);
		if (rc != RC_OK)
			return rc;
		if (*line == '[') {
			end[-1] = '\0';
			l.section = line + 1;
			l.name = l.value = NULL;
		} else {
			char *name_end = line + strcspn(line, "=:");

			l.value = trim(name_end + 1, &end);
			l.name = trim(line, &name_end);
		}
		rc = take(ctx, &l, f);
	}
	return rc;
}

/* ---- what stands in a file ---- */

/* Reads `WORD "NAME"` or `WORD NAME` into name[CONF_BYTES].  False: it is another section. */
static bool
is_section(const char *section, const char *word, char *name)
{
	size_t n = strlen(word);

	if (strncmp(section, word, n) != 0 || !is_space(section[n]))
		return false;
	section += n + strspn(section + n, " \t");
	n = strlen(section);
	if (*section == '"' && n > 2 && section[n - 1] == '"') {
		section++;
		n -= 2;
	}
	snprintf(name, CONF_BYTES, "%.*s", (int)n, section);
	return *name && !strchr(name, '"');
}

/* The state of conf_take(). */
struct taking {
	struct conf_text *text;
	struct said_list *all;
	struct said_origin *section; /* NULL: it does not count for this run */
	/* all that the lines of the section say */
	struct said here[OPTIONS + SETTINGS_MAX + SAID_SWITCHES];
	size_t nhere;
};

/* Begins a section.  `outside`: a key of this run that the section is not for, or NULL. */
static enum rc
add_section(struct taking *r, enum said_by by, const char *section, const char *outside,
    struct fault *f)
{
	r->section = said_add_section(r->all, by);
	if (!r->section)
		return fault_set(f, RC_CONFIG,
		    "more than %d sections are for this run: too many", SAID_SECTIONS);
	r->section->file = r->text->shown;
	r->section->section = section;
	r->section->outside = outside;
	return RC_OK;
}

static enum rc
refuse_section(const char *section, struct fault *f)
{
	static const char *const words[] = {"key", "profile", NULL};
	size_t n = strcspn(section, " \t\"");
	const char *meant = parse_nearest(section, n, words);

	if (meant && strlen(meant) == n)
		meant = NULL;
	return fault_set(f, RC_CONFIG,
	    "[%s]%s: a section is written [key \"PATTERN\"] or [profile NAME] (what is for every run stands before "
	    "them)",
	    text_brief(section).text, parse_hint(" (did you mean ", meant, "?)").text);
}

static enum rc
open_section(struct taking *r, const char *section, struct fault *f)
{
	static char name[CONF_BYTES];
	struct conf_text *t = r->text;
	const char *outside = NULL, *known[] = {name, NULL};
	enum said_by by;
	bool counts = false;

	r->section = NULL;
	r->nhere = 0;
	if (is_section(section, "key", name)) {
		by = t->user ? BY_USER_KEY : BY_SYSTEM_KEY;
		for (size_t i = 0; i < t->nkeys; i++)
			if (fnmatch(name, t->keys[i], 0) == 0)
				counts = true;
			else
				outside = t->keys[i];
	} else if (is_section(section, "profile", name)) {
		by = t->user ? BY_USER_PROFILE : BY_SYSTEM_PROFILE;
		counts = t->profile && strcmp(name, t->profile) == 0;
		t->found |= counts;
		if (t->profile && parse_nearest(t->profile, strlen(t->profile), known))
			text_clean(t->meant, sizeof t->meant, name, strlen(name));
	} else {
		return refuse_section(section, f);
	}
	return counts ? add_section(r, by, section, outside, f) : RC_OK;
}

/*
 * Within an outer run, that run's server counts more than a server that files name for every run,
 * so that nested runs stay on one server.  A section for a key or a profile names its server on
 * purpose, and counts.  A run that names another backend does not join the outer run, so files
 * count.
 */
static bool
is_overruled(enum said_by by, int i, const struct said_list *all)
{
	const struct said *named = said_of(all, OPT_BACKEND);

	return (by == BY_USER || by == BY_SYSTEM) &&
	    (options[i].group == GROUP_SERVER || i == OPT_OPTION) && all->outer &&
	    (!named || strcmp(named->value, all->outer) == 0);
}

/*
 * Some options in a file describe how the runs of a key wait, and why they run.  They do not
 * count for subcommands that ask about the lock or take it from a run.  Nor do they for dlock
 * hold: with a status of 0 for "busy" it would tell a script that it has the lock.
 */
static bool
is_for_runs_only(int i, unsigned cmd)
{
	if (i == OPT_CONFLICT)
		return !(cmd & (CMD_RUN | CMD_CONFIG));
	return (options[i].group == GROUP_WAIT || i == OPT_WHY) &&
	    !(cmd & (CMD_KEEPS | CMD_CONFIG));
}

static bool
counts(const struct taking *r, int i)
{
	unsigned cmd = r->all->cmd;

	return r->section && (options[i].cmds & cmd) && !is_for_runs_only(i, cmd) &&
	    !is_overruled(r->section->by, i, r->all);
}

/* Refuses two values of one option in a section: nobody knows which one is meant. */
static enum rc
check_once(struct taking *r, int i, const struct conf_line *l, struct fault *f)
{
	size_t name = strcspn(l->value, "=") + 1, settings = 0, switches = 0;

	for (const struct said *s = r->here; s < r->here + r->nhere; s++) {
		if (s->option == i && !options[i].repeats)
			return fault_set(f, RC_CONFIG,
			    "%s is given twice here, first in line %d", options[i].name,
			    s->line);
		if (s->option == i && i == OPT_UNLESS_FROZEN &&
		    (strcmp(s->value, l->value) == 0 || !*l->value))
			return fault_set(f, RC_CONFIG,
			    "%s is given twice here, or is empty behind another one: first in line %d",
			    options[i].name, s->line);
		if (s->option == i && i == OPT_OPTION &&
		    strncmp(s->value, l->value, name) == 0)
			return fault_set(f, RC_CONFIG,
			    "this setting of the backend is given twice here, first in line %d",
			    s->line);
		settings += s->option == OPT_OPTION;
		switches += s->option == OPT_UNLESS_FROZEN && *s->value;
	}
	if (i == OPT_UNLESS_FROZEN && switches == SWITCHES_MAX)
		return fault_set(f, RC_CONFIG, "more than %d of %s stand together here",
		    SWITCHES_MAX, options[i].name);
	if (i == OPT_OPTION && settings == SETTINGS_MAX)
		return fault_set(f, RC_CONFIG,
		    "more than %d settings of a backend stand together here",
		    SETTINGS_MAX);
	r->here[r->nhere++] = (struct said){
	    .option = i, .value = l->value, .line = l->number};
	return RC_OK;
}

/* Takes one line.  Its value is checked even where the section does not count for this run. */
static enum rc
take_line(void *ctx, const struct conf_line *l, struct fault *f)
{
	struct taking *r = ctx;
	int i;

	if (!l->name)
		return open_section(r, l->section, f);
	i = options_named(~0U, l->name, strlen(l->name));
	if (i < 0)
		return fault_set(f, RC_CONFIG,
		    "'%s' is no option%s (names are those of long options, such as ttl)",
		    text_brief(l->name).text,
		    options_hint(~0U, ": did you mean ", l->name, strlen(l->name)).text);
	if (!conf_allows(i))
		return fault_set(f, RC_CONFIG,
		    "%s is for one call of dlock and cannot stand in a file",
		    options[i].name);
	if (check_once(r, i, l, f) != RC_OK || options_check(i, l->value, f) != RC_OK)
		return RC_CONFIG;
	if (!r->text->secret && (i == OPT_URL || i == OPT_OPTION) && mask_finds(l->value))
		r->text->secret = l->number;
	if (counts(r, i))
		said_add(r->all, r->section, i, l->value, l->number);
	return RC_OK;
}

enum rc
conf_take(struct said_list *all, struct conf_text *t, struct fault *f)
{
	struct taking r = {.text = t, .all = all};
	struct fault why = {""};
	int number = 1;
	enum rc rc;

	rc = add_section(&r, t->user ? BY_USER : BY_SYSTEM, "", NULL, &why);
	if (rc == RC_OK)
		rc = conf_cut(t->text, t->n, take_line, &r, &number, &why);
	if (rc != RC_OK)
		return fault_set(f, rc, "%s:%d: %s", t->shown, number, why.text);
	return RC_OK;
}

/* ---- which files, and who may have written them ---- */

/*
 * Finds the user's file.  A service of the system has no HOME, so the password database is asked.
 * False: the user has no such file.
 */
static bool
find_user_file(char *path, size_t size)
{
	const char *dir = environment_get("XDG_CONFIG_HOME"), *below = "";
	const char *end = path + size;
	struct passwd *pw;

	if (!dir || *dir != '/') {
		dir = environment_get("HOME");
		below = "/.config";
	}
	if (!dir || *dir != '/') {
		pw = getpwuid(libc_user());
		dir = pw ? pw->pw_dir : NULL;
	}
	if (!dir || *dir != '/')
		return false;
	path = append_text(append_text(path, end, dir), end, below);
	append_text(path, end, "/dlock.conf");
	return true;
}

/*
 * Refuses a file that somebody else could write: nobody else may decide on which server we lock.
 */
static enum rc
check_file(const struct stat *st, const char *shown, struct fault *f)
{
	struct fault why = {""};
	bool foreign = S_ISREG(st->st_mode) && st->st_uid != 0 && libc_user() == 0;

	if (trusted_check(st, shown, false, &why) == RC_OK)
		return RC_OK;
	return fault_set(f, RC_CONFIG, "the configuration %s %s%s; it was not read",
	    shown, why.text, foreign ? " (sudo -H takes root's home)" : "");
}

/*
 * Opening a file has failed, as errno says: does that mean that there is none?  A home that we
 * may not look into is somebody else's, so it has no file of ours: a daemon may run with
 * HOME=/root.
 */
static bool
is_absent(const char *path)
{
	int error = errno;
	struct stat st;
	bool absent = error == ENOENT || error == ENOTDIR ||
	    (error == EACCES && stat(path, &st) != 0 && errno == EACCES);

	errno = error;
	return absent;
}

static struct conf_file files[CONF_FILES];
static size_t nfiles;

const struct conf_file *
conf_files(size_t *n)
{
	*n = nfiles;
	return files;
}

/* Reads one file, if it is there. */
static enum rc
read_conf(struct said_list *all, const char *path, bool needed, struct conf_text *t,
    struct fault *f)
{
	static char texts[CONF_FILES][CONF_BYTES + 1];
	struct conf_file *file = &files[nfiles];
	struct fault why = {""};
	struct stat st;
	enum rc rc;
	int fd = trusted_open(path, &st);

	file->there = fd >= 0;
	t->text = texts[nfiles++];
	t->shown = text_clean(file->shown, sizeof file->shown, path, strlen(path));
	t->secret = 0;
	if (fd < 0 && !needed && is_absent(path))
		return RC_OK;
	if (fd < 0)
		return fault_set(f, RC_CONFIG, "cannot read the configuration %s: %s%s",
		    t->shown, strerror(errno),
		    needed ? "" : " (--config FILE would be read instead)");
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)) {
		close(fd); /* /dev/null: no configuration */
		return RC_OK;
	}
	rc = check_file(&st, t->shown, f);
	if (rc == RC_OK &&
	    trusted_read(fd, &st, t->text, CONF_BYTES, &t->n, &why) != RC_OK)
		rc = fault_set(
		    f, RC_CONFIG, "the configuration %s %s", t->shown, why.text);
	close(fd);
	if (rc == RC_OK)
		rc = conf_take(all, t, f);
	file->is_secret = rc == RC_OK &&
	    trusted_check(&st, t->shown, true, &why) == RC_OK;
	if (rc == RC_OK && t->secret && !file->is_secret)
		return fault_set(f, RC_CONFIG,
		    "%s:%d: this line has a password, and the file %s", t->shown,
		    t->secret, why.text);
	return rc;
}

enum rc
conf_read(struct said_list *all, const struct params *p, struct fault *f)
{
	const char *system = CONF_SYSTEM_FILE;
	struct conf_text t = {.user = true,
	    .profile = p->config.profile,
	    .keys = p->keys,
	    .nkeys = p->nkeys};
	char path[PATH_MAX + 32], where[2 * CONF_SHOWN_BYTES + 60] = "";
	size_t used = 0;
	enum rc rc = RC_OK;

	if (p->config.file)
		rc = read_conf(all, p->config.file, true, &t, f);
	else if (find_user_file(path, sizeof path))
		rc = read_conf(all, path, false, &t, f);
	t.user = false;
	if (rc == RC_OK && !p->config.file && system)
		rc = read_conf(all, system, false, &t, f);
	if (rc != RC_OK || !t.profile || t.found)
		return rc;
	for (size_t i = 0; i < nfiles; i++)
		used += snprintf(where + used, sizeof where - used, "%s%s%s",
		    i ? " or " : "", files[i].shown,
		    files[i].there ? "" : " (not there)");
	return fault_set(f, RC_USAGE, "there is no profile '%s'%s in %s",
	    text_brief(t.profile).text,
	    parse_hint(" (did you mean ", *t.meant ? t.meant : NULL, "?)").text, where);
}
