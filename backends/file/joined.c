/*
 * joined.c - takes the very lock that another program takes: flock(2) or fcntl(2), on all of
 * a file that it names.
 *
 *  1. The file is only opened, or made empty as flock(1) does: what is in it is not ours.  So
 *     there is no record, no queue of our own, no memory of jobs, and no freeze.
 *  2. The lock is that of our open file.  So the front keeps it with its copy of the
 *     descriptor, as it keeps a lock of file.c.  The kernel takes an fcntl lock of an open
 *     file for one of another owner than any process's, so that each excludes the other.
 *  3. The kernel wakes waiters in its own way, of which a program that only tries now and
 *     then never has a chance.  So we wait in the kernel, too, in a thread (tickets.h).
 *  4. Programs may delete the file: with the lock ours we look whether the name leads to it,
 *     and begin anew if not; a holder that finds it does not has lost.
 *  5. Tokens are microseconds since the epoch, for want of a place to keep the last one.
 *  6. /proc/locks names the process that took each lock.  Where that one has ended, and where
 *     the lock is one of an open file (which names nobody), the processes are asked which of
 *     their descriptors has it; only root may ask those of other users.  The kernel tells
 *     nothing of what other machines and other pid namespaces have locked.
 */
#include "file.h"

#include "backends/common/libc.h"
#include "backends/common/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* How long who waits is shown the same holder, at first and at most. */
#define SHOWN_LEAST NS_PER_S
#define SHOWN_MOST (60 * NS_PER_S)

/* And how long the kernel is left alone that could not let us wait. */
#define PAUSE_LEAST (10 * NS_PER_MS)
#define PAUSE_MOST NS_PER_S

/*
 * How long names are looked for if the caller has as long, or does not wait at all: there may
 * be very many processes and descriptors, or the machine busy.
 */
#define NAMES_MOST NS_PER_S

enum { LOCKERS_MOST = 64, READINGS_MOST = 6 };

/* One lock; what is not known of its process is 0 or "". */
struct locker {
	bool waits, shared;
	pid_t pid;
	char user[24], command[16]; /* printable, and nothing that JSON would escape */
};

struct joined {
	struct store base;
	const char *path;
	bool by_flock;
	int fd; /* -1: not open */
	bool ours;
	bool writes; /* even for flock(2) it is to be open for writing */
	char where[WHERE_BYTES];
};

static const struct backend joined_backend;

static struct joined *
joined_of(struct store *s)
{
	return (struct joined *)store_of(s, &joined_backend);
}

/* ---- the file ---- */

static void
close_file(struct joined *j)
{
	if (j->fd >= 0)
		close(j->fd);
	j->fd = -1;
}

static enum rc
cannot(const struct joined *j, const char *what, struct fault *fault)
{
	return fault_set(fault, errno == EACCES || errno == EPERM ? RC_DENIED : RC_SYSTEM,
	    "%s: %s: %s", j->where, what, strerror(errno));
}

/*
 * fcntl(2) locks for writing only what is open for writing.  So does flock(2) where NFS makes
 * one of the other: that is found out when it is tried, as others need not let us write.
 * What is there is never opened with O_CREAT, which the kernel may refuse for a file of
 * another user's in /tmp.
 */
