/*
 * child.c - finds the command, forks its stub, and lets it begin when the lock is there.
 */
#include "child.h"

#include "cmd/object.h"
#include "stub.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The stub's own, which the keeper leaves alone until the command runs. */
static struct stub stub;
static _Alignas(16) char stack[4096]; /* stub.c needs some hundred bytes */

static char *values[VARIABLES]; /* in the page, behind NAME=; NULL: it is not told */

enum { TOKEN_BYTES = 24, SLOT_BYTES = 12 };

const char *
child_value(enum variable which)
{
	return values[which];
}

static const char *
outer_keepers(void)
{
	const char *outer = getenv("DLOCK_KEEPER");

	return outer ? outer : "";
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

/* The caller's variables but for ours; returns their end. */
static char **
copy_others(char **out)
{
	for (char **v = environ; *v; v++) {
		enum variable i = 0;

		while (i < VARIABLES && !is_variable(*v, i))
			i++;
		if (i == VARIABLES)
			*out++ = *v;
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
		return KEEPER_BYTES + strlen(r->site) + strlen(outer_keepers()) + 1;
	case VARIABLES:
		break;
	}
	return 0;
}

/* Where the words are to stand behind them. */
static size_t
variables_room(const struct run *r)
{
	size_t room = sizeof(char *) - 1;

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
	size_t words = r->body ? 0
			       : count_words(r->plan->command.argv) + 2 +
		count_words(environ) + VARIABLES + 1;

	return variables_room(r) + words * sizeof(char *);
}

void
child_prepare(const struct run *r)
{
	char *next = r->shared->told;

	for (enum variable i = 0; i < VARIABLES; i++)
		if (room_of(r, i) > 0) {
			values[i] = stpcpy(stpcpy(next, variable_names[i]), "=");
			next = values[i] + room_of(r, i);
		}
	strcpy(values[VAR_KEY], r->plan->keys[0]);
	strcpy(values[VAR_OWNER], r->owner);
	strcpy(values[VAR_BACKEND], r->plan->site.backend->name);
}

/* Behind our address, with where the lock is kept, are those of the outer dlocks. */
void
child_tell(const struct run *r, const struct join_part *parts, const char *address)
{
	const struct plan *p = r->plan;
	const char *outer = outer_keepers();
	char *keepers = stpcpy(stpcpy(values[VAR_KEEPER], address), r->site);
	struct object j;

	if (*outer)
		strcpy(stpcpy(keepers, " "), outer);
	snprintf(values[VAR_TOKEN], TOKEN_BYTES, "%" PRIu64, parts->token);
	if (values[VAR_SLOT])
		snprintf(values[VAR_SLOT], SLOT_BYTES, "%u", parts->slot);
	if (!values[VAR_TOKENS])
		return;
	object_begin(&j, values[VAR_TOKENS], tokens_room(p));
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
	end = copy_others(envp);
	for (enum variable i = 0; i < VARIABLES; i++)
		if (values[i])
			*end++ = values[i] - strlen(variable_names[i]) - 1;
	stub.path = r->path;
	stub.argv = p->command.argv;
	stub.script = words;
	stub.envp = envp;
}

/* Emulators may know no process that shares memory but a thread. */
static pid_t
clone_stub(void)
{
	char *top = stack + sizeof stack;
	pid_t pid = -1;

#ifdef STUB_SHARES
	pid = clone(stub_begin, top, CLONE_VM | SIGCHLD, &stub);
#endif
	return pid < 0 ? clone(stub_begin, top, SIGCHLD, &stub) : pid;
}

int
child_fork(struct child *c, const struct run *r)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -1;
	prepare_words(r);
	stub.keeper = getpid();
	stub.gate = ends[1];
	memcpy(stub.others, (const int[]){r->ends[0], r->ends[1], ends[0]},
	    sizeof stub.others);
	stub.leads = !r->origin->has_tty;
	stub.mask = &r->origin->mask;
	stub.chld_ignored = r->origin->chld_ignored;
	stub.exec = &r->shared->exec;
	c->pid = clone_stub();
	close(ends[1]);
	if (c->pid < 0) {
		close(ends[0]);
		return -1;
	}
	c->gate = ends[0];
	c->group = stub.leads ? c->pid : 0;
	/* and by the stub: should we end before it has, HUP goes to the caller's group */
	if (c->group)
		setpgid(c->pid, c->pid);
	return 0;
}

void
child_go(struct child *c, instant latest)
{
	if (send(c->gate, &latest, sizeof latest, MSG_NOSIGNAL) != sizeof latest)
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
	*exec = atomic_load(stub.exec);
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
