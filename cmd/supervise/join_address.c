/* join_address.c - where a keeper is reached by others. */
#include "join_address.h"

#include "backends/common/append.h"
#include "backends/common/libc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The network namespace in an address whose socket is found from nowhere. */
#define NET_NONE (~0ULL)

/* A lock as an address names it (FNV-1a). */
static unsigned long long
lock_hash(const char *backend, const char *key)
{
	unsigned long long h = 14695981039346656037ULL;
	const char *words[] = {backend, key};

	for (size_t i = 0; i < 2; i++)
		for (const char *c = words[i];; c++) {
			h = (h ^ (unsigned char)*c) * 1099511628211ULL;
			if (!*c)
				break;
		}
	return h;
}

/* Before Linux 5.14 it is the number of a file, which a later one may get when this one has ended. */
unsigned long long
join_address_net(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof cookie;
	struct stat st;

	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0)
		return cookie;
	return stat("/proc/self/ns/net", &st) == 0 ? st.st_ino : 0;
}

/* "/BACKEND" at `text`; a handle has none. */
static void
read_backend(struct join_address *a, const char *text)
{
	size_t n = *text == '/' ? strcspn(text + 1, "/=! ") : 0;

	if (n == 0 || n >= sizeof a->backend)
		return;
	memcpy(a->backend, text + 1, n);
	a->locks = text + 1 + n;
}

bool
join_address_next(const char **text, struct join_address *a)
{
	size_t n = strcspn(*text, " ");
	const char *slash = memchr(*text, '/', n);
	size_t name = slash ? (size_t)(slash - *text) : n, site = strcspn(*text, "=! ");

	*a = (struct join_address){.locks = ""};
	if (**text == '@' && name > 1 && name < sizeof a->name) {
		a->n = name - 1;
		memcpy(a->name, *text + 1, a->n);
	}
	if (a->n && slash) {
		char *end;

		a->net = strtoull(slash + 1, &end, 16);
		read_backend(a, end);
		a->site = *text + site;
		a->nsite = n - site;
	}
	*text += n;
	*text += strspn(*text, " ");
	return n > 0;
}

const char *
join_address_key(const struct join_address *a, const struct params *p)
{
	char *end;

	for (const char *c = a->locks; *c == '/'; c = end) {
		unsigned long long lock = strtoull(c + 1, &end, 16);

		for (size_t i = 0; i < p->nkeys; i++)
			if (lock == lock_hash(p->site.backend->name, p->keys[i]))
				return p->keys[i];
	}
	return NULL;
}

bool
join_address_next_of(
    const char **addresses, const struct params *p, struct join_address *a)
{
	while (*addresses && join_address_next(addresses, a))
		if (!*a->backend || strcmp(a->backend, p->site.backend->name) == 0)
			return true;
	return false;
}

/* ---- its socket ---- */

static socklen_t
fill_socket(struct sockaddr_un *out, const char *name, size_t n)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(out->sun_path + 1, name, n);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

int
join_address_listen(char *out, const char *id, const struct params *p)
{
	const char *backend = p->site.backend->name, *end = out + JOIN_ADDRESS_BYTES;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;
	socklen_t size;
	char name[64];

	append_text(
	    append_text(name, name + sizeof name, "dlock-"), name + sizeof name, id);
	size = fill_socket(&a, name, strlen(name));
	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&a, size) != 0 || listen(fd, SOMAXCONN) != 0)) {
		close(fd);
		fd = -1;
	}
	out = append_text(append_text(out, end, "@"), end, name);
	out = append_hex(
	    append_text(out, end, "/"), end, fd < 0 ? NET_NONE : join_address_net(fd));
	out = append_text(append_text(out, end, "/"), end, backend);
	for (size_t i = 0; i < p->nkeys; i++)
		out = append_hex(
		    append_text(out, end, "/"), end, lock_hash(backend, p->keys[i]));
	return fd;
}

/*
 * In its network namespace: that is read for the process, since we may be in another one.  The
 * user of the socket does not matter.  Connections of it bear the same name, without the flag.
 */
