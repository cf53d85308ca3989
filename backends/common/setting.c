/* setting.c - reads -O settings and the files that they name, and writes which locks they mean. */
#include "setting.h"

#include "libc.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- trusted files ---- */

int
trusted_open(const char *path, struct stat *st)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), error;

	if (fd < 0 || libc_stat_of(fd, st) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

enum rc
trusted_check(const struct stat *st, const char *shown, bool secret, struct fault *f)
{
	unsigned mode = st->st_mode & 0777;

	if (!S_ISREG(st->st_mode))
		return fault_set(f, RC_CONFIG, "is not a regular file");
	if (st->st_uid != 0 && st->st_uid != libc_user())
		return fault_set(f, RC_CONFIG,
		    "belongs to uid %u, neither root nor uid %u, who runs this",
		    (unsigned)st->st_uid, (unsigned)libc_user());
	if (mode & (S_IWGRP | S_IWOTH))
		return fault_set(f, RC_CONFIG,
		    "can be written by %s (its mode is 0%03o): chmod go-w %s",
		    mode & S_IWOTH ? "everybody" : "its group", mode, shown);
	if (secret && (mode & S_IROTH))
		return fault_set(f, RC_CONFIG,
		    "can be read by everybody (its mode is 0%03o): chmod 600 %s", mode,
		    shown);
	if (secret && (mode & S_IRGRP) && st->st_uid != 0)
		return fault_set(f, RC_CONFIG,
		    "can be read by its group (its mode is 0%03o), as only a file of root's may be: chmod 600 %s",
		    mode, shown);
	return RC_OK;
}

enum rc
trusted_read(
    int fd, const struct stat *st, char *out, size_t size, size_t *n, struct fault *f)
{
	char beyond;

	for (*n = 0;;) {
		bool full = *n == size;
		ssize_t got = read(fd, full ? &beyond : out + *n, full ? 1 : size - *n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fault_set(
			    f, RC_CONFIG, "cannot be read: %s", strerror(errno));
		if (got > 0 && full)
			return fault_set(f, RC_CONFIG, "is longer than %zu bytes", size);
		if (got == 0)
			break;
		*n += got;
	}
	if (*n < (size_t)st->st_size)
		return fault_set(f, RC_CONFIG,
		    "ended after %zu of its %lld bytes: it is being changed, try again",
		    *n, (long long)st->st_size);
	return RC_OK;
}

/* ---- settings ---- */

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

/* Whole numbers and two units do: nobody waits 1h30m for a connection. */
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

/* ---- names of files that are read again ---- */

/* A process has one; it is written before there are threads, and stays. */
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

/* A value with a colon is a list, or names its kind before the file. */
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

/* ---- identity ---- */

void
identity_begin(struct identity *id, const char *backend)
{
	id->used = 0;
	id->one_lock = false;
	*id->text = *id->files = '\0';
	memset(id->view, 0, sizeof id->view);
	identity_add(id, "backend", backend);
}

static void
add_text(struct identity *id, const char *text, size_t n)
{
	if (id->used + n >= sizeof id->text) {
		id->used = sizeof id->text;
		return;
	}
	memcpy(id->text + id->used, text, n);
	id->text[id->used += n] = '\0';
}

/* "NAME=LENGTH:VALUE\n": a value cannot be taken for another part. */
static void
add_bytes(struct identity *id, const char *name, const char *value, size_t n)
{
	char length[24];

	text_put_number(length, length + sizeof length, n);
	add_text(id, name, strlen(name));
	add_text(id, "=", 1);
	add_text(id, length, strlen(length));
	add_text(id, ":", 1);
	add_text(id, value, n);
	add_text(id, "\n", 1);
}

void
identity_add(struct identity *id, const char *name, const char *value)
{
	if (value)
		add_bytes(id, name, value, strlen(value));
}

void
identity_number(struct identity *id, const char *name, unsigned long long value)
{
	char text[24];

	text_put_number(text, text + sizeof text, value);
	identity_add(id, name, text);
}

struct member {
	const char *at;
	size_t n;
};

static int
compare_members(const void *a, const void *b)
{
	const struct member *one = a, *other = b;
	size_t n = one->n < other->n ? one->n : other->n;
	int difference = memcmp(one->at, other->at, n);

	return difference ? difference : (one->n > other->n) - (one->n < other->n);
}

void
identity_list(struct identity *id, const char *name, const char *list, char separator)
{
	struct member members[64];
	const size_t most = sizeof members / sizeof *members;
	size_t n = 0;

	for (; n < most; list += members[n++].n + 1) {
		const char *end = strchrnul(list, separator);

		members[n] = (struct member){list, end - list};
		if (!*end) {
			n++;
			break;
		}
	}
	if (n == most)
		id->used = sizeof id->text; /* perhaps more: it equals nothing */
	qsort(members, n, sizeof *members, compare_members);
	for (size_t i = 0; i < n; i++)
		add_bytes(id, name, members[i].at, members[i].n);
}

/* ---- what names lead to ---- */

/* Where files are looked up from. */
static void
look_around(uint64_t view[4])
{
	struct stat ns, root;

	if (stat("/proc/self/ns/mnt", &ns) != 0 || stat("/", &root) != 0)
		return;
	view[0] = ns.st_dev;
	view[1] = ns.st_ino;
	view[2] = root.st_dev;
	view[3] = root.st_ino;
}

void
identity_file(struct identity *id, const char *path)
{
	char *at = id->files + strlen(id->files), *end = id->files + sizeof id->files;
	struct stat st = {.st_ino = 0};

	if (at == id->files)
		look_around(id->view);
	(void)stat(path, &st);
	at = text_put_number(at, end, st.st_dev);
	at = text_put_number(text_put(at, end, ":"), end, st.st_ino);
	text_put(at, end, ";");
}

void
identity_hosts(struct identity *id, const char *hosts)
{
	const char *end;

	for (; *hosts; hosts = *end ? end + 1 : end) {
		size_t n = strcspn(hosts, ","), digits = strspn(hosts, "0123456789.:[]");
		const char *colon = memchr(hosts, ':', n);

		end = hosts + n;
		/* an address of IPv6 has two colons */
		if (digits >= n || (colon && memchr(colon + 1, ':', end - colon - 1)))
			continue;
		identity_file(id, "/etc/hosts");
		return;
	}
}

bool
identity_is_same(const struct identity *a, const struct identity *b)
{
	bool seen_alike = a->view[1] && memcmp(a->view, b->view, sizeof a->view) == 0;

	return strncmp(a->text, b->text, sizeof a->text) == 0 &&
	    (!*a->files || seen_alike ||
		strncmp(a->files, b->files, sizeof a->files) == 0);
}

bool
identity_is_whole(const struct identity *id)
{
	return id->used > 0 && id->used < sizeof id->text;
}
