/*
 * file.c - locks of one host, kept by the kernel in files of one directory.
 *
 *  1. A key is one file.  Processes stand in line on it by tickets: ticket N is
 *     an exclusive lock on byte N (fcntl(2) F_OFD_SETLK, which belongs to the
 *     open file, so that a copy of the descriptor in the front keeps it, and
 *     the death of the last one frees it at once).
 *  2. Tickets are dealt upwards under a lock on byte 0, each above every ticket
 *     that is alive: what the file says of the next one is a hint, since a file
 *     can be truncated and a disk be full.  Who sees no lower ticket alive is
 *     the holder: since no lower one can appear, looking once is enough.
 *  3. Who is not first waits for the nearest lower ticket alive, and for that
 *     one only: a release wakes one process.  fcntl cannot wait in poll, so a
 *     thread waits; it is abandoned, not cancelled, when waiting ends early
 *     (what it may still get is a read lock on a dead ticket, or dies with us).
 *  4. The file says in its first line "dlock1 NEXT TOKEN GRANTED": the next
 *     ticket, the last token, when it was granted (microseconds since the
 *     epoch); in its second the holder's record.  It is written with byte 0
 *     locked, in one write of FILE_BYTES.  Token = max(previous + 1,
 *     microseconds since the epoch): it grows even if the file was deleted.
 *  5. The file is never deleted.  Should somebody else do it, a lock on the
 *     orphan excludes nobody: each decision MUST be followed by a look whether
 *     the name still leads to our file; a holder that finds it does not has lost.
 *  6. The lease is LEASE_FOREVER: the kernel takes it back when we die.
 *
 * In a directory that others may write, files are opened without following
 * links, must be plain, with one name, and (if the world may write) owned by
 * us, root, or the directory's owner.
 */
#include "backend.h"
#include "encode.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	FILE_BYTES = 1280,
	NAME_CHUNK = 200, /* of an encoded key in one directory entry (NAME_MAX is 255) */
	META = 0,	  /* the byte that guards the first line; tickets begin at 1 */
};

struct file {
	struct lock base;
	const struct want *want;
	char where[WHERE_BYTES];
	char dir[PATH_MAX];
	bool ours;		    /* the default directory, which we make */
	char name[ENCODED_BYTES];   /* the key, encoded */
	char leaf[NAME_CHUNK + 16]; /* the file's name in dirfd */
	int dirfd, fd;		    /* -1: not open */
	dev_t dev;		    /* which directory it was that we opened */
	ino_t ino;
	mode_t mode;		    /* of new files */
	int64_t ticket;		    /* 0: none */
	bool holds;
};

/* The first line, and the record after it. */
struct header {
	int64_t next, token, granted;
	char record[RECORD_BYTES];
};

const struct backend file_backend;

static struct file *
file_of(struct lock *l)
{
	return (struct file *)l;
}

static enum rc
failed(struct file *f, const char *what, struct fault *fault)
{
	enum rc rc = errno == EACCES || errno == EPERM ? RC_DENIED : RC_SYSTEM;

	return fault_set(fault, rc, "%s: %s: %s", f->where, what, strerror(errno));
}

/* The wall clock in microseconds: what tokens and `granted` are made of. */
static int64_t
epoch_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

/* ---- byte locks ---- */

static int
lock_bytes(int fd, int command, short type, int64_t start, int64_t length)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
	int result;

	do
		result = fcntl(fd, command, &l);
	while (result < 0 && errno == EINTR);
	return result;
}

static void
unlock_byte(struct file *f, int64_t byte)
{
	lock_bytes(f->fd, F_OFD_SETLK, F_UNLCK, byte, 1);
}

/*
 * The first byte locked by another in [from, to), or 0; *end is the byte behind
 * that lock.  Who cannot look must take it that somebody is there.
 */
static int64_t
ticket_alive(struct file *f, int64_t from, int64_t to, int64_t *end)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = to - from};

	if (from >= to)
		return 0;
	*end = to;
	if (fcntl(f->fd, F_OFD_GETLK, &l) != 0)
		return from;
	if (l.l_type == F_UNLCK)
		return 0;
	if (l.l_len > 0 && l.l_start + l.l_len < to)
		*end = l.l_start + l.l_len;
	return l.l_start < from ? from : l.l_start;
}

/* The highest ticket alive below `limit`, or 0.  (Our own is never seen.) */
static int64_t
highest_alive(struct file *f, int64_t limit)
{
	int64_t end = 1, highest = 0;

	while (ticket_alive(f, end, limit, &end))
		highest = end - 1;
	return highest;
}

