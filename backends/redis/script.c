/* script.c - puts runs of scripts into words, and reads what they answer, trusting none of it. */
#include "script.h"

#include "backends/common/append.h"
#include "backends/common/digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is said ---- */

void
script_begin(struct script_call *c, const struct script *script)
{
	c->script = script;
	c->reads = false;
	c->replicas = 0;
	c->keys = c->n = c->used = 0;
}

void
script_number(struct script_call *c, int64_t number)
{
	char *text = c->numbers[c->used++];

	append_signed(text, text + sizeof c->numbers[0], number);
	script_word(c, text);
}

char *
script_write(const struct script_call *c, const struct manner *m)
{
	static const char *const verbs[2][2] = {
	    {"EVALSHA", "EVALSHA_RO"}, {"EVAL", "EVAL_RO"}};
	const char *words[3 + SCRIPT_WORDS] = {
	    verbs[m->whole][m->reads], m->whole ? c->script->text : c->script->sha1};
	size_t lengths[3 + SCRIPT_WORDS], n = 3 + c->n, room = 1 + RESP_WORD_BYTES;
	char keys[12], *command, *to;

	append_number(keys, keys + sizeof keys, c->keys);
	words[2] = keys;
	memcpy(words + 3, c->words, c->n * sizeof *words);
	for (size_t i = 0; i < n; i++) {
		lengths[i] = i == 1 && m->whole ? c->script->length : strlen(words[i]);
		room += RESP_WORD_BYTES + lengths[i];
	}
	command = malloc(room);
	if (!command)
		return NULL;
	to = resp_put_count(command, '*', n);
	for (size_t i = 0; i < n; i++)
		to = resp_put_word(to, words[i], lengths[i]);
	*to = '\0';
	return command;
}

bool
script_change(struct manner *m, const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_ERROR)
		return false;
	if (!m->whole && resp_says(reply->str, "NOSCRIPT"))
		return m->whole = true;
	if (m->reads && resp_says(reply->str, "unknown command")) {
		m->reads = false;
		return true;
	}
	return false;
}

/* ---- what is answered ---- */

/* Digits alone, and less than `bytes` of them. */
static bool
is_digits(const redisReply *e, int bytes)
{
	size_t n = 0;

	if (e->type != REDIS_REPLY_STRING || e->len == 0 || (int)e->len >= bytes)
		return false;
	while (e->str[n] >= '0' && e->str[n] <= '9')
		n++;
	return n == (size_t)e->len;
}

static bool
member_number(const redisReply *e, int64_t *out)
{
	if (e->type == REDIS_REPLY_INTEGER)
		*out = e->integer;
	else if (is_digits(e, 19))
		*out = digits_read(e->str);
	else
		return false;
	return true;
}

bool
answer_vmembers(const redisReply *reply, size_t first, const char *shape, va_list to)
{
	bool good = reply->type == REDIS_REPLY_ARRAY;

	for (size_t i = first; good && *shape; i++, shape++) {
		const redisReply *e = i < reply->elements ? reply->element[i] : NULL;
		void *out = va_arg(to, void *);

		switch (e ? *shape : '\0') {
		case 's':
		case 'w':
			good = e->type == REDIS_REPLY_STRING &&
			    (*shape == 's' || strlen(e->str) == (size_t)e->len);
			*(const char **)out = good ? e->str : "";
			break;
		case 'i':
			good = e->type == REDIS_REPLY_INTEGER;
			*(int64_t *)out = good ? e->integer : 0;
			break;
		case 'n':
			good = member_number(e, out);
			break;
		case 'o':
			good = e->type == REDIS_REPLY_STRING || member_number(e, out);
			if (good && !member_number(e, out))
				*(int64_t *)out = -1;
			break;
		case 't':
			good = is_digits(e, 20);
			*(uint64_t *)out = good ? digits_read(e->str) : 0;
			good = *(uint64_t *)out > 0 && *(uint64_t *)out < TOKEN_LIMIT;
			break;
		case 'a':
			good = e->type == REDIS_REPLY_ARRAY;
			*(const redisReply **)out = e;
			break;
		default:
			good = false;
		}
	}
	return good;
}

