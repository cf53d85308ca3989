/*
 * resp.c - Goal of these tests: what is let in from a Redis server is small
 * and whole, hiredis agrees about where it ends, an answer can be computed with,
 * and an error never surprises.
 */
#include "backends/redis/script.h"
#include "backends/redis/resp.h"
#include "tests/fuzz/fuzz.h"

#include <hiredis/hiredis.h>

/* What script.h says of each member. */
static void
holder_is_sound(const struct answer *a)
{
	CLAIM(a->token > 0 && a->token < TOKEN_LIMIT && a->slot < LIMIT_MAX);
}

static void
kind_is_sound(const struct answer *a)
{
	CLAIM(a->holding.kind == KIND_EXCLUSIVE || a->holding.kind == KIND_SHARED ||
	    a->holding.kind == KIND_LIMIT);
	CLAIM(a->holding.kind == KIND_LIMIT
		? a->holding.limit > 0 && a->holding.limit <= LIMIT_MAX
		: a->holding.limit == 0);
}

static void
answer_is_sound(const struct answer *a, enum operation op)
{
	if (op == RELEASE) {
		CLAIM(a->code >= ANSWER_NOT_HOLDER && a->code <= ANSWER_UNREMEMBERED);
		CLAIM(a->code != ANSWER_NOT_HOLDER || strlen(a->who) < sizeof a->who);
	} else if (a->code == ANSWER_HOLDER) {
		holder_is_sound(a);
	} else if (op == RENEW && a->code == ANSWER_REVOKED) {
		holder_is_sound(a);
		CLAIM(strlen(a->who) < sizeof a->who);
	} else if (op == ACQUIRE && a->code == ANSWER_NOT_HOLDER) {
		kind_is_sound(a);
		CLAIM(a->place > 0 && a->left_ms >= 0 && a->left_ms <= ANSWER_MS_MOST &&
		    a->ticket < TOKEN_LIMIT);
		CLAIM(a->holding.held >= -1 &&
		    a->holding.held <= ANSWER_MS_MOST * NS_PER_MS &&
		    strlen(a->holding.record) < sizeof a->holding.record);
	} else if (op == ACQUIRE && a->code == ANSWER_OTHER_KIND) {
		kind_is_sound(a);
	} else if (op == ACQUIRE && a->code == ANSWER_DONE) {
		CLAIM(a->began_ms >= -1 && a->began_ms <= ANSWER_TIME_MOST &&
		    strlen(a->who) < sizeof a->who);
	} else if (op == ACQUIRE) {
		CLAIM(a->code == ANSWER_RECENT && a->age_ms >= 0 &&
		    a->age_ms <= ANSWER_MS_MOST);
	} else {
		CLAIM(a->code == ANSWER_NOT_HOLDER && strlen(a->who) < sizeof a->who);
	}
}

static void
answers_are_sound(const redisReply *reply)
{
	for (int op = ACQUIRE; op <= RELEASE; op++) {
		struct answer a;

		memset(&a, 0x55, sizeof a);
		if (answer_read(&a, reply, op))
			answer_is_sound(&a, op);
	}
}

/*
 * What has been let in is one whole reply to hiredis too, unless it refuses it (a number
 * such as 007).
 */
static void
hiredis_agrees(const char *buf, size_t n)
{
	redisReader *reader = redisReaderCreate();
	void *reply = NULL;

	CLAIM(reader);
	CLAIM(redisReaderFeed(reader, buf, n) == REDIS_OK);
	if (redisReaderGetReply(reader, &reply) == REDIS_OK) {
		CLAIM(reply != NULL);
		answers_are_sound(reply);
		freeReplyObject(reply);
		reply = NULL;
		CLAIM(redisReaderGetReply(reader, &reply) == REDIS_OK && reply == NULL);
	} else {
		CLAIM(reader->err == REDIS_ERR_PROTOCOL);
	}
	redisReaderFree(reader);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *buf = malloc(size ? size : 1), *text = fuzz_string(data, size);
	const char *hint = "";
	ssize_t length;
	enum rc rc;

	CLAIM(buf);
	memcpy(buf, data, size);
	length = resp_length(buf, size, &resp_usual);
	CLAIM(length >= -1 && length <= (ssize_t)size && length <= RESP_BYTES);
	if (length > 0) {
		hiredis_agrees(buf, length);
		CLAIM(resp_length(buf, length, &resp_usual) ==
		    length); /* whatever follows */
		for (ssize_t cut = 0; cut < length; cut += 1 + length / 64)
			CLAIM(resp_length(buf, cut, &resp_usual) == 0);
	}
	rc = resp_error(text, &hint);
	CLAIM(rc == RC_DENIED || rc == RC_CONFIG || rc == RC_PROTOCOL || rc == RC_AGAIN);
	free(buf);
	free(text);
	return 0;
}
