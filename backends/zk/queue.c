/* queue.c - orders the children of a lock directory as Curator does. */
#include "queue.h"

#include <string.h>

/* What counts of a name. */
static const char *
rank(const char *name)
{
	const char *last = NULL;

	for (const char *s = strstr(name, "lock-"); s; s = strstr(s + 1, "lock-"))
		last = s + strlen("lock-");
	return last ? last : name;
}

static bool
stands_before(const char *a, const char *b)
{
	int order = strcmp(rank(a), rank(b));

	return order < 0 || (order == 0 && strcmp(a, b) < 0);
}

static bool
is_foreign(const char *name)
{
	static const char *const marks[] = {"__lock__", "__rlock__", "__READ__", "__WRIT__"};

	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
		if (strstr(name, marks[i]))
			return true;
	return strcmp(name, "locks") == 0 || strcmp(name, "leases") == 0;
}

/* "...lock-2147483647", "...lock--2147483648" */
static bool
is_exhausted(const char *name)
{
	const char *number = rank(name);

	if (number == name)
		return false;
	return strcmp(number, "2147483647") == 0 || (number[0] == '-' && number[1] >= '0' && number[1] <= '9');
}

void
queue_look(struct place *ret, const char *const *names, size_t n, const char *own)
{
	*ret = (struct place){.found = false};
	for (size_t i = 0; i < n; i++) {
		const char *name = names[i];

		if (!ret->foreign && is_foreign(name))
			ret->foreign = name;
		if (!ret->exhausted && is_exhausted(name))
			ret->exhausted = name;
		if (strcmp(name, own) == 0)
			ret->found = true;
		if (!ret->first || stands_before(name, ret->first))
			ret->first = name;
		if (!stands_before(name, own))
			continue;
		ret->before++;
		if (!ret->ahead || stands_before(ret->ahead, name))
			ret->ahead = name;
	}
}
