/*
 * child.c - finds the command, forks its stub, and lets it begin when the lock is there.
 */
#include "child.h"

#include "cmd/object.h"
#include "cmd/exit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * The variables that only "go" can fill.  They are put into the environment
 * before it, empty, and written in place: setting them afterwards would cost
 * every run some fifty microseconds between the grant and the command.
 */
enum later { TOKEN, SLOT, TOKENS, KEEPER, LATER };
static char *later[LATER]; /* where the value goes; NULL: it is not told */

/* Each byte of a key is written as six at most. */
size_t
child_tokens_room(const struct plan *p)
{
	size_t room = sizeof "{}";

	for (size_t i = 0; i < p->nkeys; i++)
		room += sizeof "\"\":18446744073709551615," + 6 * strlen(p->keys[i]);
	return room;
}

void
child_write_tokens(const struct plan *p, const struct go *go, char *out, size_t size)
{
	struct object j;

	object_begin(&j, out, size);
	for (size_t i = 0; i < p->nkeys; i++)
		object_number(&j, p->keys[i], go->tokens[i]);
	object_end(&j);
}

/* False: no memory. */
static bool
make_room(enum later which, const char *name, size_t room)
{
	size_t n = strlen(name);
	char *text = malloc(n + room);

	if (!text)
		return false;
	later[which] = stpcpy(text, name);
	return putenv(text) == 0;
}

/* False: no memory; then the command must not run half-informed. */
static bool
prepare_environment(const struct run *r, const char *outer)
{
	static const char *const ours[] = {"DLOCK_KEY", "DLOCK_TOKEN", "DLOCK_TOKENS",
	    "DLOCK_SLOT", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"};
	const struct plan *p = r->plan;
	const struct go *go = NULL;

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		unsetenv(ours[i]); /* all of a name, should there be several */
	return setenv("DLOCK_KEY", p->keys[0], 1) == 0 &&
	    setenv("DLOCK_OWNER", r->owner, 1) == 0 &&
	    setenv("DLOCK_BACKEND", p->site.backend->name, 1) == 0 &&
	    make_room(TOKEN, "DLOCK_TOKEN=", sizeof go->token) &&
	    make_room(KEEPER, "DLOCK_KEEPER=",
		sizeof go->keeper + strlen(r->site) + strlen(outer) + 1) &&
	    (p->claim.kind != KIND_LIMIT ||
		make_room(SLOT, "DLOCK_SLOT=", sizeof go->slot)) &&
	    (p->nkeys == 1 || make_room(TOKENS, "DLOCK_TOKENS=", child_tokens_room(p)));
}

/* Behind our address, with where the lock is kept, are those of the outer dlocks. */
static void
fill_in(const struct run *r, const struct go *go, const char *outer)
{
	char *keepers = stpcpy(stpcpy(later[KEEPER], go->keeper), r->site);

	if (*outer)
		*keepers++ = ' ';
	strcpy(keepers, outer);
	strcpy(later[TOKEN], go->token);
	if (later[SLOT])
		strcpy(later[SLOT], go->slot);
	if (later[TOKENS])
		child_write_tokens(
		    r->plan, go, later[TOKENS], child_tokens_room(r->plan));
}

static _Noreturn void
stub(int gate, pid_t keeper, const struct run *r)
{
	/* it stays where it is when it is unset */
	const char *around = getenv("DLOCK_KEEPER"), *outer = around ? around : "";
	_Atomic int *exec = &r->shared->exec;
	struct go go;
	bool ready;

	if (!r->origin->has_tty)
		setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ready = prepare_environment(r, outer);
	if (getppid() != keeper || !ready || recv(gate, &go, sizeof go, 0) != sizeof go)
		_exit(STATUS_NOT_FOUND);
	/* the keeper may have been frozen while it said "go" */
	if (instant_now() >= go.latest) {
		atomic_store(exec, ETIME);
		_exit(STATUS_NOT_FOUND);
	}
	fill_in(r, &go, outer);
	/* from here on what happens to us happens to the command */
	atomic_store(exec, EXEC_CALLED);
	if (r->origin->chld_ignored)
		signal(SIGCHLD, SIG_IGN);
	/* signals that came while we waited are delivered now, as they would have been */
	sigprocmask(SIG_SETMASK, &r->origin->mask, NULL);
	/* path has a slash: no search, but a script without #! gets its shell */
	execvp(r->path, r->plan->command.argv);
	atomic_store(exec, errno);
	_exit(STATUS_NOT_FOUND);
}

int
child_fork(struct child *c, const struct run *r)
{
	pid_t parent = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -1;
	/* we have one thread and no fork handlers: it need not look for them */
	c->pid = _Fork();
	if (c->pid == 0) {
		close(r->ends[0]);
		close(r->ends[1]);
		close(ends[0]);
		stub(ends[1], parent, r);
	}
	close(ends[1]);
	if (c->pid < 0) {
		close(ends[0]);
		return -1;
	}
	c->gate = ends[0];
	c->exec = &r->shared->exec;
	c->group = r->origin->has_tty ? 0 : c->pid;
	/*
	 * the stub does it too: should we end before it has, the kernel sends HUP to the
	 * caller's group
	 */
	if (c->group)
		setpgid(c->pid, c->pid);
	return 0;
}

void
child_go(struct child *c, const struct go *go)
{
	if (send(c->gate, go, sizeof *go, MSG_NOSIGNAL) != sizeof *go)
		shutdown(c->gate, SHUT_RDWR);
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
	char none;

	if (recv(c->gate, &none, sizeof none, MSG_DONTWAIT) < 0 &&
	    (errno == EAGAIN || errno == EINTR))
		return false;
	close(c->gate);
	c->gate = -1;
	*exec = atomic_load(c->exec);
	return true;
}

/* Can `path` be executed by us?  If not: errno. */
static bool
is_executable(const char *path)
{
	struct stat st;

	if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) != 0)
		return false;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return false;
	}
	return true;
}

bool
child_find(const char *name, char *path, size_t size)
{
	const char *dirs = getenv("PATH"), *end;
	int error = ENOENT;

	if (strchr(name, '/')) {
		if (strlen(name) >= size) {
			errno = ENAMETOOLONG;
			return false;
		}
		memcpy(path, name, strlen(name) + 1);
		return is_executable(path);
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;; dirs = end + 1) {
		int n;

		end = strchrnul(dirs, ':');
		n = snprintf(path, size, "%.*s/%s", (int)(end - dirs), dirs, name);
		if (end == dirs)
			n = snprintf(path, size, "./%s", name);
		if (n > 0 && (size_t)n < size) {
			if (is_executable(path))
				return true;
			/* what is there says more than what is not */
			if (error == ENOENT && errno != ENOTDIR)
				error = errno;
		}
		if (!*end)
			break;
	}
	errno = error;
	return false;
}