static enum rc
open_joined(struct joined *j, short type, struct fault *fault)
{
	int flags = O_NOCTTY | O_NONBLOCK | O_CLOEXEC |
	    (type == F_RDLCK || (j->by_flock && !j->writes) ? O_RDONLY : O_RDWR);

	close_file(j);
	j->fd = open(j->path, flags);
	if (j->fd < 0 && errno == ENOENT)
		j->fd = open(j->path, flags | O_CREAT, 0666);
	if (j->fd < 0 && errno == EACCES) { /* another user may have made it meanwhile */
		j->fd = open(j->path, flags);
		if (j->fd < 0 && errno == ENOENT) /* and deleted it again */
			errno = EACCES;
	}
	if (j->fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return fault_set(fault, RC_CONFIG,
		    "%s: there is no directory for it: mkdir it first", j->where);
	return j->fd < 0 ? cannot(j, "cannot open it", fault) : RC_OK;
}

/* RC_LOST: the name leads elsewhere, so that our lock is no longer that of the others. */
static enum rc
check_name(const struct joined *j, struct fault *fault)
{
	struct stat opened, named;

	if (fstat(j->fd, &opened) != 0 || stat(j->path, &named) != 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return fault_set(fault, RC_AGAIN, "%s: cannot look at it: %s",
			    j->where, strerror(errno));
	} else if (opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
		return RC_OK;
	}
	return fault_set(
	    fault, RC_LOST, "%s: the file was removed or replaced", j->where);
}

/* ---- who else ---- */

/* A file, which of the two kinds of locks on it is meant, and until when is looked. */
struct locked {
	const struct stat *st;
	bool by_flock;
	instant until;
};

/* "1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF"; false: it is of another file. */
static bool
parse_lock(const struct locked *file, const char *line, struct locker *l)
{
	const char *kinds = file->by_flock ? "FLOCK" : "POSIX OFDLCK";
	char kind[16], mode[16];
	unsigned major, minor;
	unsigned long long inode;
	int pid;

	line += strcspn(line, ":");
	line += strspn(line, ": ");
	*l = (struct locker){.waits = strncmp(line, "->", 2) == 0};
	line += l->waits ? 2 : 0;
	if (sscanf(line, " %15s %*s %15s %d %x:%x:%llu", kind, mode, &pid, &major, &minor,
		&inode) != 6)
		return false;
	l->shared = strcmp(mode, "READ") == 0;
	l->pid = pid;
	return strstr(kinds, kind) && inode == file->st->st_ino &&
	    major == major(file->st->st_dev) && minor == minor(file->st->st_dev);
}

/* All locks in a text of /proc; 0: none that `taker` has taken, any (0) or this one; -1: no text. */
static int
read_proc_text(const struct locked *file, const char *path, const char *before,
    pid_t taker, struct locker *found, size_t *n)
{
	FILE *text = fopen(path, "re");
	char line[256];
	bool any = false;
	struct locker l;

	while (text && fgets(line, sizeof line, text)) {
		size_t skip = strlen(before);

		if (strncmp(line, before, skip) != 0 ||
		    !parse_lock(file, line + skip, &l) || (taker && l.pid != taker))
			continue;
		any = true;
		if (found && *n < LOCKERS_MOST)
			found[(*n)++] = l;
	}
	if (!text)
		return -1;
	fclose(text);
	return any;
}

/*
 * The kernel gives /proc/locks in pieces, between which others lock and unlock: one may come
 * twice then, or not at all.  What two readings agree on is so.  -1: no text.
 */
static int
read_locks(const struct locked *file, struct locker *found, size_t *n)
{
	struct locker again[LOCKERS_MOST];
	size_t m = 0;
	bool same = false;

	if (read_proc_text(file, "/proc/locks", "", 0, found, n) < 0)
		return -1;
	for (int i = 1; !same && i < READINGS_MOST; i++, *n = m) {
		m = 0;
		if (read_proc_text(file, "/proc/locks", "", 0, again, &m) < 0)
			return -1;
		same = m == *n;
		for (size_t k = 0; same && k < m; k++)
			same = found[k].pid == again[k].pid &&
			    found[k].waits == again[k].waits &&
			    found[k].shared == again[k].shared;
		memcpy(found, again, m * sizeof *again);
	}
	return 0;
}

/* Has a descriptor of this process the lock that `taker` has taken?  -1: not known (in time). */
static int
has_lock(const struct locked *file, pid_t pid, pid_t taker)
{
	char path[320];
	const struct dirent *entry;
	bool has = false, late = false;
	DIR *list;

	snprintf(path, sizeof path, "/proc/%d/fdinfo", (int)pid);
	list = opendir(path);
	if (!list)
		return -1;
	while (
	    !has && !(late = instant_now() >= file->until) && (entry = readdir(list))) {
		snprintf(
		    path, sizeof path, "/proc/%d/fdinfo/%s", (int)pid, entry->d_name);
		has = entry->d_name[0] != '.' &&
		    read_proc_text(file, path, "lock:\t", taker, NULL, NULL) > 0;
	}
	closedir(list);
	return late ? -1 : has;
}

/* The first process with a descriptor that has the lock; 0: none that we may ask in time. */
static pid_t
find_locker(const struct locked *file, pid_t taker)
{
	DIR *list = opendir("/proc");
	const struct dirent *entry;
	pid_t found = 0;

	while (list && !found && instant_now() < file->until && (entry = readdir(list))) {
		pid_t pid = atoi(entry->d_name);

		if (pid > 0 && pid != getpid() && has_lock(file, pid, taker) > 0)
			found = pid;
	}
	if (list)
		closedir(list);
	return found;
}

/* User and program, if the process is there. */
static bool
describe(struct locker *l)
{
	char path[64];
	struct stat st;
	FILE *comm;
	bool there;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)l->pid);
	comm = fopen(path, "re");
	there = comm && libc_stat_of(fileno(comm), &st) == 0 &&
	    fgets(l->command, sizeof l->command, comm);
	if (comm)
		fclose(comm);
	if (!there)
		return false;
	l->command[strcspn(l->command, "\n")] = '\0';
	for (char *c = l->command; *c; c++)
		if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
			*c = '?';
	/* the password database might ask a server */
	if (st.st_uid == 0)
		snprintf(l->user, sizeof l->user, "root");
	else
		snprintf(l->user, sizeof l->user, "uid %u", (unsigned)st.st_uid);
	return true;
}

