/* keeper_address.c - where a keeper is reached by others, and where its locks are kept. */
#include "keeper_address.h"

#include "backends/common/libc.h"
#include "backends/common/text.h"
#include "backends/common/url.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* "/BACKEND" at `text`; a handle has none. */
static void
read_backend(struct keeper_address *a, const char *text)
{
	size_t n = *text == '/' ? strcspn(text + 1, "/=! ") : 0;

	if (n == 0 || n >= sizeof a->backend)
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
keeper_address_key(const struct keeper_address *a, const struct plan *p)
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
nested_site_keeper(const char **addresses, const struct plan *p, struct keeper_address *a)
{
	while (*addresses && keeper_address_next(addresses, a))
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
keeper_address_listen(char *out, const char *id, const struct plan *p)
{
	const char *backend = p->site.backend->name, *end = out + KEEPER_BYTES;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;
	socklen_t size;
	char name[64];

	text_put(text_put(name, name + sizeof name, "dlock-"), name + sizeof name, id);
	size = fill_socket(&a, name, strlen(name));
	if (fd >= 0 &&
	    (bind(fd, (struct sockaddr *)&a, size) != 0 || listen(fd, SOMAXCONN) != 0)) {
		close(fd);
		fd = -1;
	}
	out = text_put(text_put(out, end, "@"), end, name);
	out = text_put_hex(text_put(out, end, "/"), end, fd < 0 ? NET_NONE : net_of(fd));
	out = text_put(text_put(out, end, "/"), end, backend);
	for (size_t i = 0; i < p->nkeys; i++)
		out = text_put_hex(
		    text_put(out, end, "/"), end, lock_hash(backend, p->keys[i]));
	return fd;
}

/*
 * In its network namespace: that is read for the process, since we may be in another one.  Whose
 * the socket is does not matter.  Those that have joined bear the same name, without the flag.
 */
bool
keeper_address_is_open(const char *id, pid_t pid)
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

bool
keeper_address_is_ours(int fd, pid_t *pid)
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
keeper_address_connect(const struct keeper_address *a, int flags, pid_t *pid)
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
			error = a->net != net_of(fd)            ? ENONET
			    : errno == EACCES || errno == EPERM ? EPERM
								: ECONNREFUSED;
	if (!error && keeper_address_is_ours(fd, pid))
		return fd;
	close(fd);
	errno = error ? error : EPERM;
	return -1;
}

/* It may have no time just now. */
enum keeper_life
keeper_address_life(const struct keeper_address *a)
{
	pid_t pid;
	int fd = a->n ? keeper_address_connect(a, SOCK_NONBLOCK, &pid) : -1;

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

/* Is the address that of this handle? */
static bool
has_handle(const char *address, const char *handle)
{
	size_t n = strlen(handle);

	return strncmp(address, handle, n) == 0 && strchr("/ ", address[n]);
}

char *
keeper_address_living(const char *addresses, const char *handle)
{
	const char *next = addresses ? addresses + strspn(addresses, " ") : "",
		   *one = next;
	char *copy = malloc(strlen(next) + 1), *out = copy;
	struct keeper_address a;

	for (; out && keeper_address_next(&next, &a); one = next) {
		size_t n = strcspn(one, " ");

		if ((handle && has_handle(one, handle)) ||
		    keeper_address_life(&a) == KEEPER_ENDED)
			continue;
		if (out > copy)
			*out++ = ' ';
		out = (char *)memcpy(out, one, n) + n;
	}
	if (out)
		*out = '\0';
	return copy;
}

/* ---- where the locks are kept ---- */

/* Is its value the name of a file, which a process elsewhere would not find? */
static bool
is_relative_file(const struct backend *b, const struct setting *s)
{
	for (const struct setting_row *row = b->settings; row && row->name; row++)
		if (strcmp(row->name, s->name) == 0)
			return strcmp(row->arg ? row->arg : "", "FILE") == 0 &&
			    *s->value != '/';
	return false;
}

/* Appends a part; false: it does not fit. */
static bool
append_part(char *out, size_t *used, char mark, const char *text)
{
	size_t n;

	if (*used + 2 > SITE_BYTES)
		return false;
	out[(*used)++] = mark;
	n = encode_key(out + *used, SITE_BYTES - *used, text);
	out[ *used += n] = '\0';
	return n > 0 || !*text;
}

void
nested_site_write(char *out, const struct backend *b, const struct site *s)
{
	const char *url = s->url ? s->url : "";
	bool secret = mask_finds(s->url), fits;
	/* of which little is touched: of a stack all of it would be */
	static char masked[URL_BYTES], here[PATH_MAX], text[SETTINGS_BYTES + PATH_MAX];
	size_t used = 0;

	if (secret) {
		snprintf(masked, sizeof masked, "%s", url);
		mask_passwords(masked);
		url = masked;
	}
	fits = append_part(out, &used, secret ? '!' : '=', url);
	for (size_t i = 0; fits && i < s->nsettings; i++) {
		const struct setting *one = &s->settings[i];
		bool relative = is_relative_file(b, one) && getcwd(here, sizeof here);

		snprintf(text, sizeof text, "%s=%s%s%s", one->name, relative ? here : "",
		    relative ? "/" : "", one->value);
		fits = append_part(out, &used, '&', text);
	}
	if (!fits)
		*out = '\0';
}

/* The told settings stand before the plan's own, so that those win.  False: it is wrong. */
static bool
read_site(struct nested_site *w, const char *told, size_t size)
{
	const char *end = told + size, *next;
	size_t n = 0, used = 0;

	for (const char *part = told + 1; part <= end; part = next + 1) {
		char *text = w->text + used, *equals;
		size_t room = sizeof w->text - used;
		int length;

		next = memchr(part, '&', end - part);
		next = next ? next : end;
		length = room ? encode_undo(text, room, part, next - part) : -1;
		if (length < 0)
			return false;
		used += length + 1;
		if (part == told + 1)
			continue; /* the URL */
		equals = strchr(text, '=');
		if (!equals || n == SETTINGS_MAX)
			return false;
		*equals = '\0';
		w->settings[n++] = (struct setting){text, equals + 1};
	}
	for (size_t i = 0; i < w->site.nsettings; i++)
		w->settings[n++] = w->site.settings[i];
	w->site = (struct site){*w->text ? w->text : NULL, w->settings, n};
	w->secret = *told == '!';
	return true;
}

/* Has it a server of its own, not the default one?  A handle tells nothing. */
static bool
names_server(const struct keeper_address *a)
{
	return *a->backend && !(a->nsite == 1 && *a->site == '=');
}

void
nested_site_find(struct nested_site *w, const struct plan *p)
{
	const char *addresses = p->site.url ? NULL : getenv("DLOCK_KEEPER");
	enum keeper_life life = KEEPER_ENDED;
	struct keeper_address a;
	bool ended = false; /* one has, the nearest */

	w->site = (struct site){p->site.url, p->site.settings, p->site.nsettings};
	w->secret = false;
	w->unknown = NULL;
	while (life == KEEPER_ENDED && nested_site_keeper(&addresses, p, &a)) {
		life = keeper_address_life(&a);
		if (life == KEEPER_ENDED && !ended && names_server(&a))
			w->unknown = "the outer run has ended";
		ended = true;
	}
	if (life == KEEPER_ENDED || !p->site.inherits)
		return;
	w->unknown = life == KEEPER_HIDDEN
	    ? "that cannot be asked from here (it is another user's, or in another network namespace)"
	    : a.nsite && read_site(w, a.site, a.nsite) ? NULL
						       : "that has not said which";
}

enum rc
nested_site_check(const struct nested_site *w, struct fault *f)
{
	if (!w->unknown && !w->secret)
		return RC_OK;
	return fault_set(f, RC_USAGE,
	    "it would use the server of the outer run, but %s%s",
	    w->secret
		? "a URL with a password is not handed on: set DLOCK_URL for both, or say -u"
		: w->unknown,
	    w->secret ? "" : ": say -u, or unset DLOCK_KEEPER and its other variables");
}
