/* setting.c - reads -O settings by a backend's rows. */
#include "setting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "there are path, acl", or "it has none". */
static const char *
list_names(const struct setting_row *row, char *out, size_t size)
{
	size_t used = 0;

	snprintf(out, size, "it has none");
	for (; row && row->name && used < size; row++)
		if (row->help)
			used += snprintf(out + used, size - used, "%s%s",
			    used ? ", " : "there are ", row->name);
	return out;
}

static enum rc
set_one(struct store *store, const struct setting *s, struct fault *f)
{
	char names[256];

	for (const struct setting_row *row = store->backend->settings; row && row->name;
	     row++)
		if (strcmp(row->name, s->name) == 0)
			return row->set(store, s->value, f);
	return fault_set(f, RC_USAGE, "the %s backend has no setting '%s' (%s)",
	    store->backend->name, s->name,
	    list_names(store->backend->settings, names, sizeof names));
}

enum rc
setting_read(struct store *store, const struct site *site, struct fault *f)
{
	enum rc rc = RC_OK;

	for (size_t i = 0; rc == RC_OK && i < site->nsettings; i++)
		rc = set_one(store, &site->settings[i], f);
	return rc;
}

/* Whole numbers and two units do: nobody waits 1h30m for a connection. */
enum rc
setting_patience(const char *value, int64_t *ns, struct fault *f)
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

static bool
is_private(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (st.st_uid == geteuid() || st.st_uid == 0) && !(st.st_mode & 077);
}

enum rc
setting_secret(
    const char *name, const char *file, char *out, size_t size, struct fault *f)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool private;
	ssize_t n;

	if (fd < 0)
		return fault_set(f, RC_CONFIG, "%s %s: %s", name, file, strerror(errno));
	private = is_private(fd);
	n = private ? read(fd, out, size) : -1;
	close(fd);
	if (!private)
		return fault_set(f, RC_CONFIG,
		    "%s %s must be a plain file of yours with mode 0600", name, file);
	if (n > 0 && out[n - 1] == '\n')
		n--;
	if (n <= 0 || (size_t)n == size || memchr(out, '\n', n) || memchr(out, '\0', n)) {
		explicit_bzero(out, size);
		return fault_set(f, RC_CONFIG,
		    "%s %s must have one line of 1 to %zu bytes", name, file, size - 1);
	}
	out[n] = '\0';
	return RC_OK;
}

static bool
is_kept_secret(const struct stat *st)
{
	return (st->st_uid == geteuid() && !(st->st_mode & 077)) ||
	    (st->st_uid == 0 && !(st->st_mode & 037));
}

enum rc
setting_file(const char *name, const char *file, bool secret, struct fault *f)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0) {
		fault_set(f, RC_CONFIG, "%s %s: %s", name, file, strerror(errno));
		if (fd >= 0)
			close(fd);
		return RC_CONFIG;
	}
	close(fd);
	if (!S_ISREG(st.st_mode))
		return fault_set(f, RC_CONFIG, "%s %s is no plain file", name, file);
	if (secret && !is_kept_secret(&st))
		return fault_set(f, RC_CONFIG,
		    "%s %s must be a file of yours with mode 0600, or of root's with 0640 at most",
		    name, file);
	return RC_OK;
}