/*
 * Who has the lock now, as its taker may have ended, and another process have his number.  A
 * lock of an open file has no taker: if it is not the only one, nobody knows whose it is.
 */
static void
name_locker(const struct locked *file, struct locker *l, bool alone)
{
	pid_t taker = l->pid;

	if (taker > 0 && (l->waits || has_lock(file, taker, taker) != 0) && describe(l))
		return;
	l->pid = !l->waits && (taker > 0 || alone) ? find_locker(file, taker) : 0;
	if (l->pid && !describe(l))
		l->pid = 0;
}

/*
 * Writes up to LOCKERS_MOST, and how many there are of these.  Names are looked for until
 * `until` (0: there is no such time); after that, the one who took a lock stands for its
 * holder.
 *
 * A holder without a name is added if the kernel knows of one but does not list it:
 * /proc/locks may call the file's device otherwise than stat(2).  Only fcntl(2) tells, and
 * only of a file that we may open: where it does not, nobody knows that it is free.
 */
static enum rc
read_lockers(const struct joined *j, const struct stat *st, instant until,
    struct locker found[LOCKERS_MOST], size_t *n, struct fault *fault)
{
	const instant most = instant_now() + NAMES_MOST;
	const struct locked file = {
	    st, j->by_flock, until ? instant_first(until, most) : most};
	const struct span all = {0, INT64_MAX};
	size_t unnamed = 0, holders = 0;
	struct span some;
	enum rc rc = RC_OK;
	int fd, any;

	*n = 0;
	if (read_locks(&file, found, n) < 0)
		return fault_set(fault, RC_AGAIN,
		    "%s: cannot see who has it: /proc/locks cannot be read", j->where);
	for (size_t i = 0; i < *n; i++) {
		holders += !found[i].waits;
		unnamed += !found[i].waits && found[i].pid <= 0;
	}
	for (size_t i = 0; i < *n; i++) {
		if (instant_now() < file.until)
			name_locker(&file, &found[i], unnamed == 1);
		else if (!describe(&found[i]))
			found[i].pid = 0;
	}
	if (holders > 0 || j->by_flock || *n == LOCKERS_MOST)
		return RC_OK;
	fd = j->fd >= 0 ? j->fd
			: open(j->path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	any = fd < 0 ? -1 : tickets_look(fd, F_WRLCK, all, &some);
	if (any < 0)
		rc = fault_set(fault, errno == EACCES ? RC_DENIED : RC_AGAIN,
		    "%s: cannot see whether somebody has it: %s", j->where,
		    strerror(errno));
	else if (any > 0)
		found[(*n)++] = (struct locker){
		    .shared = tickets_look(fd, F_RDLCK, all, &some) == 0};
	if (fd >= 0 && fd != j->fd)
		close(fd);
	return rc;
}

/* Shows what is known of those who have the lock; 0: they are looked for before we give up. */
static void
show_holders(struct joined *j, instant until)
{
	struct holding *seen = &j->base.host->seen.holding;
	struct locker found[LOCKERS_MOST];
	char host[64] = "";
	struct fault ignored;
	struct stat st;
	size_t n = 0;

	if (fstat(j->fd, &st) != 0 ||
	    read_lockers(j, &st, until, found, &n, &ignored) != RC_OK)
		n = 0;
	*seen = (struct holding){.held = -1};
	gethostname(host, sizeof host - 1);
	for (size_t i = 0; i < n; i++) {
		const struct locker *l = &found[i];

		if (l->waits)
			continue;
		seen->holders++;
		seen->kind = l->shared ? KIND_SHARED : KIND_EXCLUSIVE;
		if (!l->pid || *seen->record)
			continue;
		snprintf(seen->record, sizeof seen->record,
		    "{\"pid\":%d,\"who\":\"%s@%s\",\"host\":\"%s\",\"command\":\"%s\"}",
		    (int)l->pid, l->user, host, host, l->command);
	}
}

/* ---- the calls ---- */

enum rc
joined_open(struct store **ret, struct host *host, const char *path, const char *lock,
    struct fault *fault)
{
	bool by_flock = !lock || strcmp(lock, "flock") == 0;
	struct joined *j;

