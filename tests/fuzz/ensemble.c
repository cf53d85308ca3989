/*
 * ensemble.c - Goal of these tests: every text is a ZooKeeper URL or none, with TLS as without, and
 * no password shows in what is said about it.
 */
#include "backends/zk/ensemble.h"
#include "tests/fuzz/fuzz.h"

static void
check(const char *url, bool secure)
{
	struct ensemble e, twin;
	struct fault f = {""}, other = {""};
	char where[256];
	enum rc rc = ensemble_parse(&e, url, &f);
	size_t hosts = 1;

	CLAIM(rc == RC_OK || rc == RC_USAGE);
	CLAIM(ensemble_parse(&twin, url, &other) == rc);
	if (rc != RC_OK) {
		CLAIM(*f.text && !strchr(f.text, '\n'));
		return;
	}
	CLAIM(memcmp(&e, &twin, sizeof e) == 0);
	CLAIM(*e.hosts && strlen(e.hosts) < sizeof e.hosts);
	CLAIM(!*e.chroot || ensemble_is_path(e.chroot));
	CLAIM(!*e.login == !strchr(e.login, ':'));
	CLAIM(!e.tls);
	ensemble_print(&e, where, sizeof where);
	CLAIM(strncmp(where, e.secure ? "zks " : "zk ", e.secure ? 4 : 3) == 0);
	if (secure)
		CLAIM(e.secure);
	for (const char *at = e.hosts; (at = strchr(at, ',')); at++)
		hosts++;
	for (size_t i = 0; i < hosts && i < 8; i++)
		ensemble_rotate(&e, 1);
	if (hosts <= 8)
		CLAIM(strcmp(e.hosts, twin.hosts) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = fuzz_string(data, size), *url = malloc(size + 20);

	if (!url)
		abort();
	check(s, false);
	sprintf(url, "zk://%s", s);
	check(url, false);
	sprintf(url, "zks://%s", s);
	check(url, true);
	free(url);
	free(s);
	return 0;
}
