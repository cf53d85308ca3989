/* hosts.c - cuts libpq's lists of hosts. */
#include "hosts.h"

#include <string.h>

/* Element n of a list with commas, and what comes behind it; one element stands for all. */
static const char *
element(const char *list, size_t n, size_t *length, const char **rest)
{
	while (list && n > 0 && strchr(list, ',')) {
		list = strchr(list, ',') + 1;
		n--;
	}
	*length = list ? strcspn(list, ",") : 0;
	*rest = list && list[*length] == ',' ? list + *length + 1 : NULL;
	return list;
}

static bool
is_element(const char *list, size_t n, const char *name)
{
	size_t length;
	const char *rest, *at = element(list, n, &length, &rest);

	return length == 0 || (strlen(name) == length && memcmp(at, name, length) == 0);
}

static const char *
names_of(const struct hosts *h)
{
	return h->host ? h->host : h->hostaddr;
}

size_t
hosts_count(const struct hosts *h)
{
	size_t n = 1;

	for (const char *p = names_of(h); p && (p = strchr(p, ',')); p++)
		n++;
	return n;
}

bool
hosts_behind(const struct hosts *h, const char *host, const char *port, struct hosts *behind)
{
	const char *rest = names_of(h);
	size_t length;

	for (size_t n = 0; rest; n++) {
		element(names_of(h), n, &length, &rest);
		if (!rest)
			return false;
		if (!is_element(names_of(h), n, host) || !is_element(h->port, n, port))
			continue;
		element(h->host, n, &length, &behind->host);
		element(h->hostaddr, n, &length, &behind->hostaddr);
		element(h->port, n, &length, &behind->port);
		return true;
	}
	return false;
}
