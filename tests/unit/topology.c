/*
 * topology.c - Goal of these tests: what the URLs of sentinels and clusters mean, where a
 * redirection leads, what the locks of keys with a tag are called, and what one connection
 * keeps.
 */
#include "backends/redis/dialects.h"
#include "backends/redis/route.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void
urls_of_several_hosts(void **state)
{
	static const struct {
		const char *url;
		enum form form;
		size_t n;
		const char *last;
		int port;
		const char *master, *password;
		int db;
		const char *printed;
	} rows[] = {
	    {"redis+sentinel://a,b:1,[::1]/m", FORM_SENTINEL, 3, "::1", 26379, "m", "", 0,
		"redis master m of the sentinels a:26379,b:1,[::1]:26379"},
	    {"redis+sentinel://u:p@a/my%2Dmaster/3", FORM_SENTINEL, 1, "a", 26379,
		"my-master", "p", 3, "redis master my-master of the sentinels a:26379"},
	    {"redis+cluster://a,b", FORM_CLUSTER, 2, "b", 6379, "", "", 0,
		"redis cluster a:6379,b:6379"},
	    {"redis+cluster://:p@a:7/", FORM_CLUSTER, 1, "a", 7, "", "p", 0,
		"redis cluster a:7"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct address a;
		struct fault f = {""};
		char printed[WHERE_BYTES];

		if (address_parse(&a, rows[i].url, &f) != RC_OK)
			fail_msg("%s: %s", rows[i].url, f.text);
		assert_int_equal(a.form, rows[i].form);
		assert_int_equal(a.n, rows[i].n);
		assert_string_equal(a.hosts[a.n - 1].host, rows[i].last);
		assert_int_equal(a.hosts[a.n - 1].port, rows[i].port);
		assert_string_equal(a.master, rows[i].master);
		assert_string_equal(a.password, rows[i].password);
		assert_int_equal(a.db, rows[i].db);
		address_print(&a, printed, sizeof printed);
		assert_string_equal(printed, rows[i].printed);
	}
}

/* As many as fit are printed. */
static void
many_long_hosts(void **state)
{
	char url[4000] = "redis+cluster://", printed[WHERE_BYTES];
	struct address a;
	struct fault f;

	(void)state;
	for (int i = 0; i < ADDRESS_HOSTS; i++)
		sprintf(url + strlen(url), "%s%060d.%060d.example", i ? "," : "", 0, i);
	assert_int_equal(address_parse(&a, url, &f), RC_OK);
	address_print(&a, printed, sizeof printed);
	assert_int_equal(strlen(printed), sizeof printed - 1);
}

static void
redirections(void **state)
{
	static const struct {
		const char *text, *host;
		int port;
	} rows[] = {
	    {"MOVED 1 127.0.0.1:7401", "127.0.0.1", 7401},
	    {"ASK 1 node-1.example:1", "node-1.example", 1},
	    {"MOVED 15495 ::1:7453", "::1", 7453},
	    {"MOVED 1 :7401", "here", 7401},
	    {"MOVED 1 h:0", NULL, 0},
	    {"MOVED 1 h:65536", NULL, 0},
	    {"MOVED 1 h:x", NULL, 0},
	    {"MOVED 1 h", NULL, 0},
	    {"MOVED 1", NULL, 0},
	    {"MOVED ", NULL, 0},
	    {"MOVED 1 a b:7", NULL, 0},
	    {"MOVED 1 a\tb:7", NULL, 0},
	};
	struct route r = {.server = {.peer = {.at = {"here", 1}}}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct endpoint to;
		bool good = route_redirection(&r, rows[i].text, &to);

		if (good != (rows[i].host != NULL))
			fail_msg("%s: %d", rows[i].text, good);
		if (good) {
			assert_string_equal(to.host, rows[i].host);
			assert_int_equal(to.port, rows[i].port);
		}
	}
}

static void
a_tag_comes_first_in_a_cluster(void **state)
{
	static const struct {
		const char *key, *name;
	} rows[] = {
	    {"job", "dlock:{job}:h"},
	    {"a{b}c", "dlock:{b}:a%7Bb%7Dc:h"},
	    {"{b}", "dlock:{b}:%7Bb%7D:h"},
	    {"a{}c{d}", "dlock:{a%7B%7Dc%7Bd%7D}:h"},
	    {"a}b{c", "dlock:{a%7Db%7Bc}:h"},
	    {"{x{y}z", "dlock:{x{y}:%7Bx%7By%7Dz:h"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct names single, cluster;
		char plain[NAME_BYTES], encoded[ENCODED_BYTES];

		encode_key(encoded, sizeof encoded, rows[i].key);
		snprintf(plain, sizeof plain, "dlock:{%s}:h", encoded);
		dialect_name(&dialects[DIALECT_NATIVE], &single, FORM_SINGLE,
		    &(struct claim){.key = rows[i].key, .owner = ""});
		assert_string_equal(single.keys[0], plain);
		dialect_name(&dialects[DIALECT_NATIVE], &cluster, FORM_CLUSTER,
		    &(struct claim){.key = rows[i].key, .owner = ""});
		assert_string_equal(cluster.keys[0], rows[i].name);
	}
	assert_true(dialect_shares_slot("a{t}", "{t}b"));
	assert_false(dialect_shares_slot("a{t}", "a{u}"));
	assert_false(dialect_shares_slot("a", "b"));
	assert_false(dialect_shares_slot("a{t}", "t"));
}

/* 512 bytes, of which most become three, and most are the tag. */
static void
the_longest_names_fit(void **state)
{
	char key[KEY_BYTES + 1], id[ONCE_BYTES + 1];
	struct claim claim = {.key = key, .owner = "", .job = {.once = id}};
	struct names names;
	size_t n;

	(void)state;
	memset(key, '!', KEY_BYTES);
	key[0] = '{';
	key[KEY_BYTES - 1] = '}';
	key[KEY_BYTES] = '\0';
	memset(id, '/', ONCE_BYTES);
	id[ONCE_BYTES] = '\0';
	dialect_name(&dialects[DIALECT_NATIVE], &names, FORM_CLUSTER, &claim);
	n = strlen("dlock:{}::h") + KEY_BYTES - 2 + 3 * KEY_BYTES;
	assert_int_equal(strlen(names.keys[0]), n);
	assert_int_equal(strlen(names.keys[6]), n);
	assert_int_equal(strlen(names.keys[7]), n + 1 + 3 * ONCE_BYTES);
}

/* The last seed is not the last node; a node is remembered once. */
static void
nodes_are_tried_in_turn(void **state)
{
	struct route r = {.n = 0};
	struct address a;
	struct fault f;

	(void)state;
	assert_int_equal(address_parse(&a, "redis+cluster://a,b", &f), RC_OK);
	route_init(&r, NULL, &a, NULL);
	assert_int_equal(route_find(&r, NEVER, &f), RC_OK);
	assert_string_equal(r.server.peer.at.host, "a");
	route_doubt(&r);
	assert_int_equal(route_find(&r, NEVER, &f), RC_OK);
	assert_string_equal(r.server.peer.at.host, "b");
	for (int i = 0; i < 3 * NODES; i++) {
		struct endpoint e = {"n", 1 + i % (2 * NODES)};

		route_move(&r, &e);
		assert_true(endpoint_is(&r.server.peer.at, &e));
		assert_true(r.n <= NODES);
	}
	route_doubt(&r);
	assert_int_equal(route_find(&r, NEVER, &f), RC_OK);
	assert_string_equal(r.server.peer.at.host, "a");
	route_free(&r);
}

/* A server of one connection, which answers as soon as it is waited for, and may close then. */
static int listener, taken = -1;
static const char *answer = "+OK\r\n";
static bool closes;

static enum woke
serve(struct host *host, int fd, short events, instant until)
{
	struct pollfd comes = {listener, POLLIN, 0}, p = {fd, events, 0};
	int64_t ms = ns_to_ms(until - instant_now()) + 1;

	(void)host;
	if (taken < 0 && poll(&comes, 1, 0) > 0) {
		taken = accept(listener, NULL, NULL);
		assert_int_equal(write(taken, answer, strlen(answer)), strlen(answer));
		if (closes)
			close(taken);
	}
	return poll(&p, 1, ms > 0 ? (int)ms : 0) > 0 ? WOKE_READY : WOKE_TIMEOUT;
}

static int
listen_on_loopback(int *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t size = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	*port = ntohs(at.sin_port);
	return fd;
}

/*
 * A connection that is open keeps no addresses: many wait for long.  A question that goes on with
 * what was said on it goes over no other one, also if it was closed a moment ago.
 */
static void
one_connection(void **state)
{
	struct question q = {.command = "*1\r\n$4\r\nPING\r\n"};
	struct host host = {.wait = serve, .alert = -1};
	struct server s = {.inspected = false};
	instant until = instant_now() + 10 * NS_PER_S;
	struct address a;
	redisReply *reply;
	struct fault f;
	char url[64];
	int port;

	(void)state;
	listener = listen_on_loopback(&port);
	snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
	assert_int_equal(address_parse(&a, url, &f), RC_OK);
	server_init(&s, &host, &a);
	assert_int_equal(server_ask(&s, &q, until, &reply, &f), RC_OK);
	freeReplyObject(reply);
	assert_true(s.peer.stream.fd >= 0);
	assert_null(s.peer.addresses);

	q.continues = true;
	close(taken);
	assert_int_equal(server_ask(&s, &q, until, &reply, &f), RC_AGAIN);
	assert_non_null(strstr(f.text, "closed the connection within a request"));
	assert_false(s.peer.told);
	server_close(&s);
	close(listener);
}

/*
 * A server that is full says so and closes: that answers the question, not the PING in front of it,
 * and nobody has heard the question.  What it answers to ASKING is no answer to what follows.
 */
static void
what_comes_in_front(void **state)
{
	static const struct {
		const char *answer;
		bool asking, closes;
		enum rc rc;
		const char *says; /* the answer, or why there is none */
	} rows[] = {
	    {"+PONG\r\n:1\r\n", false, false, RC_OK, NULL},
	    {"-MISCONF x\r\n:1\r\n", false, false, RC_OK, NULL},
	    {"-NOPERM x\r\n-ERR y\r\n", false, false, RC_OK, "ERR y"},
	    {"-ERR max number of clients reached\r\n", false, true, RC_OK, "max number"},
	    {"-DENIED x\r\n", false, true, RC_OK, "DENIED"},
	    {"-NOPERM x\r\n", false, true, RC_AGAIN, "closed the connection"},
	    {"+PONG\r\n", false, true, RC_AGAIN, "closed the connection"},
	    {"+PONG\r\n+OK\r\n:1\r\n", true, false, RC_OK, NULL},
	    {"+PONG\r\n-NOPERM x\r\n-MOVED 1 h:1\r\n", true, false, RC_DENIED, "NOPERM"},
	};
	struct host host = {.wait = serve, .alert = -1};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct question q = {.command = "*1\r\n$4\r\nTIME\r\n",
		    .ping_first = true,
		    .asking = rows[i].asking};
		instant until = instant_now() + 10 * NS_PER_S;
		struct route r = {.n = 0};
		redisReply *reply;
		struct address a;
		struct fault f;
		char url[64];
		int port;

		answer = rows[i].answer;
		closes = rows[i].closes;
		taken = -1;
		listener = listen_on_loopback(&port);
		snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
		assert_int_equal(address_parse(&a, url, &f), RC_OK);
		route_init(&r, &host, &a, NULL);
		assert_int_equal(route_ask(&r, &q, until, &reply, &f), rows[i].rc);
		assert_int_equal(r.repeated, rows[i].rc == RC_AGAIN);
		if (rows[i].rc != RC_OK)
			assert_non_null(strstr(f.text, rows[i].says));
		else if (rows[i].says)
			assert_non_null(strstr(reply->str, rows[i].says));
		else
			assert_int_equal(reply->integer, 1);
		freeReplyObject(reply);
		route_free(&r);
		if (!closes)
			close(taken);
		close(listener);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(urls_of_several_hosts),
	    cmocka_unit_test(many_long_hosts),
	    cmocka_unit_test(redirections),
	    cmocka_unit_test(a_tag_comes_first_in_a_cluster),
	    cmocka_unit_test(the_longest_names_fit),
	    cmocka_unit_test(nodes_are_tried_in_turn),
	    cmocka_unit_test(one_connection),
	    cmocka_unit_test(what_comes_in_front),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
