/*
 * setting.c - Goal of these tests: what several backends read alike, they
 * read strictly: hosts and ports, secrets in files, durations.
 */
#include "backends/common/endpoint.h"
#include "backends/common/setting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- hosts and ports ---- */

static void
endpoints(void **state)
{
	static const struct {
		const char *text, *host; /* NULL: refused */
		int port;
	} rows[] = {
	    {"h", "h", 7},
	    {"h:1", "h", 1},
	    {"h.example_1-2:65535", "h.example_1-2", 65535},
	    {"10.0.0.1:80", "10.0.0.1", 80},
	    {"[::1]", "::1", 7},
	    {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
	    {"", NULL, 0},
	    {":80", NULL, 0},
	    {"h:", NULL, 0},
	    {"h:0", NULL, 0},
	    {"h:65536", NULL, 0},
	    {"h:655360", NULL, 0},
	    {"h:-1", NULL, 0},
	    {"h:8x", NULL, 0},
	    {"h:80:80", NULL, 0},
	    {"::1", NULL, 0},
	    {"[::1", NULL, 0},
	    {"[::1]80", NULL, 0},
	    {"[x]:80", NULL, 0},
	    {"h h", NULL, 0},
	    {"h\n", NULL, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct endpoint e;
		const char *wrong = endpoint_parse(
		    &e, rows[i].text, strlen(rows[i].text), 7);

		if (!rows[i].host != (wrong != NULL))
			fail_msg("'%s' is %s", rows[i].text, wrong ? wrong : "accepted");
		if (wrong)
			continue;
		assert_string_equal(e.host, rows[i].host);
		assert_int_equal(e.port, rows[i].port);
	}
}

static void
patience(void **state)
{
	static const char *const wrong[] = {"", "0", "0s", "-1", "+1", "1m", "2 s",
	    "1.5s", "s", "3601s", "3600001ms", "9223372037s", "9223372036855ms",
	    "99999999999999999999"};
	struct fault f;
	int64_t ns;

	(void)state;
	assert_int_equal(setting_timeout("500ms", &ns, &f), RC_OK);
	assert_true(ns == 500 * NS_PER_MS);
	assert_int_equal(setting_timeout("2s", &ns, &f), RC_OK);
	assert_true(ns == 2 * NS_PER_S);
	assert_int_equal(setting_timeout("3600", &ns, &f), RC_OK);
	assert_true(ns == 3600 * NS_PER_S);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(setting_timeout(wrong[i], &ns, &f), RC_USAGE);
}

/* ---- password files ---- */

static enum rc
read_password(const char *content, size_t n, mode_t mode, char *password)
{
	char name[] = "/tmp/dlock-unit-XXXXXX";
	int fd = mkstemp(name);
	char got[512] = "";
	struct fault f = {""};
	enum rc rc;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, n), n);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	rc = setting_secret("password-file", name, got, sizeof got, &f);
	unlink(name);
	strcpy(password, got);
	if (rc != RC_OK) {
		assert_string_equal(got, "");
		assert_null(strstr(f.text, "secret"));
	}
	return rc;
}

