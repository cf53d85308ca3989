/* identity.c - writes which locks a store's are. */
#include "identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
identity_begin(struct identity *id, const char *backend)
{
	id->used = 0;
	id->one_lock = false;
	memset(id->text, 0, sizeof id->text);
	identity_add(id, "backend", backend);
}

/* "NAME=LENGTH:VALUE\n": a value cannot be taken for another part. */
static void
add_bytes(struct identity *id, const char *name, const char *value, size_t n)
{
	size_t room = id->used < sizeof id->text ? sizeof id->text - id->used : 0;

	id->used += snprintf(id->text + (room ? id->used : 0), room, "%s=%zu:%.*s\n",
	    name, n, (int)n, value);
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

	snprintf(text, sizeof text, "%llu", value);
	identity_add(id, name, text);
}

struct member {
	const char *at;
	size_t n;
};

static int
compare_members(const void *a, const void *b)
{
	const struct member *one = a, *other = b;
	size_t n = one->n < other->n ? one->n : other->n;
	int difference = memcmp(one->at, other->at, n);

	return difference ? difference : (one->n > other->n) - (one->n < other->n);
}

void
identity_list(struct identity *id, const char *name, const char *list, char separator)
{
	struct member members[64];
	const size_t most = sizeof members / sizeof *members;
	size_t n = 0;

	for (; n < most; list += members[n++].n + 1) {
		const char *end = strchrnul(list, separator);

		members[n] = (struct member){list, end - list};
		if (!*end) {
			n++;
			break;
		}
	}
	if (n == most)
		id->used = sizeof id->text; /* perhaps more: it equals nothing */
	qsort(members, n, sizeof *members, compare_members);
	for (size_t i = 0; i < n; i++)
		add_bytes(id, name, members[i].at, members[i].n);
}

bool
identity_is_whole(const struct identity *id)
{
	return id->used > 0 && id->used < sizeof id->text;
}