bool
join_address_is_open(const char *id, pid_t pid)
{
	char path[64], line[256], name[64];
	bool found = false;
	FILE *list;

	snprintf(path, sizeof path, "/proc/%d/net/unix", (int)pid);
	snprintf(name, sizeof name, " @dlock-%s\n", id);
	list = fopen(path, "re");
	while (list && !found && fgets(line, sizeof line, list))
		found = strstr(line, name) && strstr(line, " 00010000 ");
	if (list)
		fclose(list);
	return found;
}

/* "ADDRESS: COUNT PROTOCOL FLAGS TYPE STATE INODE @dlock-ID": those that listen have the flag. */
bool
join_address_next_socket(FILE *list, struct join_address *a)
{
	static const char name[] = " @dlock-";
	char line[256], *at;

	while (fgets(line, sizeof line, list)) {
		at = strstr(line, name);
		if (!at || !strstr(line, " 00010000 "))
			continue;
		at += strlen(" @");
		*a = (struct join_address){.locks = "", .n = strcspn(at, "\n")};
		if (a->n != strlen("dlock-") + JOIN_ID_CHARS)
			continue;
		memcpy(a->name, at, a->n);
		return true;
	}
	return false;
}

bool
join_address_is_ours(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
	    peer.uid != libc_user())
		return false;
	*pid = peer.pid;
	return true;
}

int
join_address_connect(const struct join_address *a, int flags, pid_t *pid)
{
	struct sockaddr_un to;
	socklen_t size = fill_socket(&to, a->name, a->n);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0), error = 0;

	if (fd < 0)
		return -1;
	while (!error && connect(fd, (struct sockaddr *)&to, size) != 0)
		if (errno == EAGAIN)
			error = EAGAIN;
		else if (errno != EINTR)
			error = !a->net || a->net != join_address_net(fd) ? ENONET
			    : errno == EACCES || errno == EPERM           ? EPERM
									  : ECONNREFUSED;
	if (!error && join_address_is_ours(fd, pid))
		return fd;
	close(fd);
	errno = error ? error : EPERM;
	return -1;
}

/* It may have no time just now. */
enum keeper_life
join_address_life(const struct join_address *a)
{
	pid_t pid;
	int fd = a->n ? join_address_connect(a, SOCK_NONBLOCK, &pid) : -1;

	if (fd >= 0)
		close(fd);
	else if (!a->n || errno == ECONNREFUSED)
		return KEEPER_ENDED;
	else if (errno == ENONET || errno == EPERM)
		return KEEPER_HIDDEN;
	return KEEPER_LIVES;
}

/* ---- handles: "@dlock-ID/NET" ---- */

void
join_address_write_handle(const char *address, char *out)
{
	size_t n = strcspn(address, "/");

	n += address[n] == '/' ? 1 + strcspn(address + n + 1, "/ ") : 0;
	snprintf(out, JOIN_HANDLE_BYTES, "%.*s", (int)n, address);
}

bool
join_address_read_handle(const char *handle, struct join_address *a)
{
	static const char digits[] = "0123456789abcdef";
	const char *name = "@dlock-", *id = handle + strlen(name);

	if (strncmp(handle, name, strlen(name)) != 0 || strspn(id, digits) != 32 ||
	    id[32] != '/' || strspn(id + 33, digits) != strlen(id + 33) || !id[33])
		return false;
	return strlen(handle) < JOIN_HANDLE_BYTES && join_address_next(&handle, a);
}

/* Is the address that of this handle? */
static bool
has_handle(const char *address, const char *handle)
{
	size_t n = strlen(handle);

	return strncmp(address, handle, n) == 0 && strchr("/ ", address[n]);
}

char *
join_address_living(const char *addresses, const char *handle)
{
	const char *next = addresses ? addresses + strspn(addresses, " ") : "",
		   *one = next;
	char *copy = malloc(strlen(next) + 1), *out = copy;
	struct join_address a;

	for (; out && join_address_next(&next, &a); one = next) {
		size_t n = strcspn(one, " ");

		if ((handle && has_handle(one, handle)) ||
		    join_address_life(&a) == KEEPER_ENDED)
			continue;
		if (out > copy)
			*out++ = ' ';
		out = (char *)memcpy(out, one, n) + n;
	}
	if (out)
		*out = '\0';
	return copy;
}
