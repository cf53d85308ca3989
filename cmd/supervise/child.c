/*
 * child.c - finds the command, forks its stub, and lets it begin when the lock is there.
 */
#include "child.h"

#include "backends/common/append.h"
#include "cmd/text.h"
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Where the program is; a page's fault less than on the stack, and it stays. */
static char found[PATH_MAX];

static struct stub stub;

int
child_fork(struct child *c, const struct run *r)
{
	int ends[2];

	stub = (struct stub){.front = getppid(),
	    .keeper = getpid(),
	    .leads = !r->origin->has_tty,
	    .origin = r->origin,
	    .path = r->path,
	    .argv = r->params->command.argv,
	    .exec = &r->page->exec};

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	/* a user may have so many pages in pipes, and a thousand runs that wait */
	fcntl(ends[1], F_SETPIPE_SZ, 1);
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	stub.gate = ends[0];
	stub.others[0] = r->ends[1];
	stub.others[1] = ends[1];
	c->pid = stub_fork(&stub, told_room(r));
	close(ends[0]);
	if (c->pid < 0) {
		close(ends[1]);
		return -1;
	}
	c->gate = ends[1];
	c->group = stub.leads ? c->pid : 0;
	/* and by the stub: should we end before it has, HUP goes to the caller's group */
	if (c->group)
		setpgid(c->pid, c->pid);
	return 0;
}

void
child_go(struct child *c, instant latest, const struct told *told)
{
	struct go go = {latest, told->n};
	struct iovec all[] = {{&go, sizeof go}, {told->text, told->n}};
	ssize_t sent;

	c->unsent = told->text;
	c->nunsent = told->n;
	/* "go" has room: nothing lies in the gate yet.  SIGPIPE is blocked */
	sent = writev(c->gate, all, 2);
	if (sent < (ssize_t)sizeof go) {
		kill(c->pid, SIGKILL);
		c->nunsent = 0;
		return;
	}
	c->unsent += sent - sizeof go;
	c->nunsent -= sent - sizeof go;
}

void
child_send(struct child *c)
{
	ssize_t n = write(c->gate, c->unsent, c->nunsent);

	if (n >= 0) {
		c->unsent += n;
		c->nunsent -= n;
	} else if (errno != EAGAIN && errno != EINTR) {
		kill(c->pid, SIGKILL);
		c->nunsent = 0;
	}
}

void
child_dismiss(struct child *c)
{
	close(c->gate);
	c->gate = -1;
	kill(c->pid, SIGKILL);
	while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
}

bool
child_gate(struct child *c, int *exec)
{
	struct pollfd gate = {.fd = c->gate};

	/* POLLERR: nobody can read from it any more */
	if (poll(&gate, 1, 0) <= 0)
		return false;
	close(c->gate);
	c->gate = -1;
	*exec = atomic_load(stub.exec);
	return true;
}

/*
 * Can `path` be executed by us?  If not: errno.  Where that cannot be asked (libc.h), it is
 * enough that there is a file that somebody can execute; execve(2) decides the rest.
 */
static bool
is_executable(const char *path)
{
	bool may = faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
	struct stat st;

	if (!may && errno != EPERM && errno != ENOSYS)
		return false;
	if (stat(path, &st) != 0)
		return may;
	if (S_ISDIR(st.st_mode))
		errno = EISDIR;
	else if (may || (st.st_mode & 0111))
		return true;
	else
		errno = EACCES;
	return false;
}

bool
child_lacks_interpreter(const char *path, char *out, size_t size)
{
	char first[256] = "", name[200], *start = first + 2, *end;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, first, sizeof first - 1);
	bool cr;

	if (fd >= 0)
		close(fd);
	if (n < 2)
		return false;
	first[n] = '\0';
	first[strcspn(first, "\n")] = '\0';
	if (strncmp(first, "#!", 2) != 0) {
		snprintf(out, size, "%s",
		    "the file is there, but not what loads it (a program for another C library?)");
		return strncmp(first, "\177ELF", 4) == 0;
	}
	start += strspn(start, " \t");
	end = start + strcspn(start, " \t\r");
	cr = *end == '\r';
	*end = '\0';
	text_clean(name, sizeof name, start, strlen(start));
	snprintf(out, size,
	    "its first line names the interpreter '%s'%s, which is not there%s", name,
	    cr ? " with a CR" : "", cr ? ": remove the CR at the ends of its lines" : "");
	return true;
}

/* found: a directory of PATH ("": the working directory) and the name.  Does it fit? */
static bool
put_path(const char *dir, size_t n, const char *name)
{
	char *at = found, *end = at + sizeof found;

	if (n == 0) {
		dir = ".";
		n = 1;
	}
	if (n + strlen(name) + sizeof "/" > sizeof found)
		return false;
	memcpy(at, dir, n);
	append_text(append_text(at + n, end, "/"), end, name);
	return true;
}

const char *
child_find(const char *name)
{
	const char *dirs = getenv("PATH"), *end;
	int error = ENOENT;

	if (strchr(name, '/')) {
		if (strlen(name) >= sizeof found) {
			errno = ENAMETOOLONG;
			return NULL;
		}
		strcpy(found, name);
		return is_executable(found) ? found : NULL;
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;; dirs = end + 1) {
		end = strchrnul(dirs, ':');
		if (put_path(dirs, end - dirs, name)) {
			if (is_executable(found))
				return found;
			/* what is there says more than what is not */
			if (error == ENOENT && errno != ENOTDIR)
				error = errno;
		}
		if (!*end)
			break;
	}
	errno = error;
	return NULL;
}
