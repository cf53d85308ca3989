/*
 * etcd.c - Goal of these tests: what decides in the etcd backend without a server: whom a queue
 * lets in and what is watched, names and values, HTTP; and the rule of credit.h, tried against
 * simulated clusters whose leaders stall, change and answer late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/etcd/etcd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the queue ---- */

struct stands {
	const char *name;
	bool held;
};

/* An answer to a survey in which these stand before us, who are "ffff" of some kind. */
static json_t *
survey_of(const struct stands *s, size_t n, bool frozen)
{
	json_t *kvs = json_array(), *own, *freeze = json_object();
	char key[128], coded[512], text[KV_VALUE_BYTES], value[4 * KV_VALUE_BYTES];

	for (size_t i = 0; i < n; i++) {
		struct queue_value v = {.held = s[i].held, .since = 1, .slot = -1};

		memset(v.owner, 'a', OWNER_CHARS);
		queue_value_write(text, &v);
		snprintf(key, sizeof key, "dlock/q/k/%s", s[i].name);
		base64_write(coded, key, strlen(key));
		base64_write(value, text, strlen(text));
		json_array_append_new(kvs,
		    json_pack("{s:s, s:s, s:I}", "key", coded, "value", value,
			"create_revision", (json_int_t)(i + 1)));
	}
	base64_write(coded, "dlock/q/k/ffff", 14);
	own = json_pack(
	    "{s:[{s:s, s:I}]}", "kvs", "key", coded, "create_revision", (json_int_t)100);
	if (frozen)
		json_object_set_new(freeze, "kvs",
		    json_pack(
			"[{s:s, s:I}]", "key", "Zg==", "create_revision", (json_int_t)5));
	return json_pack("{s:{s:s}, s:[{s:o}, {s:o}, {s:{s:O}}, {s:{}}]}", "header",
	    "revision", "200", "responses", "r", own, "r", freeze, "r", "kvs", kvs, "r");
}

struct judged {
	struct queue q;
	struct names names;
	struct claim claim;
	struct watch_list watch;
};

static void
judge_queue(struct judged *j, enum lock_kind kind, unsigned limit, const struct stands *s,
    size_t n)
{
	json_t *answer = survey_of(s, n, false);

	memset(j, 0, sizeof *j);
	names_of(&j->names, "dlock", NULL, "k");
	j->claim = (struct claim){.key = "k", .kind = kind, .limit = limit};
	j->q.names = &j->names;
	j->q.claim = &j->claim;
	j->q.own = "dlock/q/k/ffff";
	assert_non_null(answer);
	queue_read(&j->q, answer, 0);
	queue_watch(&j->q, &j->watch);
	json_decref(answer);
}

static const char *
watched_name(const struct judged *j)
{
	const char *key = j->watch.at[1].key;

	return strncmp(key, "dlock/q/k/", 10) == 0 && key[10] ? key + 10 : key;
}

