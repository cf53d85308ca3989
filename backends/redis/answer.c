/* answer.c - reads what lock.lua answers, trusting none of it. */
#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Member i of an array as text: a bulk string of less than `size` bytes. */
static bool
answer_text(const redisReply *reply, size_t i, char *out, size_t size)
{
	const redisReply *e = i < reply->elements ? reply->element[i] : NULL;

	if (!e || e->type != REDIS_REPLY_STRING || (size_t)e->len >= size ||
	    memchr(e->str, '\0', e->len))
		return false;
	memcpy(out, e->str, e->len + 1);
	return true;
}

/* Member i as an integer: below `low` is wrong, above `most` is taken for `most`. */
static bool
answer_integer(const redisReply *reply, size_t i, int64_t low, int64_t most, int64_t *out)
{
	const redisReply *e = i < reply->elements ? reply->element[i] : NULL;

	if (!e || e->type != REDIS_REPLY_INTEGER || e->integer < low)
		return false;
	*out = e->integer < most ? e->integer : most;
	return true;
}

static bool
answer_token(const redisReply *reply, size_t i, uint64_t *out)
{
	char digits[20];

	if (!answer_text(reply, i, digits, sizeof digits) ||
	    digits[strspn(digits, "0123456789")] != '\0')
		return false;
	*out = strtoull(digits, NULL, 10);
	return *out > 0 && *out < TOKEN_LIMIT;
}

bool
answer_kind(const char *text, enum lock_kind *kind, unsigned *limit)
{
	*limit = 0;
	*kind = *text == 's' ? KIND_SHARED : KIND_EXCLUSIVE;
	if (*text != 'l')
		return strcmp(text, "s") == 0 || strcmp(text, "x") == 0;
	*kind = KIND_LIMIT;
	if (text[1] < '1' || strlen(text) > 7 ||
	    text[1 + strspn(text + 1, "0123456789")] != '\0')
		return false;
	*limit = strtoul(text + 1, NULL, 10);
	return *limit <= LIMIT_MAX;
}

static bool
answer_used_kind(const redisReply *reply, size_t i, struct answer *a)
{
	char text[16];

	return answer_text(reply, i, text, sizeof text) &&
	    answer_kind(text, &a->used.kind, &a->used.limit);
}

/* Member i as words of others: cut to size, and at a NUL. */
static bool
answer_words(const redisReply *reply, size_t i, char out[RECORD_BYTES])
{
	const redisReply *e = i < reply->elements ? reply->element[i] : NULL;
	bool is = e && e->type == REDIS_REPLY_STRING;

	snprintf(out, RECORD_BYTES, "%s", is ? e->str : "");
	return is;
}

/* The same of one that need not be there. */
static bool
answer_mark(const redisReply *reply, size_t i, struct answer *a)
{
	return answer_words(reply, i, a->mark) || i >= reply->elements;
}

static bool
answer_holder(struct answer *a, const redisReply *reply)
{
	int64_t slot;

	if (!answer_token(reply, 1, &a->granted.token) ||
	    !answer_integer(reply, 2, 0, LIMIT_MAX, &slot))
		return false;
	a->granted.slot = slot;
	return slot < LIMIT_MAX;
}

static bool
answer_waiter(struct answer *a, const redisReply *reply)
{
	int64_t place, ticket, holders;

	if (!answer_integer(reply, 1, 0, INT32_MAX, &place) ||
	    !answer_integer(reply, 2, 0, ANSWER_MS_MOST, &a->waiting.left_ms) ||
	    !answer_integer(reply, 3, -1, ANSWER_MS_MOST, &a->waiting.held_ms) ||
	    !answer_words(reply, 4, a->waiting.holder) ||
	    !answer_integer(reply, 5, 0, TOKEN_LIMIT - 1, &ticket) ||
	    !answer_used_kind(reply, 6, a) ||
	    !answer_integer(reply, 7, 0, INT32_MAX, &holders))
		return false;
	a->waiting.place = place;
	a->waiting.ticket = ticket;
	a->waiting.holders = holders;
	a->waiting.frozen = reply->elements > 8;
	return true;
}

static bool
answer_done(struct answer *a, const redisReply *reply)
{
	if (!answer_integer(reply, 1, INT64_MIN, INT64_MAX, &a->done.began_ms))
		return false;
	if (a->done.began_ms < 0 || a->done.began_ms > ANSWER_TIME_MOST)
		a->done.began_ms = -1;
	return answer_words(reply, 2, a->done.who);
}

static bool
answer_acquire(struct answer *a, const redisReply *reply)
{
	switch (a->code) {
	case ANSWER_HOLDER:
		return answer_holder(a, reply);
	case ANSWER_NOT_HOLDER:
		return answer_waiter(a, reply);
	case ANSWER_OTHER_KIND:
		return answer_used_kind(reply, 1, a) && a->used.kind != KIND_EXCLUSIVE;
	case ANSWER_DONE:
		return answer_done(a, reply);
	case ANSWER_RECENT:
		return answer_integer(reply, 1, 0, ANSWER_MS_MOST, &a->age_ms);
	default:
		return false;
	}
}

static bool
answer_renew(struct answer *a, const redisReply *reply)
{
	switch (a->code) {
	case ANSWER_HOLDER:
		return answer_holder(a, reply);
	case ANSWER_REVOKED:
		return answer_holder(a, reply) && answer_mark(reply, 3, a);
	case ANSWER_NOT_HOLDER:
		return answer_mark(reply, 1, a);
	default:
		return false;
	}
}

bool
answer_read(struct answer *a, const redisReply *reply, enum operation op)
{
	int64_t code;

	if (reply->type != REDIS_REPLY_ARRAY ||
	    !answer_integer(reply, 0, ANSWER_OTHER_KIND, INT32_MAX, &code) ||
	    code > ANSWER_REVOKED)
		return false;
	a->code = (enum answer_code)code;
	if (op == ACQUIRE)
		return answer_acquire(a, reply);
	if (op == RENEW)
		return answer_renew(a, reply);
	if (a->code == ANSWER_NOT_HOLDER)
		return answer_mark(reply, 1, a);
	return a->code > ANSWER_NOT_HOLDER && a->code <= ANSWER_UNREMEMBERED;
}
