/* answer.c - reads what lock.lua answers, trusting none of it. */
#include "answer.h"

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

static bool
answer_waiter(struct answer *a, const redisReply *reply)
{
	int64_t place, ticket;

	if (!answer_integer(reply, 1, 1, INT32_MAX, &place) ||
	    !answer_integer(reply, 2, 0, ANSWER_MS_MOST, &a->left_ms) ||
	    !answer_integer(reply, 3, -1, ANSWER_MS_MOST, &a->held_ms) ||
	    !answer_text(reply, 4, a->holder, sizeof a->holder) ||
	    !answer_integer(reply, 5, 0, TOKEN_LIMIT - 1, &ticket))
		return false;
	a->place = place;
	a->ticket = ticket;
	return true;
}

bool
answer_read(struct answer *a, const redisReply *reply, bool acquiring)
{
	int64_t code;

	if (reply->type != REDIS_REPLY_ARRAY ||
	    !answer_integer(reply, 0, ANSWER_OTHER_LIMIT, INT32_MAX, &code) ||
	    code > ANSWER_WAITER)
		return false;
	a->code = (enum answer_code)code;
	if (!acquiring)
		return a->code != ANSWER_OTHER_LIMIT;
	if (a->code == ANSWER_HOLDER)
		return answer_token(reply, 1, &a->token);
	if (a->code == ANSWER_NOT_HOLDER)
		return answer_waiter(a, reply);
	return a->code == ANSWER_OTHER_LIMIT;
}
