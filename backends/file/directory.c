/* directory.c - finds the directory of the lock files, and trusts it or not. */
#include "directory.h"

#include "line.h"

#include "backends/common/append.h"
#include "backends/common/encode.h"
#include "backends/common/libc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	DEFAULTS = 2,      /* paths for a default directory */
	STALE = 24 * 3600, /* s, when a file is touched: who cleans /tmp waits ten days */
};

enum rc
directory_failed(const struct directory *d, const char *what, struct fault *fault)
{
	enum rc rc = errno == EACCES || errno == EPERM ? RC_DENIED : RC_SYSTEM;

	return fault_set(fault, rc, "%s: %s: %s", d->where, what, strerror(errno));
}

static void
name_for_people(struct directory *d)
{
	char *at = append_text(d->where, d->where + sizeof d->where, "directory ");

	append_text(at, at + 301, d->path);
}

/* ---- the default one ---- */

/*
 * The same for cron and for a login, whatever the environment; nothing removes
 * it at a log-out.  At the first path nobody else can squat (root), or nothing
 * cleans up (users); where it is not to be had, such as in a container, /tmp.
 */
static void
default_path(char out[DEFAULT_BYTES], int which)
{
	const char *end = out + DEFAULT_BYTES;
	uid_t uid = libc_user();

	if (which == 0 && uid == 0) {
		append_text(out, end, "/run/dlock");
		return;
	}
	out = append_text(out, end, which == 0 ? "/run/lock" : "/tmp");
	append_number(append_text(out, end, "/dlock-"), end, uid);
}

/* The directory in file:[//[localhost]]/DIR, as it is written there; NULL: it is no such URL. */
static const char *
url_path(const char *url)
{
	const char *path = strchr(url, ':');

	path = path ? path + 1 : "";
	if (strncmp(path, "//localhost/", 12) == 0)
		path += strlen("//localhost");
	else if (strncmp(path, "//", 2) == 0)
		path += strlen("//");
	return *path == '/' ? path : NULL;
}

enum rc
directory_init(struct directory *d, const char *url, struct fault *fault)
{
	const char *path = url ? url_path(url) : NULL;

	d->is_default = !url;
	d->fd = -1;
	if (url && !path)
		return fault_set(fault, RC_USAGE,
		    "the URL of a directory is written file:///DIR, with three slashes");
	if (!url)
		default_path(d->path, 0);
	else if (encode_undo(d->path, sizeof d->path, path, strlen(path)) < 0)
		return fault_set(fault, RC_USAGE,
		    "the directory in the URL is too long, or has a wrong %%XX");
	name_for_people(d);
	return RC_OK;
}

/*
 * Where it could not be opened: makes it, unless something is there or it is not to be made.
 * RC_AGAIN with errno: it cannot be there, today or tomorrow.  Only the directory above
 * decides that: were it said of what is found there, somebody else could lead one run to the
 * next path and not another.
 */
static enum rc
make_default(const struct directory *d, enum directory_use use, struct fault *fault)
{
	char above[DEFAULT_BYTES];

	if (use != DIRECTORY_MAKE && errno != ENOENT)
		return RC_OK;
	if (use != DIRECTORY_MAKE) {
		snprintf(above, sizeof above, "%.*s",
		    (int)(strrchr(d->path, '/') - d->path), d->path);
		return faccessat(AT_FDCWD, above, W_OK | X_OK, AT_EACCESS) != 0
		    ? RC_AGAIN
		    : fault_set(fault, RC_LOST, "%s: it has not been made yet", d->where);
	}
	if (mkdir(d->path, 0700) == 0) {
		/* whatever the umask says; nobody else can have replaced it */
		chmod(d->path, 0700);
		return RC_OK;
	}
	if (errno == EEXIST)
		return RC_OK;
	if (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT ||
	    errno == ENOTDIR || errno == ELOOP)
		return RC_AGAIN;
	return directory_failed(d, "cannot make the directory", fault);
}

static enum rc
open_own(
    struct directory *d, enum directory_use use, struct stat *st, struct fault *fault)
{
	int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, error;
	enum rc rc;

