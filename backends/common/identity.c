/* identity.c - writes and compares identities. */
#include "identity.h"

#include "append.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool
identity_ask(struct identity *id, const struct backend *b, struct store *s)
{
	struct fault unused;
	bool known;

	id->used = 0;
	id->one_lock = s->caps & ONE_LOCK;
	*id->text = *id->files = '\0';
	memset(id->view, 0, sizeof id->view);
	identity_add(id, "backend", b->name);
	known = s->backend->identify && s->backend->identify(s, id, &unused) == RC_OK &&
	    id->used < sizeof id->text;
	if (!known)
		*id->text = '\0';
	return known;
}

/* Adds "NAME=LENGTH:VALUE\n".  The length keeps a value from being taken for another part. */
static void
add_bytes(struct identity *id, const char *name, const char *value, size_t n)
{
	char head[64], *end = head + sizeof head, *at;
	size_t nhead;

	at = append_text(append_text(head, end, name), end, "=");
	at = append_text(append_number(at, end, n), end, ":");
	nhead = at - head;
	if (id->used + nhead + n + 1 >= sizeof id->text) {
		id->used = sizeof id->text;
		return;
	}
	at = memcpy(id->text + id->used, head, nhead);
	at = (char *)memcpy(at + nhead, value, n) + n;
	memcpy(at, "\n", 2);
	id->used += nhead + n + 1;
}

void
identity_add(struct identity *id, const char *name, const char *value)
{
	if (value)
		add_bytes(id, name, value, strlen(value));
}

void
identity_number(struct identity *id, const char *name, unsigned long long value)
{
	char text[24];

	append_number(text, text + sizeof text, value);
	identity_add(id, name, text);
}

struct element {
	const char *at;
	size_t n;
};

static int
compare_elements(const void *a, const void *b)
{
	const struct element *one = a, *other = b;
	size_t n = one->n < other->n ? one->n : other->n;
	int difference = memcmp(one->at, other->at, n);

	return difference ? difference : (one->n > other->n) - (one->n < other->n);
}

void
identity_list(struct identity *id, const char *name, const char *list, char separator)
{
	struct element elements[64];
	const size_t most = sizeof elements / sizeof *elements;
	size_t n = 0;

	for (; n < most; list += elements[n++].n + 1) {
		const char *end = strchrnul(list, separator);

		elements[n] = (struct element){list, end - list};
		if (!*end) {
			n++;
			break;
		}
	}
	if (n == most)
		id->used = sizeof id->text; /* there may be more, so it equals nothing */
	qsort(elements, n, sizeof *elements, compare_elements);
	for (size_t i = 0; i < n; i++)
		add_bytes(id, name, elements[i].at, elements[i].n);
}

/* ---- files that names lead to ---- */

/* Notes the mount namespace and the root, from which files are looked up. */
static void
note_view(uint64_t view[4])
{
	struct stat ns, root;

	if (stat("/proc/self/ns/mnt", &ns) != 0 || stat("/", &root) != 0)
		return;
	view[0] = ns.st_dev;
	view[1] = ns.st_ino;
	view[2] = root.st_dev;
	view[3] = root.st_ino;
}

void
identity_file(struct identity *id, const char *path)
{
	char *at = id->files + strlen(id->files), *end = id->files + sizeof id->files;
	struct stat st = {.st_ino = 0};

	if (at == id->files)
		note_view(id->view);
	(void)stat(path, &st);
	at = append_number(at, end, st.st_dev);
	at = append_number(append_text(at, end, ":"), end, st.st_ino);
	append_text(at, end, ";");
}

void
identity_hosts(struct identity *id, const char *hosts)
{
	const char *end;

	for (; *hosts; hosts = *end ? end + 1 : end) {
		size_t n = strcspn(hosts, ","), digits = strspn(hosts, "0123456789.:[]");
		const char *colon = memchr(hosts, ':', n);

		end = hosts + n;
		/* an address of IPv6 has two colons */
		if (digits >= n || (colon && memchr(colon + 1, ':', end - colon - 1)))
			continue;
		identity_file(id, "/etc/hosts");
		return;
	}
}

bool
identity_is_same(const struct identity *a, const struct identity *b)
{
	bool seen_alike = a->view[1] && memcmp(a->view, b->view, sizeof a->view) == 0;

	return strncmp(a->text, b->text, sizeof a->text) == 0 &&
	    (!*a->files || seen_alike ||
		strncmp(a->files, b->files, sizeof a->files) == 0);
}
