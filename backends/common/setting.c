/* setting.c - reads settings, and values that several backends understand alike. */
#include "setting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct setting_row *
setting_named(const struct backend *b, const char *name, struct fault *f)
{
	char names[256] = "it has none";
	size_t used = 0;

	for (const struct setting_row *row = b->settings; row && row->name; row++) {
		if (strcmp(row->name, name) == 0)
			return row;
		if (row->help && used < sizeof names)
			used += snprintf(names + used, sizeof names - used, "%s%s",
			    used ? ", " : "there are ", row->name);
	}
	fault_set(f, RC_USAGE, "the %s backend has no setting '%.200s' (%s)", b->name,
	    name, names);
	return NULL;
}

enum rc
setting_read(struct store *store, const struct site *site, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; rc == RC_OK && i < site->nsettings; i++) {
		const struct setting *s = &site->settings[i];
		const struct setting_row *row = setting_named(store->backend, s->name, f);

		rc = row ? row->set(store, s->value, f) : RC_USAGE;
	}
	return rc;
}

/* Takes only whole numbers and two units, since nobody waits 1h30m for a connection. */
enum rc
setting_timeout(const char *value, int64_t *ns, struct fault *f)
{
	char *end;
	long n = strtol(value, &end, 10);

	if (*value >= '0' && *value <= '9' && n > 0 && n <= 3600000) {
		*ns = strcmp(end, "ms") == 0 ? n * NS_PER_MS : n * NS_PER_S;
		if (*ns <= 3600 * NS_PER_S &&
		    (strcmp(end, "ms") == 0 || strcmp(end, "s") == 0 || *end == '\0'))
			return RC_OK;
	}
	return fault_set(
	    f, RC_USAGE, "connect-timeout is written 500ms or 2s, up to an hour");
}

enum rc
setting_secret(
    const char *name, const char *file, char *out, size_t size, struct fault *f)
{
	struct fault why = {""};
	struct stat st;
	size_t n = 0;
	int fd = trusted_open(file, &st);
	enum rc rc = fd < 0
	    ? fault_set(&why, RC_CONFIG, "cannot be opened: %s", strerror(errno))
	    : trusted_check(&st, file, true, &why);

	if (rc == RC_OK)
		rc = trusted_read(fd, &st, out, size, &n, &why);
	if (fd >= 0)
		close(fd);
	if (rc == RC_OK && n > 0 && out[n - 1] == '\n')
		n -= n > 1 && out[n - 2] == '\r' ? 2 : 1;
	if (rc == RC_OK &&
	    (n == 0 || n == size || memchr(out, '\n', n) || memchr(out, '\0', n)))
		rc = fault_set(
		    &why, RC_CONFIG, "must have one line of 1 to %zu bytes", size - 1);
	if (rc != RC_OK) {
		explicit_bzero(out, size);
		return fault_set(f, rc, "%s %s %s", name, file, why.text);
	}
	out[n] = '\0';
	return RC_OK;
}

enum rc
setting_file(const char *name, const char *file, bool secret, struct fault *f)
{
	struct fault why = {""};
	struct stat st;
	int fd = trusted_open(file, &st);

	if (fd < 0)
		return fault_set(f, RC_CONFIG, "%s %s: %s", name, file, strerror(errno));
	close(fd);
	if (!S_ISREG(st.st_mode))
		return fault_set(f, RC_CONFIG, "%s %s is no plain file", name, file);
	if (secret && trusted_check(&st, file, true, &why) != RC_OK)
		return fault_set(f, RC_CONFIG, "%s %s %s", name, file, why.text);
	return RC_OK;
}

/* ---- files that a library reads again ---- */

/* The directory of the process, kept before there are threads; it does not change after that. */
static char *directory;

char *
setting_absolute(const char *name)
{
	char *path;

	if (!directory || !name || !*name || *name == '/' ||
	    asprintf(&path, "%s/%s", directory, name) < 0)
		return NULL;
	return path;
}

/* Leaves a value with a colon alone: it is a list, or has another word before the file. */
void
setting_keep_directory(const char *const *variables)
{
	if (!directory)
		directory = getcwd(NULL, 0);
	for (; *variables; variables++) {
		const char *value = getenv(*variables);
		char *path = value && !strchr(value, ':') ? setting_absolute(value)
							  : NULL;

		if (path)
			setenv(*variables, path, true);
		free(path);
	}
}