	d->fd = open(d->path, flags);
	if (d->fd < 0) {
		rc = make_default(d, use, fault);
		if (rc != RC_OK)
			return rc;
		d->fd = open(d->path, flags);
	}
	error = errno;
	if ((d->fd >= 0
		    ? libc_stat_of(d->fd, st)
		    : libc_stat_at(AT_FDCWD, d->path, st, AT_SYMLINK_NOFOLLOW)) == 0 &&
	    (!S_ISDIR(st->st_mode) || st->st_uid != libc_user() || (st->st_mode & 022)))
		return fault_set(fault, RC_DENIED,
		    "%s: this is %s of uid %u with mode %03o, but must be a directory of uid %u with mode 700: "
		    "have it removed, or name another directory with -u file:///DIR",
		    d->where,
		    S_ISLNK(st->st_mode)       ? "a symbolic link"
			: S_ISDIR(st->st_mode) ? "a directory"
					       : "no directory",
		    (unsigned)st->st_uid, st->st_mode & 07777, (unsigned)libc_user());
	errno = error;
	return d->fd >= 0 ? RC_OK
			  : directory_failed(d, "cannot open the directory", fault);
}

static enum rc
open_default(
    struct directory *d, enum directory_use use, struct stat *st, struct fault *fault)
{
	for (int i = 0; i < DEFAULTS; i++) {
		enum rc rc;

		default_path(d->path, i);
		name_for_people(d);
		rc = open_own(d, use, st, fault);
		if (rc != RC_AGAIN)
			return rc;
	}
	if (use != DIRECTORY_MAKE)
		return fault_set(fault, RC_LOST, "%s: it is not there", d->where);
	return fault_set(fault, RC_DENIED,
	    "%s: cannot make this directory, nor another default one (%s): name a directory with -u file:///DIR",
	    d->where, strerror(errno));
}

int
directory_other(const struct directory *d, char path[DEFAULT_BYTES])
{
	struct stat st;
	int dir;

	if (!d->is_default)
		return -1;
	default_path(path, DEFAULTS - 1);
	if (strcmp(path, d->path) == 0)
		return -1;
	dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0 && libc_stat_of(dir, &st) == 0 && st.st_uid == libc_user() &&
	    (st.st_ino != d->ino || st.st_dev != d->dev))
		return dir;
	if (dir >= 0)
		close(dir);
	return -1;
}

void
directory_notice_elsewhere(
    const struct directory *d, const char *name, const char *key, struct fault *notice)
{
	char other[DEFAULT_BYTES];
	int dir = directory_other(d, other), fd;

	if (dir < 0)
		return;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0 && line_is_used(fd))
		fault_set(notice, RC_OK,
		    "%.100s is also locked in %s, another default directory of this user: that run and this one, in "
		    "%.150s, do not exclude each other",
		    key, other, d->path);
	if (fd >= 0)
		close(fd);
	close(dir);
}

/* ---- any directory ---- */

/* In a directory open to all, others make files whom its owner has not chosen. */
static bool
is_trusted(const struct directory *d, uid_t uid)
{
	return !(d->mode & S_IWOTH) || uid == libc_user() || uid == 0 || uid == d->owner;
}

/*
 * Checks that not just anybody can take away or replace what lies in the directory.  Its owner and a
 * group that may write are trusted.
 */
static enum rc
check_directory(const struct directory *d, const struct stat *st, struct fault *fault)
{
	if ((st->st_mode & S_IWOTH) && !(st->st_mode & S_ISVTX))
		return fault_set(fault, RC_DENIED,
		    "%s: everybody may delete files in it: chmod +t it, or name another directory",
		    d->where);
	if ((st->st_mode & S_IWOTH) && st->st_uid != libc_user() && st->st_uid != 0)
		return fault_set(fault, RC_DENIED,
		    "%s: everybody may write in it, and it belongs to uid %u: name another directory",
		    d->where, (unsigned)st->st_uid);
	return RC_OK;
}

static enum rc
open_named(struct directory *d, struct stat *st, struct fault *fault)
{
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->fd < 0 && errno == ENOENT)
		return fault_set(fault, RC_CONFIG,
		    "%s: there is no such directory: mkdir it first", d->where);
	if (d->fd < 0 && errno == ENOTDIR)
		return fault_set(
		    fault, RC_CONFIG, "%s: this is not a directory", d->where);
	if (d->fd < 0 || libc_stat_of(d->fd, st) != 0)
		return directory_failed(d, "cannot open the directory", fault);
	return check_directory(d, st, fault);
}

enum rc
directory_open(struct directory *d, enum directory_use use, struct fault *fault)
{
	struct stat st = {0};
	enum rc rc;

	directory_close(d);
	rc = d->is_default ? open_default(d, use, &st, fault) : open_named(d, &st, fault);
	if (rc != RC_OK)
		return rc;
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	d->owner = st.st_uid;
	d->mode = st.st_mode;
	return RC_OK;
}