	if (!path)
		return fault_set(fault, RC_USAGE, "lock= goes with path=FILE only");
	if (*path != '/' || strlen(path) >= PATH_MAX)
		return fault_set(fault, RC_USAGE,
		    "path is the absolute path of the file that the other program locks");
	if (!by_flock && strcmp(lock, "fcntl") != 0)
		return fault_set(fault, RC_USAGE, "lock is flock or fcntl");
	j = calloc(1, sizeof *j);
	if (!j)
		return fault_set(fault, RC_SYSTEM, "out of memory");
	j->base = (struct store){&joined_backend, host, j->where, CAP_SHARED | ONE_LOCK};
	j->path = path;
	j->by_flock = by_flock;
	j->fd = -1;
	snprintf(
	    j->where, sizeof j->where, "%s %.300s", by_flock ? "flock" : "fcntl", path);
	*ret = &j->base;
	return RC_OK;
}

/*
 * Waits in the kernel.  RC_AGAIN: it could not wait, and wants to be asked anew after a pause:
 * it may be out of locks (ENOLCK) for as long as another one has it.
 *
 * A wait that ends too late or early has got nothing, whatever tickets_waited() says: its
 * thread may be about to give the lock back, and that of this open file is one lock.
 */
static enum rc
await_lock(
    struct joined *j, short type, int64_t pause, instant until, struct fault *fault)
{
	struct host *host = j->base.host;
	struct ticket_wait *w = tickets_wait(j->fd, j->by_flock, type, whole_file);
	int64_t shown = SHOWN_LEAST;
	enum woke woke;
	bool got;

	if (!w)
		return cannot(j, "cannot start a thread", fault);
	do {
		show_holders(j, until);
		woke = host->wait(host, tickets_done(w), POLLIN,
		    instant_first(instant_now() + shown, until));
		shown = instant_first(2 * shown, SHOWN_MOST);
	} while (woke == WOKE_TIMEOUT && instant_now() < until);
	got = tickets_waited(w);
	if (woke == WOKE_READY && got)
		return RC_OK;
	if (got) /* or the thread does it */
		tickets_lock_file(j->fd, j->by_flock, F_UNLCK);
	if (woke == WOKE_READY && instant_now() < until) {
		woke = host->wait(
		    host, -1, 0, instant_first(instant_now() + pause, until));
		if (woke != WOKE_STOP)
			return RC_AGAIN;
	}
	return woke == WOKE_STOP ? RC_STOP
				 : fault_set(fault, RC_BUSY, "%s: still held", j->where);
}

/* RC_LOST: it is to be opened anew. */
static enum rc
take_lock(struct joined *j, short type, instant until, struct fault *fault)
{
	int64_t pause = PAUSE_LEAST;
	enum rc rc = RC_AGAIN;

	while (rc == RC_AGAIN) {
		if (tickets_lock_file(j->fd, j->by_flock, type) == 0)
			return RC_OK;
		if (errno == EBADF && type == F_WRLCK && !j->writes) {
			j->writes = true;
			return RC_LOST;
		}
		if (errno != EAGAIN)
			return fault_set(fault, RC_CONFIG,
			    "%s: its file system cannot lock: %s", j->where,
			    strerror(errno));
		if (!until) {
			show_holders(j, 0);
			return fault_set(fault, RC_BUSY, "%s: held", j->where);
		}
		rc = await_lock(j, type, pause, until, fault);
		pause = instant_first(2 * pause, PAUSE_MOST);
	}
	return rc;
}

static enum rc
joined_acquire(struct store *s, const struct claim *claim, instant until, struct grant *g,
    struct fault *fault)
{
	struct joined *j = joined_of(s);
	short type = claim->kind == KIND_SHARED ? F_RDLCK : F_WRLCK;
	enum rc rc = RC_LOST;