/* How many tickets are alive in [from, to). */
static unsigned
count_alive(struct file *f, int64_t from, int64_t to)
{
	int64_t end, found = ticket_alive(f, from, to, &end);

	return found ? 1 + count_alive(f, from, found) + count_alive(f, end, to) : 0;
}

/* What the waiting thread is given; it frees it, for it may outlive our interest. */
struct errand {
	int fd, done; /* done: an eventfd of its own */
	short type;
	int64_t byte;
};

static void *
wait_in_kernel(void *arg)
{
	struct errand *e = arg;
	uint64_t one = 1;

	lock_bytes(e->fd, F_OFD_SETLKW, e->type, e->byte, 1);
	if (write(e->done, &one, sizeof one) < 0)
		abort(); /* an eventfd of ours takes any number */
	close(e->done);
	free(e);
	return NULL;
}

/* Sends a thread to wait for the byte; the descriptor returned becomes readable when it is done. */
static int
send_errand(struct file *f, short type, int64_t byte)
{
	struct errand *e = malloc(sizeof *e);
	pthread_attr_t small;
	pthread_t thread;
	int done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), error;

	if (!e || done < 0) {
		if (done >= 0)
			close(done);
		free(e);
		return -1;
	}
	*e = (struct errand){.fd = f->fd, .done = fcntl(done, F_DUPFD_CLOEXEC, 3), .type = type, .byte = byte};
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	error = e->done < 0 ? EMFILE : pthread_create(&thread, &small, wait_in_kernel, e);
	pthread_attr_destroy(&small);
	if (error == 0)
		return done;
	if (e->done >= 0)
		close(e->done);
	free(e);
	close(done);
	errno = error;
	return -1;
}

/* Locks one byte, waiting for it inside host->wait; whatever the thread says, we look ourselves. */
static enum rc
await_byte(struct file *f, short type, int64_t byte, instant until, struct fault *fault)
{
	while (lock_bytes(f->fd, F_OFD_SETLK, type, byte, 1) != 0) {
		enum woke woke;
		int done;

		if (errno != EAGAIN && errno != EACCES)
			return fault_set(fault, RC_CONFIG, "%s: its file system cannot lock: %s", f->where, strerror(errno));
		done = send_errand(f, type, byte);
		if (done < 0)
			return failed(f, "cannot start a thread", fault);
		woke = f->base.host->wait(f->base.host, done, POLLIN, until);
		close(done);
		if (woke == WOKE_TIMEOUT)
			return fault_set(fault, RC_BUSY, "%s: still held", f->where);
		if (woke == WOKE_STOP)
			return RC_STOP;
	}
	return RC_OK;
}

/* ---- the file ---- */

static enum rc
header_write(struct file *f, const struct header *h, struct fault *fault)
{
	char block[FILE_BYTES];
	int n;

	memset(block, '\n', sizeof block);
	n = snprintf(block, sizeof block, "dlock1 %" PRId64 " %" PRId64 " %" PRId64 "\n%s", h->next, h->token,
	    h->granted, h->record);
	block[n] = '\n';
	errno = ENOSPC; /* what a short write means */
	return pwrite(f->fd, block, sizeof block, 0) == sizeof block ? RC_OK : failed(f, "cannot write the lock file", fault);
}

/* A number and the one character behind it; moves *s past both. */
static bool
take_number(char **s, char end, int64_t *ret)
{
	char *stop;

	*ret = **s >= '0' && **s <= '9' ? strtoll(*s, &stop, 10) : -1;
	if (*ret < 0 || *ret > INT64_MAX / 2 || *stop != end)
		return false;
	*s = stop + 1;
	return true;
}

/* False: the file is not one of ours. */
static bool
header_read(struct file *f, struct header *h)
{
	char block[FILE_BYTES + 1], *s = block + strlen("dlock1 ");
	ssize_t n = pread(f->fd, block, FILE_BYTES, 0);

	*h = (struct header){.next = 1};
	if (n == 0)
		return true;
	if (n < 0)
		return false;
	block[n] = '\0';
	if (strncmp(block, "dlock1 ", s - block) != 0 || !take_number(&s, ' ', &h->next) ||
	    !take_number(&s, ' ', &h->token) || !take_number(&s, '\n', &h->granted) || h->next < 1)
		return false;
	s[strcspn(s, "\n")] = '\0';
	snprintf(h->record, sizeof h->record, "%s", s);
	return true;
}

/*
 * Do the names of directory and file still lead to what we have open?  RC_LOST:
 * no, so that others lock something else.  RC_AGAIN: it cannot be seen now.
 */