bool
answer_members(const redisReply *reply, size_t first, const char *shape, ...)
{
	va_list to;
	bool good;

	va_start(to, shape);
	good = answer_vmembers(reply, first, shape, to);
	va_end(to);
	return good;
}

const char *
answer_setting(const redisReply *reply, const char *name)
{
	const char *each, *value;

	for (size_t i = 0; i + 1 < reply->elements; i += 2)
		if (answer_members(reply, i, "ss", &each, &value) &&
		    strcmp(each, name) == 0)
			return value;
	return "";
}

bool
answer_bound(int64_t *n, int64_t low, int64_t most)
{
	if (*n > most)
		*n = most;
	return *n >= low;
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

/* Who has revoked it need not be told. */
static bool
read_mark(const redisReply *reply, size_t i, struct answer *a)
{
	const char *mark = "";
	bool good = i >= reply->elements || answer_members(reply, i, "s", &mark);

	snprintf(a->who, sizeof a->who, "%s", mark);
	return good;
}

static bool
read_holder(struct answer *a, const redisReply *reply)
{
	int64_t slot;

	if (!answer_members(reply, 1, "ti", &a->token, &slot) ||
	    !answer_bound(&slot, 0, LIMIT_MAX))
		return false;
	a->slot = slot;
	return slot < LIMIT_MAX;
}

static bool
read_waiter(struct answer *a, const redisReply *reply)
{
	int64_t place, ticket, holders, held;
	const char *record, *kind;
	struct holding *h = &a->holding;

	if (!answer_members(reply, 1, "iiisiwi", &place, &a->left_ms, &held, &record,
		&ticket, &kind, &holders) ||
	    !answer_bound(&place, 0, INT32_MAX) ||
	    !answer_bound(&a->left_ms, 0, ANSWER_MS_MOST) ||
	    !answer_bound(&held, -1, ANSWER_MS_MOST) ||
	    !answer_bound(&ticket, 0, TOKEN_LIMIT - 1) ||
	    !answer_bound(&holders, 0, INT32_MAX) ||
	    !answer_kind(kind, &h->kind, &h->limit))
		return false;
	a->place = place;
	a->ticket = ticket;
	h->holders = holders;
	h->held = held < 0 ? -1 : held * NS_PER_MS;
	h->frozen = reply->elements > 8;
	snprintf(h->record, sizeof h->record, "%s", record);
	return true;
}

static bool
read_acquire(struct answer *a, const redisReply *reply)
{
	struct holding *h = &a->holding;
	const char *kind, *who;

	switch (a->code) {
	case ANSWER_HOLDER:
		return read_holder(a, reply);
	case ANSWER_NOT_HOLDER:
		return read_waiter(a, reply);
	case ANSWER_OTHER_KIND:
		return answer_members(reply, 1, "w", &kind) &&
		    answer_kind(kind, &h->kind, &h->limit) && h->kind != KIND_EXCLUSIVE;
	case ANSWER_DONE:
		if (!answer_members(reply, 1, "isi", &a->began_ms, &who, &a->status) ||
		    a->status < 0 || a->status > 255)
			return false;
		if (a->began_ms < 0 || a->began_ms > ANSWER_TIME_MOST)
			a->began_ms = -1;
		snprintf(a->who, sizeof a->who, "%s", who);
		return true;
	case ANSWER_RECENT:
		return answer_members(reply, 1, "i", &a->age_ms) &&
		    answer_bound(&a->age_ms, 0, ANSWER_MS_MOST);
	default:
		return false;
	}
}

bool
answer_read(struct answer *a, const redisReply *reply, enum operation op)
{
	int64_t code;

	if (!answer_members(reply, 0, "i", &code) || code < ANSWER_OTHER_KIND ||
	    code > ANSWER_REVOKED)
		return false;
	a->code = (enum answer_code)code;
	if (op == ACQUIRE)
		return read_acquire(a, reply);
	if (a->code == ANSWER_NOT_HOLDER)
		return read_mark(reply, 1, a);
	if (op == RENEW)
		return (a->code == ANSWER_HOLDER || a->code == ANSWER_REVOKED) &&
		    read_holder(a, reply) && read_mark(reply, 3, a);
	return a->code > ANSWER_NOT_HOLDER && a->code <= ANSWER_UNREMEMBERED;
}