static void
whom_a_queue_lets_in(void **state)
{
	static struct {
		enum lock_kind kind;
		unsigned limit;
		struct stands before[4];
		bool in;
		const char *watched; /* NULL: the freeze */
		bool mixed;
	} rows[] = {
	    {KIND_EXCLUSIVE, 0, {{0}}, true, NULL, false},
	    {KIND_EXCLUSIVE, 0, {{"1", true}}, false, "1", false},
	    {KIND_EXCLUSIVE, 0, {{"1", true}, {"2", false}}, false, "2", false},
	    {KIND_EXCLUSIVE, 0, {{"1.r", true}, {"2.r", true}}, false, "2.r", false},
	    {KIND_EXCLUSIVE, 0, {{"1.3", true}}, false, "1.3", false},
	    {KIND_SHARED, 0, {{"1.r", true}, {"2.r", false}}, true, NULL, false},
	    {KIND_SHARED, 0, {{"1.r", true}, {"2", false}, {"3.r", false}}, false, "2",
		false},
	    {KIND_SHARED, 0, {{"1", true}, {"2", false}, {"3.r", false}}, false, "2",
		false},
	    {KIND_SHARED, 0, {{"1.3", true}}, true, NULL, true},
	    {KIND_LIMIT, 3, {{"1.r", true}}, true, NULL, true},
	    {KIND_LIMIT, 3, {{"1.2", true}}, true, NULL, true},
	    {KIND_LIMIT, 3, {{"1.3", true}, {"2.3", true}}, true, NULL, false},
	    /* it has yet to take its permit, and is to have the smaller token for a slot */
	    {KIND_LIMIT, 3, {{"1.3", true}, {"2.3", false}}, false, "2.3", false},
	    {KIND_LIMIT, 4, {{"1.4", false}, {"2.4", false}}, false, "2.4", false},
	    {KIND_LIMIT, 3, {{"1.3", false}, {"2.3", true}}, false, "dlock/q/k/", false},
	    {KIND_LIMIT, 2, {{"1.2", true}, {"2.2", true}}, false, "dlock/q/k/", false},
	    {KIND_LIMIT, 2, {{"1.2", true}, {"2.2", true}, {"3.2", false}}, false, "3.2",
		false},
	    {KIND_LIMIT, 3, {{"1", true}}, false, "1", false},
	    {KIND_LIMIT, 3, {{"1.3", true}, {"2", false}, {"3.3", false}}, false, "2",
		false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		static struct judged j;
		size_t n = 0;

		while (n < 4 && rows[i].before[n].name)
			n++;
		judge_queue(&j, rows[i].kind, rows[i].limit, rows[i].before, n);
		assert_int_equal(queue_lets_in(&j.q), rows[i].in);
		assert_int_equal(j.q.mixed, rows[i].mixed);
		assert_string_equal(
		    watched_name(&j), rows[i].watched ? rows[i].watched : j.names.freeze);
	}
}

static void
the_lowest_free_permit(void **state)
{
	static struct queue q;
	struct claim c = {.kind = KIND_LIMIT, .limit = 12};

	(void)state;
	q.claim = &c;
	q.used[0] = 0x0b;
	assert_int_equal(queue_permit(&q, 0), 2);
	assert_int_equal(queue_permit(&q, 3), 4);
	q.used[0] = 0xff;
	q.used[1] = 0x0f;
	assert_int_equal(queue_permit(&q, 0), 12);
}

static void
names_of_the_queue(void **state)
{
	static const char *const wrong[] = {"", "g", "1.", "1.0", "1.100001", "1.rr",
	    "1x", "12345678901234567", "a/b", "1.-1", "1. 2"};
	struct queue_name n, m;

	(void)state;
	queue_name_write(&n, 0x1f, KIND_LIMIT, 100000);
	assert_string_equal(n.text, "1f.100000");
	assert_true(
	    queue_name_read(&m, n.text) && m.kind == KIND_LIMIT && m.limit == 100000);
	queue_name_write(&n, INT64_MAX, KIND_SHARED, 0);
	assert_string_equal(n.text, "7fffffffffffffff.r");
	assert_true(queue_name_read(&m, n.text) && m.kind == KIND_SHARED);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(queue_name_read(&m, wrong[i]));
	assert_true(lease_of("a", "b", 0) != lease_of("a", "b", 1));
	assert_true(lease_of("a", "b", 0) > 0);
}

static void
hostile_times(void **state)
{
	static const struct {
		const char *time;
		bool good;
	} rows[] = {{"0", true}, {"-1", true}, {"1152921504606846975", true},
	    {"1152921504606846976", false}, {"-1152921504606846976", false},
	    {"9223372036854775807", false}, {"-9223372036854775808", false}};
	char text[256];
	struct queue_value v;
	struct freeze z;
	struct run r;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *t = rows[i].time;

		snprintf(text, sizeof text, "dlock1 %032d h %s -1 x", 1, t);
		assert_int_equal(queue_value_read(&v, text), rows[i].good);
		snprintf(text, sizeof text, "dlock1 %s 5 x", t);
		assert_int_equal(freeze_read(&z, text), rows[i].good);
		snprintf(text, sizeof text, "dlock1 5 %s x", t);
		assert_int_equal(freeze_read(&z, text), rows[i].good);
		assert_true(rows[i].good || (z.since == 0 && z.until == EPOCH_NONE));
		snprintf(text, sizeof text, "dlock1 %s 5 1 0 id= x", t);
		assert_int_equal(run_read(&r, text), rows[i].good);
		snprintf(text, sizeof text, "dlock1 5 %s 1 0 id= x", t);
		assert_int_equal(run_read(&r, text), rows[i].good);
	}
}

