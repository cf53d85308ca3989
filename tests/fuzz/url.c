/*
 * url.c - Goal of these tests: every text is a redis URL or none, and no password shows
 * in what is said about it.
 */
#include "backends/redis/address.h"
#include "tests/fuzz/fuzz.h"

static void
check(const char *url)
{
	struct address a, twin;
	struct fault f = {""}, other = {""};
	char where[WHERE_BYTES];
	enum rc rc = address_parse(&a, url, &f);

	CLAIM(rc == RC_OK || rc == RC_USAGE || rc == RC_CONFIG);
	CLAIM(address_parse(&twin, url, &other) == rc);
	if (rc != RC_OK) {
		CLAIM(*f.text && !strchr(f.text, '\n'));
		return;
	}
	CLAIM(a.hosts[0].port >= 1 && a.hosts[0].port <= 65535);
	CLAIM(a.db >= 0 && a.db <= 65535);
	CLAIM(!*a.hosts[0].host != !*a.path); /* one of them */
	CLAIM(a.n >= 1 && a.n <= ADDRESS_HOSTS);
	CLAIM(!*a.master == (a.form != FORM_SENTINEL));
	CLAIM(strlen(a.hosts[0].host) < sizeof a.hosts[0].host &&
	    strlen(a.path) < sizeof a.path);
	CLAIM(strlen(a.user) < sizeof a.user && strlen(a.password) < sizeof a.password);
	CLAIM(!*a.path || *a.path == '/');
	CLAIM(
	    strspn(a.hosts[0].host,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%") ==
		strlen(a.hosts[0].host) ||
	    strchr(a.hosts[0].host, '%')); /* a zone */
	CLAIM(memcmp(&a, &twin, sizeof a) == 0);
	address_print(&a, where, sizeof where);
	CLAIM(a.form == FORM_REDLOCK ? strncmp(where, "redlock ", 8) == 0 &&
		    a.n >= REDLOCK_LEAST && a.n <= REDLOCK_MOST
				     : strncmp(where, "redis ", 6) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = fuzz_string(data, size), *url = malloc(size + 20);

	if (!url)
		abort();
	check(s);
	sprintf(url, "redis://%s", s);
	check(url);
	sprintf(url, "redis+unix://%s", s);
	check(url);
	sprintf(url, "redlock://%s", s);
	check(url);
	free(url);
	free(s);
	return 0;
}