static enum rc
look_in_place(struct file *f, struct fault *fault)
{
	struct stat dir, opened, named;

	if (stat(f->dir, &dir) != 0 || fstat(f->fd, &opened) != 0 ||
	    fstatat(f->dirfd, f->leaf, &named, AT_SYMLINK_NOFOLLOW) != 0) {
		if (errno != ENOENT)
			return fault_set(fault, RC_AGAIN, "%s: cannot look at %s: %s", f->where, f->leaf, strerror(errno));
	} else if (dir.st_ino == f->ino && dir.st_dev == f->dev && opened.st_ino == named.st_ino &&
	    opened.st_dev == named.st_dev) {
		return RC_OK;
	}
	return fault_set(fault, RC_LOST, "%s: the lock file %s was removed or replaced", f->where, f->leaf);
}

/* What we must know of a directory before we trust what is in it. */
static enum rc
check_directory(struct file *f, const struct stat *st, struct fault *fault)
{
	bool trusted = st->st_uid == geteuid() || st->st_uid == 0;

	if (f->ours && (st->st_uid != geteuid() || (st->st_mode & 022)))
		return fault_set(fault, RC_DENIED,
		    "%s: %s is not ours alone (owner uid %u, mode %03o): remove it, or name another with -u file:///DIR",
		    f->where, f->dir, (unsigned)st->st_uid, st->st_mode & 07777);
	if ((st->st_mode & S_IWOTH) && !(st->st_mode & S_ISVTX))
		return fault_set(fault, RC_DENIED,
		    "%s: everybody may delete files in %s: chmod +t it, or name another directory", f->where, f->dir);
	if (!trusted && (st->st_mode & S_IWOTH))
		return fault_set(fault, RC_DENIED, "%s: %s belongs to uid %u and everybody may write it", f->where,
		    f->dir, (unsigned)st->st_uid);
	return RC_OK;
}

static enum rc
open_directory(struct file *f, struct fault *fault)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (f->ours ? O_NOFOLLOW : 0);
	struct stat st;
	enum rc rc;

	if (f->dirfd >= 0)
		close(f->dirfd);
	f->dirfd = open(f->dir, flags);
	if (f->dirfd < 0 && errno == ENOENT && f->ours) {
		if (mkdir(f->dir, 0700) != 0 && errno != EEXIST)
			return failed(f, "cannot make the directory", fault);
		f->dirfd = open(f->dir, flags);
	}
	if (f->dirfd < 0 && !f->ours && errno == ENOENT)
		return fault_set(fault, RC_CONFIG, "%s: there is no such directory: mkdir it first", f->where);
	if (f->dirfd < 0 && errno == ENOTDIR)
		return fault_set(fault, RC_CONFIG, "%s: this is not a directory", f->where);
	if (f->dirfd < 0 || fstat(f->dirfd, &st) != 0)
		return failed(f, "cannot open the directory", fault);
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	rc = check_directory(f, &st, fault);
	f->mode = 0600 | (st.st_mode & 0020 ? 0060 : 0) | (st.st_mode & 0002 ? 0066 : 0);
	return rc;
}

