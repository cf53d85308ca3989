/*
 * etcd.c - Goal of these tests: whatever comes from an etcd, or from who pretends to be one, in
 * whatever pieces, stays within its bounds; and what dlock has written comes back as it was.
 */
#include "backends/etcd/queue.h"
#include "tests/fuzz/fuzz.h"

/* What has come, of which each read gives so many bytes. */
static struct {
	const char *bytes;
	size_t n, step;
} come;

static ssize_t
read_come(struct stream *s, void *to, size_t size)
{
	size_t n = come.n < come.step ? come.n : come.step;

	(void)s;
	n = n < size ? n : size;
	memcpy(to, come.bytes, n);
	come.bytes += n;
	come.n -= n;
	return (ssize_t)n;
}

static enum rc
read_reply(struct connection *k, const char *bytes, size_t n, size_t step)
{
	static const struct stream_ops ops = {
	    .read = read_come, .explain = stream_hung_up};
	struct fault f;

	stream_init(&k->stream, NULL, "it");
	k->stream.ops = &ops;
	come.bytes = bytes;
	come.n = n;
	come.step = step;
	return http_read(k, NEVER, &f);
}

/* The same bytes are the same reply, in one piece or in many. */
static void
reply_is_sound(const char *bytes, size_t n, size_t step)
{
	struct connection whole = {0}, pieces = {0};
	enum rc rc = read_reply(&whole, bytes, n, SIZE_MAX);
	size_t left = come.n + whole.used - whole.at;
	enum rc also = read_reply(&pieces, bytes, n, step);

	CLAIM(rc == also);
	CLAIM(rc == RC_OK || (!whole.body && !pieces.body));
	CLAIM(rc != RC_OK ||
	    (left == come.n + pieces.used - pieces.at && whole.status == pieces.status &&
		whole.n == pieces.n &&
		(whole.n == 0 || memcmp(whole.body, pieces.body, whole.n) == 0)));
	CLAIM(whole.n == 0 || (whole.n < whole.room && whole.body[whole.n] == '\0'));
	http_close(&whole);
	http_close(&pieces);
}

/* An answer to a survey. */
static void
survey_is_sound(const char *bytes, size_t n)
{
	static const struct claim claims[] = {{.key = "k", .kind = KIND_EXCLUSIVE},
	    {.key = "k", .kind = KIND_SHARED},
	    {.key = "k", .kind = KIND_LIMIT, .limit = 3, .job = {.once = "id"}}};
	json_t *j = json_loadb(bytes, n, 0, NULL);

	for (size_t i = 0; j && i < sizeof claims / sizeof *claims; i++) {
		static struct queue q;
		struct names names;
		struct watch_list w;

		names_of(&names, "dlock", NULL, "k");
		memset(&q, 0, sizeof q);
		q.names = &names;
		q.claim = &claims[i];
		q.own = "dlock/q/k/1";
		queue_read(&q, j, 0);
		queue_read_more(&q, j);
		queue_watch(&q, &w);
		CLAIM(w.at[0].key && w.at[1].key && q.holders <= q.ahead);
		CLAIM(claims[i].kind != KIND_LIMIT || queue_permit(&q, 0) <= 3);
		CLAIM(strlen(q.value.record) < RECORD_BYTES);
	}
	json_decref(j);
}

static void
values_are_sound(const char *text)
{
	char again[KV_VALUE_BYTES];
	struct queue_value v, v2;
	struct freeze z, z2;
	struct run r, r2;
	struct queue_name name;

	if (queue_value_read(&v, text)) {
		queue_value_write(again, &v);
		CLAIM(queue_value_read(&v2, again) && v2.since == v.since &&
		    v2.slot == v.slot && v2.held == v.held);
	}
	if (freeze_read(&z, text)) {
		freeze_write(again, &z);
		CLAIM(freeze_read(&z2, again) && z2.until == z.until);
	}
	if (run_read(&r, text)) {
		run_write(again, &r);
		CLAIM(run_read(&r2, again) && r2.token == r.token &&
		    strcmp(r2.once, r.once) == 0);
	}
	if (queue_name_read(&name, text))
		CLAIM(strcmp(name.text, text) == 0 && name.limit <= LIMIT_MAX);
}

static void
base64_is_sound(const char *text, size_t n)
{
	char small[16], *coded = malloc(n / 3 * 4 + 5), *back = malloc(n + 1);

	CLAIM(coded && back);
	base64_write(coded, text, n);
	CLAIM(base64_read(back, n + 1, coded, strlen(coded)) == (int64_t)n);
	CLAIM(memcmp(back, text, n) == 0);
	CLAIM(base64_read(small, sizeof small, text, n) < (int64_t)sizeof small);
	free(coded);
	free(back);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	CLAIM(text);
	memcpy(text, data, size);
	text[size] = '\0';
	reply_is_sound(text, size, size > 0 ? 1 + data[size - 1] % 16 : 1);
	survey_is_sound(text, size);
	values_are_sound(text);
	base64_is_sound(text, size);
	free(text);
	return 0;
}
