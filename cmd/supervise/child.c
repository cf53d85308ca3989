/*
 * child.c - finds the command, forks its stub, and lets it begin when the lock is there.
 */
#include "child.h"

#include "backends/common/text.h"
#include "cmd/object.h"
#include "cmd/text.h"
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIDS = 3 };

/* Together in one page, for each costs a run a page fault; but for the end of a long path. */
static _Alignas(4096) struct {
	char stack[2048]; /* the stub's: it needs some hundred bytes */
	struct stub stub; /* the keeper leaves it alone until the command runs */
	/* what is told, in page.h, behind NAME=; NULL: it is not */
	char *values[VARIABLES];
	const char *outer;   /* DLOCK_KEEPER of the living keepers around us, or "" */
	char *pids[PIDS];    /* behind NAME= of those that we rewrite; NULL: the rest */
	char path[PATH_MAX]; /* of the program */
} command;

enum { TOKEN_BYTES = 24, SLOT_BYTES = 12, PID_BYTES = 32 };

/*
 * What systemd(1) says to the process that it starts, so that others take no notice: where it
 * is dlock that is meant, it is the command.
 */
static const char *const pid_names[PIDS] = {
    "LISTEN_PID=", "WATCHDOG_PID=", "SYSTEMD_EXEC_PID="};

const char *
child_value(enum variable which)
{
	return command.values[which];
}

/* Of VAR_TOKENS: each byte of a key is written as six at most. */
static size_t
tokens_room(const struct plan *p)
{
	size_t room = sizeof "{}";

	for (size_t i = 0; i < p->nkeys; i++)
		room += sizeof "\"\":18446744073709551615," + 6 * strlen(p->keys[i]);
	return room;
}

static bool
is_variable(const char *text, enum variable which)
{
	size_t n = strlen(variable_names[which]);

	return strncmp(text, variable_names[which], n) == 0 && text[n] == '=';
}

/* The variable for the command, in its place among `room`, unless it names another process. */
static char *
rewrite_pid(char *text, char *room)
{
	char dlock[24], *value;

	for (size_t i = 0; i < PIDS; i++, room += PID_BYTES) {
		size_t n = strlen(pid_names[i]);

		if (strncmp(text, pid_names[i], n) != 0)
			continue;
		text_put_number(dlock, dlock + sizeof dlock, getppid());
		if (strcmp(text + n, dlock) != 0)
			break;
		value = stpcpy(room, pid_names[i]);
		command.pids[i] = value;
		return room;
	}
	return text;
}

/* The caller's variables but for ours; returns their end. */
static char **
copy_others(char **out, char *pids)
{
	for (char **v = environ; *v; v++) {
		enum variable i = 0;

		while (i < VARIABLES && !is_variable(*v, i))
			i++;
		if (i == VARIABLES)
			*out++ = rewrite_pid(*v, pids);
	}
	return out;
}

/* How much room a value needs, with its end; 0: it is not told. */
static size_t
room_of(const struct run *r, enum variable which)
{
	const struct plan *p = r->plan;

	switch (which) {
	case VAR_KEY:
		return strlen(p->keys[0]) + 1;
	case VAR_TOKEN:
		return TOKEN_BYTES;
	case VAR_TOKENS:
		return p->nkeys > 1 ? tokens_room(p) : 0;
	case VAR_SLOT:
		return p->claim.kind == KIND_LIMIT ? SLOT_BYTES : 0;
	case VAR_OWNER:
		return sizeof r->owner;
	case VAR_BACKEND:
		return strlen(p->site.backend->name) + 1;
	case VAR_KEEPER:
		return JOIN_ADDRESS_BYTES + strlen(r->site) + strlen(command.outer) + 1;
	case VARIABLES:
		break;
	}
	return 0;
}

/* Where the words are to stand behind them. */
static size_t
variables_room(const struct run *r)
{
	size_t room = sizeof(char *) - 1 + PIDS * PID_BYTES;

	for (enum variable i = 0; i < VARIABLES; i++)
		room += strlen(variable_names[i]) + 1 + room_of(r, i);
	return room - room % sizeof(char *);
}

static size_t
count_words(char *const *words)
{
	size_t n = 0;

	while (words[n])
		n++;
	return n;
}

/* sh, its script and argv's words; then the environment: each with its end. */
size_t
child_room(const struct run *r)
{
	const char *outer = plan_variable("DLOCK_KEEPER"),
		   *living = outer ? join_address_living(outer, NULL) : NULL;
	size_t words;

	command.outer = living ? living : "";
	words = r->body ? 0
			: count_words(r->plan->command.argv) + 2 + count_words(environ) +
		VARIABLES + 1;

	return variables_room(r) + words * sizeof(char *);
}

void
child_prepare(const struct run *r)
{
	char *next = r->shared->told;

	for (enum variable i = 0; i < VARIABLES; i++)
		if (room_of(r, i) > 0) {
			command.values[i] = stpcpy(stpcpy(next, variable_names[i]), "=");
			next = command.values[i] + room_of(r, i);
		}
	strcpy(command.values[VAR_KEY], r->plan->keys[0]);
	strcpy(command.values[VAR_OWNER], r->owner);
	strcpy(command.values[VAR_BACKEND], r->plan->site.backend->name);
}