/* ---- requests without memory ---- */

static int allocations, failing = -1; /* the one that fails */

void *__real_malloc(size_t);
void *__wrap_malloc(size_t);

void *
__wrap_malloc(size_t n)
{
	return allocations++ == failing ? NULL : __real_malloc(n);
}

/* A grant with all that it may ask for, a range with all its fields, and a grant of a lease. */
static void
all_requests(struct judged *j, struct call calls[3])
{
	const struct kv_range r = {"a", "b", 1, 2, 3, 4, true, false, true, true};
	struct txn t = {0};

	kv_if(&t.compare, "a", NULL, "EQUAL", 0);
	kv_if(&t.compare, "a", "b", "GREATER", 6);
	kv_if_unchanged(&t.compare, "c", 5);
	kv_op_put(&t.success, "a", "x", 9);
	kv_op_delete(&t.success, "b", "c");
	kv_op_delete(&t.success, "b", NULL);
	queue_ask(&j->q, false, &t.success);
	queue_ask(&j->q, true, &t.failure);
	calls[0] = call_txn(&t);
	calls[1] = call_range(&r);
	calls[2] = call_grant(7, NS_PER_S);
}

static void
requests_are_json(void **state)
{
	static struct judged j;
	struct call calls[3];
	json_t *txn, *first, *range;

	(void)state;
	judge_queue(&j, KIND_EXCLUSIVE, 0, NULL, 0);
	all_requests(&j, calls);
	txn = json_loads(calls[0].ask.at, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(txn, "compare")), 3);
	assert_int_equal(json_array_size(json_object_get(txn, "success")), 5);
	assert_int_equal(json_array_size(json_object_get(txn, "failure")), 4);
	first = json_array_get(json_object_get(txn, "compare"), 0);
	assert_string_equal(json_string_value(json_object_get(first, "key")), "YQ==");
	assert_null(json_object_get(first, "range_end"));
	assert_non_null(json_object_get(first, "create_revision"));
	range = json_loads(calls[1].ask.at, 0, NULL);
	assert_int_equal(json_object_size(range), 10);
	assert_int_equal(kv_number(range, "max_create_revision"), 3);
	assert_string_equal(calls[2].ask.at, "{\"ID\":7,\"TTL\":1}");
	json_decref(txn);
	json_decref(range);
	calls_free(calls, 3);
}

/* One without a condition could make two holders. */
static void
no_request_is_sent_in_part(void **state)
{
	static struct judged j;
	struct call whole[3], calls[3];
	int most;

	(void)state;
	judge_queue(&j, KIND_EXCLUSIVE, 0, NULL, 0);
	j.claim.job = (struct job){.once = "x", .cooldown = 1};
	allocations = 0;
	all_requests(&j, whole);
	most = allocations;
	assert_true(most > 5);
	for (int i = 0; i < most; i++) {
		int failed = 0;

		allocations = 0;
		failing = i;
		all_requests(&j, calls);
		failing = -1;
		for (int k = 0; k < 3; k++) {
			failed += calls[k].ask.failed;
			if (!calls[k].ask.failed)
				assert_string_equal(calls[k].ask.at, whole[k].ask.at);
		}
		assert_int_equal(failed, 1);
		calls_free(calls, 3);
	}
	calls_free(whole, 3);
}

/* ---- HTTP ---- */

/* A server that has sent this text, of which each read gives so many bytes, and nothing more. */
static struct {
	const char *text;
	size_t left, step;
} coming;

static ssize_t
read_sent(struct stream *s, void *to, size_t size)
{
	size_t n = coming.left < coming.step ? coming.left : coming.step;

	(void)s;
	n = n < size ? n : size;
	memcpy(to, coming.text, n);
	coming.text += n;
	coming.left -= n;
	return (ssize_t)n;
}

