/* setting.c - reads -O settings by a backend's rows. */
#include "setting.h"

#include "trusted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The whole of a trusted file; RC_CONFIG with a predicate. */
static enum rc
read_trusted(const char *file, char *out, size_t size, size_t *n, struct fault *f)
{
	struct stat st;
	int fd = trusted_open(file, &st);
	enum rc rc;

	if (fd < 0)
		return fault_set(f, RC_CONFIG, "cannot be opened: %s", strerror(errno));
	rc = trusted_check(&st, file, true, f);
	if (rc == RC_OK)
		rc = trusted_read(fd, &st, out, size, n, f);
	close(fd);
	return rc;
}

enum rc
setting_secret(
    const char *name, const char *file, char *out, size_t size, struct fault *f)
{
	struct fault why = {""};
	size_t n = 0;
	enum rc rc = read_trusted(file, out, size, &n, &why);

	if (rc == RC_OK && n > 0 && out[n - 1] == '\n')
		n--;
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