static void
password_files(void **state)
{
	char password[512], many[600];
	char got[512];
	struct fault f;

	(void)state;
	assert_int_equal(read_password("secret", 6, 0600, password), RC_OK);
	assert_string_equal(password, "secret");
	assert_int_equal(read_password("secret\n", 7, 0400, password), RC_OK);
	assert_string_equal(password, "secret");
	/* as editors of Windows end a line */
	assert_int_equal(read_password("secret\r\n", 8, 0600, password), RC_OK);
	assert_string_equal(password, "secret");
	assert_int_equal(read_password("\r\n", 2, 0600, password), RC_CONFIG);
	assert_int_equal(read_password("secret\r", 7, 0600, password), RC_OK);
	assert_string_equal(password, "secret\r");
	/* blanks may be part of it */
	assert_int_equal(read_password(" secret \n", 9, 0600, password), RC_OK);
	assert_string_equal(password, " secret ");
	assert_int_equal(read_password("", 0, 0600, password), RC_CONFIG);
	assert_int_equal(read_password("\n", 1, 0600, password), RC_CONFIG);
	assert_int_equal(read_password("secret\nmore\n", 12, 0600, password), RC_CONFIG);
	assert_int_equal(read_password("sec\0ret", 7, 0600, password), RC_CONFIG);
	/* root lets a group read it */
	assert_int_equal(read_password("secret", 6, 0640, password),
	    geteuid() == 0 ? RC_OK : RC_CONFIG);
	assert_int_equal(read_password("secret", 6, 0660, password), RC_CONFIG);
	assert_int_equal(read_password("secret", 6, 0604, password), RC_CONFIG);
	memset(many, 'x', sizeof many);
	assert_int_equal(read_password(many, 511, 0600, password), RC_OK);
	assert_int_equal(read_password(many, 512, 0600, password), RC_CONFIG);
	assert_int_equal(read_password(many, 600, 0600, password), RC_CONFIG);
	assert_int_equal(
	    setting_secret("password-file", "/nonexistent", got, sizeof got, &f),
	    RC_CONFIG);
	assert_int_equal(
	    setting_secret("password-file", "/tmp", got, sizeof got, &f), RC_CONFIG);
	assert_int_equal(
	    setting_secret("password-file", "/dev/zero", got, sizeof got, &f), RC_CONFIG);
}

/* ---- files that a library reads ---- */

/* Of a file that belongs to `owner` and has this mode, for a user who is not root. */
static enum rc
judge_file(uid_t owner, mode_t mode, bool secret)
{
	char name[] = "/tmp/dlock-unit-XXXXXX";
	int fd = mkstemp(name);
	struct fault f = {""};
	enum rc rc;

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	if (geteuid() == 0) {
		assert_int_equal(fchown(fd, owner, 12345), 0);
		assert_int_equal(setegid(12345), 0);
		assert_int_equal(seteuid(12345), 0);
	}
	rc = setting_file("key", name, secret, &f);
	if (getuid() == 0) {
		assert_int_equal(seteuid(0), 0);
		assert_int_equal(setegid(0), 0);
	}
	close(fd);
	unlink(name);
	if (rc != RC_OK)
		assert_non_null(strstr(f.text, name));
	return rc;
}

static void
secret_files(void **state)
{
	struct fault f;

	(void)state;
	assert_int_equal(judge_file(12345, 0600, true), RC_OK);
	assert_int_equal(judge_file(12345, 0400, true), RC_OK);
	assert_int_equal(judge_file(12345, 0640, true), RC_CONFIG);
	assert_int_equal(judge_file(12345, 0604, true), RC_CONFIG);
	assert_int_equal(judge_file(12345, 0644, false), RC_OK);
	assert_int_equal(judge_file(12345, 0, true), RC_CONFIG);
	assert_int_equal(setting_file("key", "/tmp", false, &f), RC_CONFIG);
	assert_int_equal(setting_file("key", "/tmp/none/such", true, &f), RC_CONFIG);
	assert_int_equal(setting_file("key", "", true, &f), RC_CONFIG);
	if (geteuid() != 0)
		return; /* can make no file of others */
	assert_int_equal(judge_file(0, 0640, true), RC_OK);
	assert_int_equal(judge_file(0, 0660, true), RC_CONFIG);
	assert_int_equal(judge_file(0, 0644, true), RC_CONFIG);
	assert_int_equal(judge_file(54321, 0640, true), RC_CONFIG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(endpoints),
	    cmocka_unit_test(patience),
	    cmocka_unit_test(password_files),
	    cmocka_unit_test(secret_files),
	};

	return cmocka_run_group_tests_name("setting", tests, NULL, NULL);
}