static void
tell_number(enum variable which, size_t room, uint64_t number)
{
	char *value = command.values[which];

	text_put_number(value, value + room, number);
}

/* Behind our address, with where the lock is kept, are those of the outer dlocks. */
void
child_tell(const struct run *r, const struct join_part *parts, const char *address)
{
	const struct plan *p = r->plan;
	char *keepers = stpcpy(stpcpy(command.values[VAR_KEEPER], address), r->site);
	struct object j;

	if (*command.outer)
		strcpy(stpcpy(keepers, " "), command.outer);
	tell_number(VAR_TOKEN, TOKEN_BYTES, parts->token);
	if (command.values[VAR_SLOT])
		tell_number(VAR_SLOT, SLOT_BYTES, parts->slot);
	if (!command.values[VAR_TOKENS])
		return;
	object_begin(&j, command.values[VAR_TOKENS], tokens_room(p));
	for (size_t i = 0; i < p->nkeys; i++)
		object_number(&j, p->keys[i], parts[i].token);
	object_end(&j);
}

/* The words and the environment of the command. */
static void
prepare_words(const struct run *r)
{
	const struct plan *p = r->plan;
	size_t n = count_words(p->command.argv);
	char **words = (char **)(r->shared->told + variables_room(r)), **envp, **end;

	words[0] = "/bin/sh";
	words[1] = (char *)r->path;
	for (size_t i = 1; i < n; i++)
		words[1 + i] = p->command.argv[i];
	envp = words + n + 2;
	end = copy_others(envp, (char *)words - PIDS * PID_BYTES);
	for (enum variable i = 0; i < VARIABLES; i++)
		if (command.values[i])
			*end++ = command.values[i] - strlen(variable_names[i]) - 1;
	command.stub.path = r->path;
	command.stub.argv = p->command.argv;
	command.stub.script = words;
	command.stub.envp = envp;
}

/* Emulators may know no process that shares memory but a thread. */
static pid_t
clone_stub(void)
{
	char *top = command.stack + sizeof command.stack;
	pid_t pid = -1;

#ifdef STUB_SHARES
	pid = clone(stub_begin, top, CLONE_VM | SIGCHLD, &command.stub);
#endif
	return pid < 0 ? clone(stub_begin, top, SIGCHLD, &command.stub) : pid;
}

int
child_fork(struct child *c, const struct run *r)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	/* a user may have so many pages in pipes, and a thousand runs that wait */
	fcntl(ends[1], F_SETPIPE_SZ, 1);
	prepare_words(r);
	command.stub.keeper = getpid();
	command.stub.gate = ends[0];
	memcpy(command.stub.others, (const int[]){r->ends[1], ends[1]},
	    sizeof command.stub.others);
	command.stub.leads = !r->origin->has_tty;
	command.stub.mask = &r->origin->mask;
	command.stub.chld_ignored = r->origin->chld_ignored;
	command.stub.exec = &r->shared->exec;
	c->pid = clone_stub();
	close(ends[0]);
	if (c->pid < 0) {
		close(ends[1]);
		return -1;
	}
	/* it is told in the page, which the stub reads after "go" */
	for (size_t i = 0; i < PIDS; i++)
		if (command.pids[i])
			text_put_number(
			    command.pids[i], command.pids[i] + PID_BYTES - 18, c->pid);
	c->gate = ends[1];
	c->group = command.stub.leads ? c->pid : 0;
	/* and by the stub: should we end before it has, HUP goes to the caller's group */
	if (c->group)
		setpgid(c->pid, c->pid);
	return 0;
}

void
child_go(struct child *c, instant latest)
{
	/* SIGPIPE is blocked */
	if (write(c->gate, &latest, sizeof latest) != sizeof latest)
		kill(c->pid, SIGKILL);
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
	*exec = atomic_load(command.stub.exec);
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

/* command.path: a directory of PATH ("": the working directory) and the name.  Does it fit? */
static bool
put_path(const char *dir, size_t n, const char *name)
{
	char *at = command.path, *end = at + sizeof command.path;

	if (n == 0) {
		dir = ".";
		n = 1;
	}
	if (n + strlen(name) + sizeof "/" > sizeof command.path)
		return false;
	memcpy(at, dir, n);
	text_put(text_put(at + n, end, "/"), end, name);
	return true;
}

const char *
child_find(const char *name)
{
	const char *dirs = getenv("PATH"), *end;
	int error = ENOENT;

	if (strchr(name, '/')) {
		if (strlen(name) >= sizeof command.path) {
			errno = ENAMETOOLONG;
			return NULL;
		}
		strcpy(command.path, name);
		return is_executable(command.path) ? command.path : NULL;
	}
	if (!dirs)
		dirs = "/bin:/usr/bin";
	for (;; dirs = end + 1) {
		end = strchrnul(dirs, ':');
		if (put_path(dirs, end - dirs, name)) {
			if (is_executable(command.path))
				return command.path;
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