	while (rc == RC_LOST) {
		rc = open_joined(j, type, fault);
		if (rc == RC_OK)
			rc = take_lock(j, type, until, fault);
		if (rc == RC_OK)
			rc = check_name(j, fault);
		if (rc == RC_LOST &&
		    s->host->wait(s->host, -1, 0, instant_now() + NS_PER_MS) == WOKE_STOP)
			return RC_STOP;
	}
	if (rc != RC_OK)
		return rc;
	j->ours = true;
	*g = (struct grant){.token = instant_epoch(),
	    .sent = instant_now(),
	    .lease = LEASE_FOREVER,
	    .anchor = j->fd};
	return RC_OK;
}

static enum rc
joined_renew(struct store *s, instant until, struct grant *g, struct fault *fault)
{
	(void)until;
	g->sent = instant_now();
	g->lease = LEASE_FOREVER;
	return check_name(joined_of(s), fault);
}

/* It is unlocked, not only closed: the front has a copy of the descriptor. */
static enum rc
joined_release(struct store *s, struct outcome o, instant until, struct fault *fault)
{
	struct joined *j = joined_of(s);
	enum rc rc = j->ours ? check_name(j, fault) : RC_OK;

	(void)o, (void)until;
	if (j->fd >= 0)
		tickets_lock_file(j->fd, j->by_flock, F_UNLCK);
	close_file(j);
	j->ours = false;
	return rc;
}

static void
joined_close(struct store *s)
{
	if (s)
		close_file(joined_of(s));
	free(s);
}

static enum rc
joined_identify(struct store *s, struct identity *id, struct fault *fault)
{
	const struct joined *j = joined_of(s);
	struct stat st;

	(void)fault;
	identity_add(id, "lock", j->by_flock ? "flock" : "fcntl");
	if ((j->fd >= 0 ? fstat(j->fd, &st) : stat(j->path, &st)) != 0) {
		identity_add(id, "path", j->path);
		return RC_OK;
	}
	identity_number(id, "device", st.st_dev);
	identity_number(id, "inode", st.st_ino);
	return RC_OK;
}

/* ---- looking ---- */

static enum rc
joined_each(struct store *s, const struct look *look, struct fault *fault)
{
	struct joined *j = joined_of(s);
	struct locker found[LOCKERS_MOST];
	struct stat st;
	size_t n;
	unsigned waiting = 0;
	enum rc rc;

	if (stat(j->path, &st) != 0)
		return errno == ENOENT ? RC_OK : cannot(j, "cannot look at it", fault);
	rc = read_lockers(j, &st, look->until, found, &n, fault);
	if (rc != RC_OK)
		return rc;
	for (int waits = 0; waits < 2; waits++) {
		for (size_t i = 0; i < n; i++) {
			char what[64];
			struct foreign other = {.what = what, .pid = found[i].pid};
			struct entry e = {.kind = waits ? ENTRY_WAITER : ENTRY_HOLDER,
			    .key = look->key ? look->key : j->path,
			    .lock = found[i].shared ? KIND_SHARED : KIND_EXCLUSIVE,
			    .slot = -1,
			    .foreign = &other,
			    .since = EPOCH_NONE,
			    .until = EPOCH_NONE};

			if (found[i].waits != waits)
				continue;
			if (*found[i].user)
				other.who = found[i].user;
			snprintf(what, sizeof what, "%s(2) lock of %.20s",
			    j->by_flock ? "flock" : "fcntl",
			    *found[i].command ? found[i].command : "a process");
			e.position = waits ? ++waiting : 0;
			if (!look->see(look->ctx, &e, instant_epoch()))
				return RC_OK;
		}
	}
	return RC_OK;
}

static const struct backend joined_backend = {
    .name = "file",
    .close = joined_close,
    .identify = joined_identify,
    .lock = &(const struct lock_ops){joined_acquire, joined_renew, joined_release},
    .admin = &(const struct admin_ops){.each = joined_each},
};