/* A key too long for one name goes into directories "CHUNK+" ('+' is in no encoded key). */
static enum rc
descend(struct file *f, struct fault *fault)
{
	const char *rest = f->name;

	for (; strlen(rest) > NAME_CHUNK; rest += NAME_CHUNK) {
		char step[NAME_CHUNK + 2];
		int next;

		snprintf(step, sizeof step, "%.*s+", NAME_CHUNK, rest);
		if (mkdirat(f->dirfd, step, f->mode | 0100 | (f->mode & 0020 ? 0010 : 0) | (f->mode & 0002 ? 01001 : 0)) != 0 &&
		    errno != EEXIST)
			return failed(f, "cannot make a directory for this long key", fault);
		next = openat(f->dirfd, step, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return failed(f, "cannot open the directory of this long key", fault);
		close(f->dirfd);
		f->dirfd = next;
	}
	snprintf(f->leaf, sizeof f->leaf, "%.*s.lock", NAME_CHUNK, rest);
	return RC_OK;
}

static enum rc
check_file(struct file *f, struct fault *fault)
{
	struct stat st, dir;

	if (fstat(f->fd, &st) != 0 || fstat(f->dirfd, &dir) != 0)
		return failed(f, "cannot look at the lock file", fault);
	if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
		return fault_set(fault, RC_DENIED, "%s: %s is not a plain file with one name: somebody put it there",
		    f->where, f->leaf);
	if ((dir.st_mode & S_IWOTH) && st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != dir.st_uid)
		return fault_set(fault, RC_DENIED, "%s: %s belongs to uid %u, who is not trusted in a directory open to all",
		    f->where, f->leaf, (unsigned)st.st_uid);
	return RC_OK;
}

static enum rc
open_file(struct file *f, struct fault *fault)
{
	if (f->fd >= 0)
		close(f->fd);
	do {
		f->fd = openat(f->dirfd, f->leaf, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (f->fd >= 0 || errno != ENOENT)
			break;
		f->fd = openat(f->dirfd, f->leaf, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, f->mode);
		if (f->fd >= 0)
			fchmod(f->fd, f->mode); /* whatever the umask says: others must be able to wait */
	} while (f->fd < 0 && errno == EEXIST);
	if (f->fd < 0 && (errno == ELOOP || errno == ENXIO || errno == EISDIR))
		return fault_set(fault, RC_DENIED, "%s: %s is not a plain file: somebody put it there", f->where, f->leaf);
	if (f->fd < 0)
		return failed(f, "cannot open the lock file", fault);
	return check_file(f, fault);
}

/* Directory and file, from the names. */
static enum rc
open_all(struct file *f, struct fault *fault)
{
	enum rc rc = open_directory(f, fault);

	if (rc == RC_OK)
		rc = descend(f, fault);
	return rc == RC_OK ? open_file(f, fault) : rc;
}

/*
 * Locks byte 0 of the file that the name leads to and reads its first line.
 * RC_LOST: it was replaced meanwhile (and is open anew): whatever was ours is void.
 */
static enum rc
enter(struct file *f, struct header *h, instant until, struct fault *fault)
{
	enum rc rc = await_byte(f, F_WRLCK, META, until, fault);

	if (rc != RC_OK)
		return rc;
	rc = look_in_place(f, fault);
	if (rc == RC_LOST) {
		rc = open_all(f, fault);
		return rc == RC_OK ? RC_LOST : rc;
	}
	if (rc != RC_OK)
		return rc;
	if (!header_read(f, h))
		return fault_set(fault, RC_PROTOCOL, "%s: %s is not a lock file of dlock: remove it if nobody needs it",
		    f->where, f->leaf);
	return RC_OK;
}

/* ---- the calls ---- */

/* The host and the directory of file://[localhost]/DIR. */
static enum rc
read_url(struct file *f, const char *url, struct fault *fault)
{
	const char *path = url + strlen("file:");

	if (strncmp(path, "//", 2) == 0)
		path += 2;
	if (strncmp(path, "localhost/", 10) == 0)
		path += 9;
	if (*path != '/')
		return fault_set(fault, RC_USAGE, "the URL of a directory is written file:///DIR, with three slashes");
	if (percent_decode(f->dir, sizeof f->dir, path, strlen(path)) < 0)
		return fault_set(fault, RC_USAGE, "the directory in the URL is too long, or has a wrong %%XX");
	return RC_OK;
}

static void
default_directory(struct file *f)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	f->ours = true;
	if (geteuid() == 0)
		snprintf(f->dir, sizeof f->dir, "/run/lock/dlock");
	else if (runtime && *runtime == '/' && strlen(runtime) < PATH_MAX - 16)
		snprintf(f->dir, sizeof f->dir, "%s/dlock", runtime);
	else
		snprintf(f->dir, sizeof f->dir, "/tmp/dlock-%u", (unsigned)geteuid());
}

static enum rc
file_open(struct lock **ret, struct host *host, const struct want *want, struct fault *fault)
{
	struct file *f = calloc(1, sizeof *f);
	enum rc rc = RC_OK;

	if (!f)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	f->base = (struct lock){.ops = &file_backend, .host = host, .where = f->where};
	f->want = want;
	f->dirfd = f->fd = -1;
	if (want->nsettings > 0)
		rc = fault_set(fault, RC_USAGE, "the file backend has no setting '%s'", want->settings[0].name);
	else if (want->url)
		rc = read_url(f, want->url, fault);
	else
		default_directory(f);
	if (rc != RC_OK) {
		free(f);
		return rc;
	}
	key_encode(f->name, sizeof f->name, want->keys[0]);
	snprintf(f->where, sizeof f->where, "directory %.300s", f->dir);
	*ret = &f->base;
	return RC_OK;
}

static void
show_queue(struct file *f, const struct header *h, int64_t ticket)
{
	f->base.host->seen.position = count_alive(f, 1, ticket);
	f->base.host->seen.held = h->granted ? (epoch_us() - h->granted) * 1000 : -1;
	snprintf(f->base.host->seen.holder, RECORD_BYTES, "%s", h->record);
}

/* With byte 0 locked and no lower ticket alive: writes down that the lock is ours. */
static enum rc
take(struct file *f, struct header *h, struct grant *g, struct fault *fault)
{
	int64_t now = epoch_us();
	enum rc rc;

	h->token = h->token + 1 > now ? h->token + 1 : now;
	h->granted = now;
	snprintf(h->record, sizeof h->record, "%s", f->want->record);
	rc = header_write(f, h, fault); /* a token that is not kept might be dealt again */
	if (rc != RC_OK)
		return rc;
	f->holds = true;
	*g = (struct grant){.tokens = {h->token}, .sent = instant_now(), .lease = LEASE_FOREVER, .anchor = f->fd};
	return RC_OK;
}

/* Draws a ticket, with byte 0 locked and `highest` the last one alive. */
static enum rc
draw_ticket(struct file *f, struct header *h, int64_t highest, struct fault *fault)
{
	f->ticket = h->next > highest ? h->next : highest + 1;
	h->next = f->ticket + 1;
	if (lock_bytes(f->fd, F_OFD_SETLK, F_WRLCK, f->ticket, 1) == 0)
		return RC_OK;
	f->ticket = 0;
	return failed(f, "cannot lock a ticket", fault);
}

/* Draws a ticket; RC_OK with f->holds if nobody is before us, RC_BUSY if we may not wait. */
static enum rc
stand_in_line(struct file *f, instant until, struct grant *g, struct fault *fault)
{
	struct header h;
	enum rc rc = enter(f, &h, until ? until : instant_now() + NS_PER_S, fault);
	int64_t highest;

	if (rc != RC_OK)
		return rc;
	highest = highest_alive(f, INT64_MAX);
	if (highest)
		show_queue(f, &h, INT64_MAX);
	if (highest && !until)
		rc = fault_set(fault, RC_BUSY, "%s: held", f->where);
	else
		rc = draw_ticket(f, &h, highest, fault);
	if (rc == RC_OK)
		rc = highest ? header_write(f, &h, fault) : take(f, &h, g, fault);
	unlock_byte(f, META);
	return rc;
}

/* Waits until every lower ticket is gone, then takes the lock. */
static enum rc
wait_in_line(struct file *f, instant until, struct grant *g, struct fault *fault)
{
	struct header h;
	int64_t before;
	enum rc rc;

	while ((before = highest_alive(f, f->ticket))) {
		rc = await_byte(f, F_RDLCK, before, until, fault);
		if (rc != RC_OK)
			return rc;
		unlock_byte(f, before);
		if (header_read(f, &h))
			show_queue(f, &h, f->ticket);
	}
	rc = enter(f, &h, until, fault);
	if (rc != RC_OK)
		return rc;
	rc = take(f, &h, g, fault);
	unlock_byte(f, META);
	return rc;
}

static enum rc
file_acquire(struct lock *l, instant until, struct grant *g, struct fault *fault)
{
	struct file *f = file_of(l);
	enum rc rc = open_all(f, fault);

	if (rc != RC_OK)
		return rc;
	do { /* once more for each time that the file is replaced under us */
		rc = stand_in_line(f, until, g, fault);
		if (rc == RC_OK && !f->holds)
			rc = wait_in_line(f, until, g, fault);
	} while (rc == RC_LOST);
	return rc;
}

static enum rc
file_renew(struct lock *l, instant until, struct grant *g, struct fault *fault)
{
	(void)until;
	g->sent = instant_now();
	g->lease = LEASE_FOREVER;
	return look_in_place(file_of(l), fault);
}

static enum rc
file_release(struct lock *l, instant until, struct fault *fault)
{
	struct file *f = file_of(l);
	enum rc rc = f->holds ? look_in_place(f, fault) : RC_OK;

	(void)until;
	if (f->ticket)
		unlock_byte(f, f->ticket);
	f->ticket = 0;
	f->holds = false;
	return rc;
}

static void
file_close(struct lock *l)
{
	struct file *f = file_of(l);

	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	if (f->dirfd >= 0)
		close(f->dirfd);
	free(f);
}

const struct backend file_backend = {
    .name = "file",
    .schemes = "file ",
    .settings = "",
    .url_help = "file:///DIR (default: a directory of this user; one host only)",
    .caps = CAP_FAIR,
    .open = file_open,
    .acquire = file_acquire,
    .renew = file_renew,
    .release = file_release,
    .close = file_close,
};