static bool
is_all_read(struct stream *s)
{
	(void)s;
	return coming.left == 0;
}

static const struct stream_ops sending = {
    NULL, read_sent, is_all_read, stream_hung_up, NULL};

static void
connect_to_text(struct connection *k, const char *text, size_t n, size_t step)
{
	memset(k, 0, sizeof *k);
	stream_init(&k->stream, NULL, "it");
	k->stream.ops = &sending;
	k->stream.fd = open("/dev/null", O_RDONLY);
	coming.text = text;
	coming.left = n;
	coming.step = step;
}

static void
replies_of_http(void **state)
{
	static const struct {
		const char *text, *body;
		bool good;
		int64_t date;
	} rows[] = {
	    {"HTTP/1.1 200 OK\r\nDate: Thu, 26 Nov 2026 00:56:36 GMT\r\nContent-Length: 2\r\n\r\nhi",
		"hi", true, 1795654596},
	    {"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3;x\nabc\n2\r\nde\r\n0\r\nGrpc-Trailer: x\r\n\r\n",
		"abcde", true, -1},
	    {"HTTP/1.0 400 Bad Request\r\n\r\n", NULL, true, -1},
	    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", NULL, false, -1},
	    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", NULL, false, -1},
	    {"HTTP/2 200\r\n\r\n", NULL, false, -1},
	    {"+PONG\r\n", NULL, false, -1},
	    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", NULL,
		false, -1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (size_t step = 1; step < 40; step += 13) {
			struct connection k;
			struct fault f;
			bool good;

			connect_to_text(&k, rows[i].text, strlen(rows[i].text), step);
			good = http_read(&k, instant_now() + NS_PER_S, &f) == RC_OK;
			assert_int_equal(good, rows[i].good);
			assert_true(good || k.stream.fd < 0);
			if (good) {
				assert_int_equal(k.used - k.at + coming.left, 0);
				assert_int_equal(k.date, rows[i].date);
				assert_string_equal(
				    k.n ? k.body : "", rows[i].body ? rows[i].body : "");
			}
			http_close(&k);
		}
}

/* Lines are found wherever chunks and reads cut them. */
static void
lines_of_a_stream(void **state)
{
	static const char lines[] =
	    "{\"result\":{}}\n\n{\"result\":{\"events\":[{}]}}\n{\"result\":{}}\n";
	enum { SIZE = sizeof lines - 1 };

	(void)state;
	for (size_t chunk = 1; chunk <= SIZE; chunk++)
		for (size_t step = 1; step < 70; step += 7) {
			static struct cluster c;
			char text[20 * sizeof lines];
			struct fault f;
			bool events;
			int n = snprintf(text, sizeof text,
			    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");

			for (size_t at = 0; at < SIZE; at += chunk) {
				size_t part = SIZE - at < chunk ? SIZE - at : chunk;

				n += snprintf(text + n, sizeof text - (size_t)n,
				    "%zx\r\n%.*s\r\n", part, (int)part, lines + at);
			}
			connect_to_text(&c.watch, text, (size_t)n, step);
			assert_int_equal(
			    watch_read(&c, &events, instant_now() + NS_PER_S, &f), RC_OK);
			assert_true(events && c.watch.n == 0);
			http_close(&c.watch);
		}
}

/* ---- a renewal ---- */

static instant waited_until; /* at most */

static enum woke
wait_in_vain(struct host *host, int fd, short events, instant until)
{
	(void)host, (void)fd, (void)events;
	waited_until = until > waited_until ? until : waited_until;
	return WOKE_TIMEOUT;
}

/* The watch has told a part of something, and the server is away. */
static void
a_renewal_ends_in_time(void **state)
{
	static const char part[] =
	    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{";
	static struct etcd e;
	struct host host = {.wait = wait_in_vain, .alert = -1};
	struct grant g;
	struct fault f;
	int ends[2];
	instant until;

	(void)state;
	e.base = (struct store){.backend = &etcd_backend, .host = &host};
	e.address = (struct address){.n = 1, .at = {{.host = "127.0.0.1", .port = 1}}};
	e.cluster.address = &e.address;
	stream_init(&e.cluster.calls.stream, &host, "it");
	stream_init(&e.cluster.watch.stream, &host, "it");
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(write(ends[1], part, sizeof part - 1), sizeof part - 1);
	e.cluster.watch.stream.fd = ends[0];
	until = instant_now() + 50 * NS_PER_MS;
	assert_int_equal(etcd_lock.renew(&e.base, until, &g, &f), RC_AGAIN);
	assert_true(waited_until > 0 && waited_until <= until);
	assert_true(e.cluster.watch.stream.fd < 0);
	close(ends[1]);
	cluster_close(&e.cluster);
}

/* ---- credit.h ---- */

/*
 * A cluster of three, in steps of time.  A leader believes that it leads until it learns of a
 * later one, which it may do late; a member knows the leader of some term, and has applied what
 * tells it a term, which may be an older one.  A keep-alive is renewed by the leader that the
 * member knows; a read is confirmed only while that leader is the last.  Only the last leader
 * deletes the key, by its own clock.
 */
enum { TTL = 20, MEMBERS = 3, STEPS = 400 };

struct world {
	unsigned random;
	int now, term;        /* of the last leader */
	int ends[STEPS];      /* of the lease, as the leader of a term has it */
	int known[MEMBERS];   /* the term of the leader that a member knows */
	int applied[MEMBERS]; /* the term that its headers tell */
	bool gone;            /* the key was deleted */
};

static int
draw(struct world *w, int below)
{
	w->random = w->random * 1103515245u + 12345u;
	return (int)(w->random >> 16 & 0x7fff) % below;
}

/* Somebody may be elected; members learn of that, some by a snapshot, which tells no term. */
static void
step_world(struct world *w)
{
	w->now++;
	if (draw(w, 12) == 0 && w->term < STEPS - 1) {
		int m = draw(w, MEMBERS);

		w->term++;
		w->ends[w->term] = w->now + TTL;
		w->known[m] = w->applied[m] = w->term;
	}
	for (int m = 0; m < MEMBERS; m++)
		if (draw(w, 5) == 0) {
			w->known[m] = w->term;
			if (draw(w, 8) != 0)
				w->applied[m] = w->term;
		}
	if (w->ends[w->term] <= w->now)
		w->gone = true;
}

static void
let_pass(struct world *w, int most)
{
	for (int i = draw(w, most); i > 0; i--)
		step_world(w);
}

/* A waiter reads anything, as no key is on the lease; RULE_PUT: and puts its key later. */
enum rule { RULE_ALIVE, RULE_TERMS, RULE_READS, RULE_WAITER, RULE_PUT };

/* One renewal at a member, whose requests left at once: does that rule believe it? */
static bool
renew_at(struct world *w, int m, enum rule rule)
{
	struct credit c = {.member = {1 + m, 1 + m, 1 + m}};
	bool waits = rule >= RULE_WAITER, knows;
	int before, leader;

	if (w->known[m] != w->term)
		c.member[0] = 0; /* P is not answered */
	let_pass(w, 4);
	before = w->applied[m];
	let_pass(w, 3);
	leader = w->known[m];
	/* a new leader may not have applied yet what the one before it did */
	knows = leader == w->term && !(waits && draw(w, 2));
	if (w->ends[leader] > w->now && !(w->gone && knows)) {
		c.ttl = TTL;
		w->ends[leader] = w->now + TTL;
	}
	if (rule == RULE_ALIVE)
		return c.ttl > 0;
	let_pass(w, 6);
	c.ours = w->known[m] == w->term && (waits || !w->gone);
	if (rule == RULE_TERMS)
		return c.ttl > 0 && c.ours && before == w->applied[m];
	if (rule == RULE_PUT)
		let_pass(w, TTL / 2);
	return credit_proves(&c) &&
	    !(rule == RULE_PUT && (w->gone || w->known[m] != w->term));
}

/* How often, in many clusters, a lease that the rule believed in ended too early. */
static int
broken_promises(enum rule rule, int *proved)
{
	int broken = 0;

	for (unsigned seed = 1; seed <= 3000; seed++) {
		struct world w = {.random = seed * 2654435761u, .term = 1};
		int until = 0;

		w.ends[1] = TTL;
		for (int m = 0; m < MEMBERS; m++)
			w.known[m] = w.applied[m] = 1;
		while (w.now < STEPS && !w.gone) {
			int sent = w.now;

			if (renew_at(&w, draw(&w, MEMBERS), rule)) {
				until = sent + TTL;
				++*proved;
			}
			let_pass(&w, 8);
			broken += w.gone && w.now < until;
		}
	}
	return broken;
}

static void
what_is_proved_lasts(void **state)
{
	int proved = 0, put = 0, others = 0;

	(void)state;
	assert_int_equal(broken_promises(RULE_READS, &proved), 0);
	assert_true(proved > 10000);
	assert_int_equal(broken_promises(RULE_PUT, &put), 0);
	assert_true(put > 10000);
	/*
	 * The simulation can tell: a stalled leader's word, an old term after a snapshot, and
	 * the word of a new leader about a lease that is gone.
	 */
	assert_true(broken_promises(RULE_ALIVE, &others) > 0);
	assert_true(broken_promises(RULE_TERMS, &others) > 0);
	assert_true(broken_promises(RULE_WAITER, &others) > 0);
}

static void
what_proves_a_lease(void **state)
{
	const struct credit good = {{7, 7, 7}, 10, true};
	struct credit c = good;

	(void)state;
	assert_true(credit_proves(&c));
	c.ours = false;
	assert_false(credit_proves(&c));
	c = good;
	c.ttl = 0;
	assert_false(credit_proves(&c));
	for (int i = 0; i < 3; i++) {
		c = good;
		c.member[i] = 8; /* a proxy has asked another member */
		assert_false(credit_proves(&c));
	}
	memset(c.member, 0, sizeof c.member);
	assert_false(credit_proves(&c));
}

/* ---- errors ---- */

static const struct {
	int code;
	const char *message;
	enum rc rc;
} errors[] = {
    /* etcd's own, of rpctypes */
    {3, "etcdserver: key is not provided", RC_CONFIG},
    {3, "etcdserver: key not found", RC_CONFIG},
    {3, "etcdserver: value is provided", RC_CONFIG},
    {3, "etcdserver: lease is provided", RC_CONFIG},
    {3, "etcdserver: ttl is 0", RC_CONFIG},
    {3, "etcdserver: too many operations in txn request", RC_CONFIG},
    {3, "etcdserver: duplicate key given in txn request", RC_CONFIG},
    {3, "etcdserver: invalid sort option", RC_CONFIG},
    {3, "etcdserver: request is too large", RC_CONFIG},
    {3, "etcdserver: given member URLs are invalid", RC_CONFIG},
    {3, "etcdserver: user name is empty", RC_DENIED},
    {3, "etcdserver: role name is empty", RC_CONFIG},
    {3, "etcdserver: authentication failed, invalid user ID or password", RC_DENIED},
    {3, "etcdserver: invalid auth management", RC_DENIED},
    {3, "etcdserver: revision of auth store is old", RC_DENIED},
    {3, "etcdserver: wrong downgrade target version format", RC_CONFIG},
    {3, "etcdserver: invalid downgrade target version", RC_CONFIG},
    {5, "etcdserver: requested lease not found", RC_OK},
    {5, "etcdserver: member not found", RC_OK},
    {7, "etcdserver: permission denied", RC_DENIED},
    {8, "etcdserver: mvcc: database space exceeded", RC_AGAIN},
    {8, "etcdserver: too many requests", RC_AGAIN},
    {9, "etcdserver: lease already exists", RC_OK},
    {9, "etcdserver: authentication is not enabled", RC_OK},
    {9, "etcdserver: root user does not exist", RC_DENIED},
    {9, "etcdserver: root user does not have root role", RC_DENIED},
    {9, "etcdserver: user name not found", RC_DENIED},
    {9, "etcdserver: role name not found", RC_DENIED},
    {9, "etcdserver: role is not granted to the user", RC_DENIED},
    {9, "etcdserver: permission is not granted to the role", RC_DENIED},
    {9, "etcdserver: not leader", RC_AGAIN},
    {9, "etcdserver: cluster has a downgrade job in progress", RC_AGAIN},
    {11, "etcdserver: mvcc: required revision has been compacted", RC_OK},
    {11, "etcdserver: mvcc: required revision is a future revision", RC_AGAIN},
    {11, "etcdserver: too large lease TTL", RC_CONFIG},
    {14, "etcdserver: no leader", RC_AGAIN},
    {14, "etcdserver: leader changed", RC_AGAIN},
    {14, "etcdserver: not capable", RC_AGAIN},
    {14, "etcdserver: server stopped", RC_AGAIN},
    {14, "etcdserver: request timed out", RC_AGAIN},
    {14, "etcdserver: request timed out, waiting for the applied index took too long",
	RC_AGAIN},
    {14, "etcdserver: request timed out, possibly due to previous leader failure",
	RC_AGAIN},
    {14, "etcdserver: request timed out, possibly due to connection lost", RC_AGAIN},
    {14, "etcdserver: unhealthy cluster", RC_AGAIN},
    {14, "etcdserver: rpc not supported for learner", RC_AGAIN},
    {14, "etcdserver: cluster version not found during downgrade", RC_AGAIN},
    {15, "etcdserver: corrupt cluster", RC_CONFIG},
    {16, "etcdserver: invalid auth token", RC_DENIED},
    /* gRPC's, and those of the gateway and of proxies, whatever they say */
    {1, "context canceled", RC_AGAIN},
    {2, "", RC_AGAIN},
    {2, "etcdserver: something new", RC_AGAIN},
    {3, "json: cannot unmarshal number into Go value", RC_CONFIG},
    {4, "context deadline exceeded", RC_AGAIN},
    {6, "", RC_AGAIN},
    {8, "grpc: received message larger than max (2 vs. 1)", RC_CONFIG},
    {10, "", RC_AGAIN},
    {12, "unknown method KeepAlive for service etcdserverpb.Lease", RC_CONFIG},
    {13, "stream terminated by RST_STREAM", RC_AGAIN},
    {14, "all SubConns are in TransientFailure", RC_AGAIN},
};

static void
each_error_means_what_was_decided(void **state)
{
	bool decided[17] = {true}; /* 0 is no error */
	const char *hint;

	(void)state;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		enum rc rc = code_meaning(errors[i].code, errors[i].message, &hint);

		decided[errors[i].code] = true;
		if (rc != errors[i].rc)
			fail_msg("%s: %s", errors[i].message, fault_rc_name(rc));
		if (rc == RC_CONFIG || rc == RC_DENIED)
			assert_non_null(hint);
	}
	for (int code = 0; code <= 16; code++)
		if (!decided[code])
			fail_msg("%d has no row: decide what it means", code);
	assert_int_equal(code_meaning(17, "", &hint), RC_AGAIN);
}

static void
what_is_too_small_is_named(void **state)
{
	const char *hint;

	(void)state;
	code_meaning(3, "etcdserver: too many operations in txn request", &hint);
	assert_non_null(strstr(hint, "--max-txn-ops"));
	code_meaning(3, "etcdserver: request is too large", &hint);
	assert_non_null(strstr(hint, "--max-request-bytes"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whom_a_queue_lets_in),
	    cmocka_unit_test(the_lowest_free_permit),
	    cmocka_unit_test(names_of_the_queue),
	    cmocka_unit_test(hostile_times),
	    cmocka_unit_test(requests_are_json),
	    cmocka_unit_test(no_request_is_sent_in_part),
	    cmocka_unit_test(replies_of_http),
	    cmocka_unit_test(lines_of_a_stream),
	    cmocka_unit_test(a_renewal_ends_in_time),
	    cmocka_unit_test(what_is_proved_lasts),
	    cmocka_unit_test(what_proves_a_lease),
	    cmocka_unit_test(each_error_means_what_was_decided),
	    cmocka_unit_test(what_is_too_small_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
