/*
 * child.c - finds the command, forks its stub, and lets it begin when the lock is there.
 */
#include "child.h"

#include "cmd/object.h"
#include "cmd/status.h"

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
static char token_text[sizeof "DLOCK_TOKEN=" + sizeof((struct go *)0)->token] =
    "DLOCK_TOKEN=";
static char slot_text[sizeof "DLOCK_SLOT=" + sizeof((struct go *)0)->slot] =
    "DLOCK_SLOT=";
static char *tokens_text; /* NULL with one key */
static size_t tokens_size;
/* and behind our address those of the dlocks around us, however many */
static char *keepers_text;
static const char *outer_keepers = "";

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

/* With several keys: makes room for their tokens. */
static bool
prepare_tokens(const struct plan *p)
{
	if (p->nkeys == 1)
		return true;
	tokens_size = strlen("DLOCK_TOKENS=") + child_tokens_room(p);
	tokens_text = malloc(tokens_size);
	return tokens_text &&
	    putenv(memcpy(tokens_text, "DLOCK_TOKENS=", sizeof "DLOCK_TOKENS=")) == 0;
}

static void
fill_in_tokens(const struct plan *p, const struct go *go)
{
	size_t name = strlen("DLOCK_TOKENS=");

	if (tokens_text)
		child_write_tokens(p, go, tokens_text + name, tokens_size - name);
}

/* False: no memory; then the command must not run half-informed. */
static bool
prepare_environment(const struct run *r)
{
	const struct plan *p = r->plan;
	static const char *const ours[] = {"DLOCK_KEY", "DLOCK_TOKEN", "DLOCK_TOKENS",
	    "DLOCK_SLOT", "DLOCK_OWNER", "DLOCK_BACKEND", "DLOCK_KEEPER"};
	const char *outer = getenv("DLOCK_KEEPER");

	if (outer && *outer)
		outer_keepers = outer; /* it stays where it is when it is unset */
	keepers_text = malloc(sizeof "DLOCK_KEEPER=" + KEEPER_BYTES + strlen(r->site) +
	    strlen(outer_keepers) + 1);
	if (!keepers_text)
		return false;
	memcpy(keepers_text, "DLOCK_KEEPER=", sizeof "DLOCK_KEEPER=");
	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		unsetenv(ours[i]); /* all of a name, should there be several */
	return setenv("DLOCK_KEY", p->keys[0], 1) == 0 &&
	    setenv("DLOCK_OWNER", r->owner, 1) == 0 &&
	    setenv("DLOCK_BACKEND", p->site.backend->name, 1) == 0 &&
	    putenv(token_text) == 0 && putenv(keepers_text) == 0 &&
	    (p->claim.kind != KIND_LIMIT || putenv(slot_text) == 0) && prepare_tokens(p);
}

static void
fill_in(char *text, const char *value)
{
	strcpy(strchr(text, '=') + 1, value);
}

/* Our address, with where the lock is kept, and behind it those of the dlocks around us. */
static void
fill_in_keepers(const char *address, const char *site)
{
	char *end = stpcpy(strchr(keepers_text, '=') + 1, address);

	end = stpcpy(end, site);
	if (*outer_keepers)
		*end++ = ' ';
	strcpy(end, outer_keepers);
}

/*
 * Signals that came while we waited are delivered when the mask goes back, as they would
 * have been.
 */
static void
restore(const struct origin *o)
{
	if (o->chld_ignored)
		signal(SIGCHLD, SIG_IGN);
	sigprocmask(SIG_SETMASK, &o->mask, NULL);
}

static _Noreturn void
stub(int gate, pid_t keeper, const struct run *r)
{
	_Atomic int *exec = &r->shared->exec;
	struct go go;
	bool ready;

	if (!r->origin->has_tty)
		setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ready = prepare_environment(r);
	if (getppid() != keeper || !ready || recv(gate, &go, sizeof go, 0) != sizeof go)
		_exit(STATUS_NOT_FOUND);
	/* the keeper may have been frozen while it said "go" */
	if (instant_now() >= go.latest) {
		atomic_store(exec, ETIME);
		_exit(STATUS_NOT_FOUND);
	}
	fill_in(token_text, go.token);
	fill_in(slot_text, go.slot);
	fill_in_tokens(r->plan, &go);
	fill_in_keepers(go.keeper, r->site);
	/* from here on what happens to us happens to the command */
	atomic_store(exec, EXEC_CALLED);
	restore(r->origin);
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

enum gate
child_gate(struct child *c, int *error)
{
	int exec;
	char none;

	if (c->gate < 0)
		return GATE_STARTED;
	if (recv(c->gate, &none, sizeof none, MSG_DONTWAIT) < 0 &&
	    (errno == EAGAIN || errno == EINTR))
		return GATE_WAITING;
	close(c->gate);
	c->gate = -1;
	exec = atomic_load(c->exec);
	*error = exec == EXEC_NOT_CALLED ? 0 : exec;
	return exec == EXEC_CALLED ? GATE_STARTED : GATE_FAILED;
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