void
directory_close(struct directory *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
}

/* ---- files in it ---- */

/* Whoever may write in the directory may use what we make in it: wait there, or come in. */
static mode_t
mode_for(const struct directory *d, bool is_step)
{
	mode_t group = is_step ? 0070 : 0060, world = is_step ? 01077 : 0066,
	       own = is_step ? (d->mode & 02000) | 0700 : 0600;

	return own | (d->mode & 0020 ? group : 0) | (d->mode & 0002 ? world : 0);
}

/*
 * Makes a file, or a directory, and returns as openat() or mkdirat().  It has its rights from
 * the first moment on, whatever the umask says: another user may open it before
 * hand_over(), and we may be killed.
 */
static int
make_entry(const struct directory *d, int at, const char *name, bool is_step)
{
	mode_t mode = mode_for(d, is_step), old = umask(0);
	int made = is_step
	    ? mkdirat(at, name, mode)
	    : openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	umask(old);
	return made;
}

/*
 * Gives an entry what its making could not: all its rights, since an access list may withhold
 * some; and the directory's owner, since what root makes in a user's directory is for him to use.
 */
static void
hand_over(const struct directory *d, int fd, bool is_step)
{
	fchmod(fd, mode_for(d, is_step));
	if (libc_user() == 0 && d->owner != 0 && fchown(fd, d->owner, (gid_t)-1) != 0)
		return; /* a file system without owners */
}

static enum rc
refuse_missing(const struct directory *d, const char *name, struct fault *fault)
{
	return fault_set(fault, RC_LOST, "%s: there is no %.60s", d->where, name);
}

