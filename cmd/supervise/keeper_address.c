/* keeper_address.c - where a keeper is reached by others. */
#include "keeper_address.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Found from nowhere. */
#define NET_NONE (~0ULL)

/* Which lock, in short (FNV-1a). */
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

/* The network namespace of a socket; 0 if an old kernel does not tell. */
static unsigned long long
net_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof cookie;

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0 ? cookie
										: 0;
}

bool
keeper_address_is_near(const struct keeper_address *a, int fd)
{
	return a->net == net_of(fd);
}

/* "/BACKEND" at `text`; versions before 7 of door.h had none, but hashes. */
static void
read_backend(struct keeper_address *a, const char *text)
{
	size_t n = *text == '/' ? strcspn(text + 1, "/=! ") : 0;

	a->locks = "";
	if (n == 0)
		return;
	a->is_old = strspn(text + 1, "0123456789abcdef") == n;
	if (a->is_old || n >= sizeof a->backend)
		return;
	memcpy(a->backend, text + 1, n);
	a->locks = text + 1 + n;
}

bool
keeper_address_next(const char **text, struct keeper_address *a)
{
	size_t n = strcspn(*text, " ");
	const char *slash = memchr(*text, '/', n);
	size_t name = slash ? (size_t)(slash - *text) : n, site = strcspn(*text, "=! ");

	*a = (struct keeper_address){.locks = ""};
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
keeper_address_key(const struct keeper_address *a, const struct keys *k)
{
	char *end;

	for (const char *c = a->locks; *c == '/'; c = end) {
		unsigned long long lock = strtoull(c + 1, &end, 16);

		for (size_t i = 0; i < k->n; i++)
			if (lock == lock_hash(k->backend->name, k->keys[i]))
				return k->keys[i];
	}
	return NULL;
}

bool
keeper_address_serves(const struct keeper_address *a, const struct backend *b)
{
	return !*a->backend || strcmp(a->backend, b->name) == 0;
}

/* "@NAME/NET/BACKEND/LOCK..." */
static void
write_address(char *out, const char *name, unsigned long long net, const struct keys *k)
{
	size_t n = snprintf(
	    out, KEEPER_BYTES, "@%s/%llx/%s", name, net, k->backend->name);

	for (size_t i = 0; i < k->n; i++)
		n += snprintf(out + n, KEEPER_BYTES - n, "/%llx",
		    lock_hash(k->backend->name, k->keys[i]));
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
keeper_address_connect(const struct keeper_address *a, int fd)
{
	struct sockaddr_un to;
	socklen_t size = fill_socket(&to, a->name, a->n);

	return connect(fd, (struct sockaddr *)&to, size);
}

/*
 * A name that is never used again: a process left behind must not find another
 * keeper at it.  And not the owner's, since every user of this machine can read
 * it.
 */
static bool
make_name(char *out, size_t size)
{
	unsigned long long id[2];
	bool made = getrandom(id, sizeof id, 0) == sizeof id;

	snprintf(out, size, "dlock-%016llx%016llx", made ? id[0] : 0, made ? id[1] : 0);
	return made;
}

int
keeper_address_listen(char *out, const struct keys *k)
{
	struct sockaddr_un a;
	char name[64];
	bool made = make_name(name, sizeof name);
	socklen_t size = fill_socket(&a, name, strlen(name));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 &&
	    (!made || bind(fd, (struct sockaddr *)&a, size) != 0 ||
		listen(fd, SOMAXCONN) != 0)) {
		close(fd);
		fd = -1;
	}
	write_address(out, name, fd < 0 ? NET_NONE : net_of(fd), k);
	return fd;
}

bool
keeper_address_is_ours(int fd, pid_t *pid)
{
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
	    peer.uid != geteuid())
		return false;
	*pid = peer.pid;
	return true;
}

/* ---- handles: "@dlock-ID/NET" ---- */

void
keeper_address_write_handle(const char *address, char *out)
{
	size_t n = strcspn(address, "/");

	n += address[n] == '/' ? 1 + strcspn(address + n + 1, "/ ") : 0;
	snprintf(out, HANDLE_BYTES, "%.*s", (int)n, address);
}

bool
keeper_address_read_handle(const char *handle, struct keeper_address *a)
{
	static const char digits[] = "0123456789abcdef";
	const char *name = "@dlock-", *id = handle + strlen(name);

	if (strncmp(handle, name, strlen(name)) != 0 || strspn(id, digits) != 32 ||
	    id[32] != '/' || strspn(id + 33, digits) != strlen(id + 33) || !id[33])
		return false;
	return strlen(handle) < HANDLE_BYTES && keeper_address_next(&handle, a);
}

bool
keeper_address_has_handle(const char *addresses, const char *handle)
{
	size_t n = strlen(handle);

	return strncmp(addresses, handle, n) == 0 && strchr("/ ", addresses[n]);
}