/* Opens the directory `step` in `at`, or perhaps makes it, if it is to be trusted. */
static enum rc
enter_step(const struct directory *d, int at, const char *step, enum directory_use use,
    int *ret, struct fault *fault)
{
	bool make = use == DIRECTORY_MAKE,
	     made = make && make_entry(d, at, step, true) == 0;
	int fd = !make || made || errno == EEXIST
	    ? openat(at, step, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
	    : -1;
	struct stat st;
	enum rc rc;

	if (made && fd >= 0)
		hand_over(d, fd, true);
	if (fd < 0 && errno == ENOENT && !make)
		return refuse_missing(d, step, fault);
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return fault_set(fault, RC_DENIED,
		    "%s: %.40s... in it is not a directory: somebody put it there",
		    d->where, step);
	if (fd < 0)
		return directory_failed(
		    d, "cannot make or open a directory in it", fault);
	if (libc_stat_of(fd, &st) != 0)
		rc = directory_failed(d, "cannot look at a directory in it", fault);
	else if (!is_trusted(d, st.st_uid))
		rc = fault_set(fault, RC_DENIED,
		    "%s: the directory %.40s... in it belongs to uid %u, who is not trusted there",
		    d->where, step, (unsigned)st.st_uid);
	else
		rc = check_directory(d, &st, fault);
	if (rc == RC_OK)
		*ret = fd;
	else
		close(fd);
	return rc;
}

void
directory_close_steps(const struct directory *d, int at)
{
	if (at != d->fd)
		close(at);
}

enum rc
directory_open_steps(const struct directory *d, const char *name, enum directory_use use,
    int *ret, const char **leaf, struct fault *fault)
{
	char step[NAME_MAX + 1];
	int at = d->fd, next = -1;

	for (const char *slash; (slash = strchr(name, '/')); name = slash + 1) {
		enum rc rc;

		snprintf(step, sizeof step, "%.*s", (int)(slash - name), name);
		rc = enter_step(d, at, step, use, &next, fault);
		directory_close_steps(d, at);
		if (rc != RC_OK)
			return rc;
		at = next;
	}
	*ret = at;
	*leaf = name;
	return RC_OK;
}

enum rc
directory_list(
    const struct directory *d, const char *name, DIR **ret, struct fault *fault)
{
	const char *behind;
	int at, fd;
	enum rc rc = directory_open_steps(d, name, DIRECTORY_LOOK, &at, &behind, fault);

	if (rc != RC_OK)
		return rc;
	fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*ret = fd >= 0 ? fdopendir(fd) : NULL;
	if (!*ret)
		rc = directory_failed(d, "cannot list the directory", fault);
	if (!*ret && fd >= 0)
		close(fd);
	directory_close_steps(d, at);
	return rc;
}

static enum rc
check_plain(const struct directory *d, const char *leaf, const struct stat *st,
    struct fault *fault)
{
	if (!S_ISREG(st->st_mode) || st->st_nlink > 1)
		return fault_set(fault, RC_DENIED,
		    "%s: %s is not a plain file with one name: somebody put it there",
		    d->where, leaf);
	if (!is_trusted(d, st->st_uid))
		return fault_set(fault, RC_DENIED,
		    "%s: %s belongs to uid %u, who is not trusted in a directory open to all",
		    d->where, leaf, (unsigned)st->st_uid);
	return RC_OK;
}

enum { PLAIN = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };

/* A look leaves no trace, not even in the time of the last access, where that is allowed. */
static int
open_file(int at, const char *leaf, enum directory_use use)
{
	int fd;

	if (use != DIRECTORY_LOOK)
		return openat(at, leaf, O_RDWR | PLAIN);
	fd = openat(at, leaf, O_RDONLY | O_NOATIME | PLAIN);
	return fd < 0 && errno == EPERM ? openat(at, leaf, O_RDONLY | PLAIN) : fd;
}

/* An open descriptor; -1 with errno. */
static int
open_or_make_file(const struct directory *d, int at, const char *leaf)
{
	int fd;

	do {
		fd = openat(at, leaf, O_RDWR | PLAIN);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		fd = make_entry(d, at, leaf, false);
		if (fd >= 0)
			hand_over(d, fd, false);
	} while (fd < 0 && errno == EEXIST);
	return fd;
}

/*
 * Looks at a file that is there already before it is opened: of what is not ours, such as a FIFO,
 * the opening alone may do something.
 */
static enum rc
check_leaf(const struct directory *d, int at, const char *leaf, struct fault *fault)
{
	struct stat st;

	if (libc_stat_at(at, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return check_plain(d, leaf, &st, fault);
	return errno == ENOENT ? refuse_missing(d, leaf, fault)
			       : directory_failed(d, "cannot look at a file", fault);
}

static enum rc
open_leaf(const struct directory *d, int at, const char *leaf, enum directory_use use,
    int *ret, struct fault *fault)
{
	bool make = use == DIRECTORY_MAKE;
	enum rc rc = make ? RC_OK : check_leaf(d, at, leaf, fault);
	struct stat st;
	int fd;

	if (rc != RC_OK)
		return rc;
	fd = make ? open_or_make_file(d, at, leaf) : open_file(at, leaf, use);
	if (fd < 0 && !make && errno == ENOENT)
		return refuse_missing(d, leaf, fault);
	if (fd < 0 && (errno == ELOOP || errno == ENXIO || errno == EISDIR))
		return fault_set(fault, RC_DENIED,
		    "%s: %s is not a plain file: somebody put it there", d->where, leaf);
	if (fd < 0)
		return directory_failed(d, "cannot open the lock file", fault);
	rc = libc_stat_of(fd, &st) == 0
	    ? check_plain(d, leaf, &st, fault)
	    : directory_failed(d, "cannot look at the lock file", fault);
	if (rc == RC_OK)
		*ret = fd;
	else
		close(fd);
	return rc;
}

enum rc
directory_open_file(const struct directory *d, const char *name, enum directory_use use,
    int *fd, struct fault *fault)
{
	const char *leaf;
	int at;
	enum rc rc = directory_open_steps(d, name, use, &at, &leaf, fault);

	if (rc != RC_OK)
		return rc;
	rc = open_leaf(d, at, leaf, use, fd, fault);
	directory_close_steps(d, at);
	return rc;
}

enum rc
directory_look(const struct directory *d, const char *name, int fd, struct fault *fault)
{
	struct stat dir, opened, named;

	if (stat(d->path, &dir) != 0 || fstat(fd, &opened) != 0 ||
	    fstatat(d->fd, name, &named, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return fault_set(fault, RC_AGAIN, "%s: cannot look at %.60s: %s",
			    d->where, name, strerror(errno));
	} else if (dir.st_ino == d->ino && dir.st_dev == d->dev &&
	    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
		if (opened.st_mtime < time(NULL) - STALE)
			futimens(fd, NULL);
		return RC_OK;
	}
	return fault_set(fault, RC_LOST,
	    "%s: the lock file %.60s was removed or replaced", d->where, name);
}
