/* kv.c - requests of etcd's key-value store as JSON, and what is in its answers. */
#include "kv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- base64 ---- */

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void
base64_write(char *out, const void *bytes, size_t n)
{
	const unsigned char *b = bytes;

	for (; n > 0; b += 3, n = n > 3 ? n - 3 : 0) {
		uint32_t three = (uint32_t)b[0] << 16 | (n > 1 ? b[1] << 8 : 0) |
		    (n > 2 ? b[2] : 0);

		*out++ = digits[three >> 18];
		*out++ = digits[three >> 12 & 63];
		*out++ = n > 1 ? digits[three >> 6 & 63] : '=';
		*out++ = n > 2 ? digits[three & 63] : '=';
	}
	*out = '\0';
}

/* What does not fit is left out. */
int64_t
base64_read(char *out, size_t size, const char *text, size_t n)
{
	uint32_t bits = 0;
	size_t used = 0, length = n;

	while (length > 0 && n - length < 2 && text[length - 1] == '=')
		length--;
	if (n % 4 != 0)
		return -1;
	for (size_t i = 0; i < length; i++) {
		const char *digit = text[i] ? strchr(digits, text[i]) : NULL;

		if (!digit)
			return -1;
		bits = bits << 6 | (uint32_t)(digit - digits);
		if (i % 4 > 0 && used < size - 1)
			out[used++] = (char)(bits >> (6 - 2 * (i % 4)));
	}
	out[used] = '\0';
	return (int64_t)used;
}

/* ---- requests ---- */

void
text_free(struct text *t)
{
	if (t->at)
		explicit_bzero(t->at, t->room);
	free(t->at);
	*t = (struct text){0};
}

static void
text_grow(struct text *t, size_t more)
{
	/* realloc() would leave a password behind */
	struct text longer = {.n = t->n, .room = 2 * (t->n + more) + 1024};

	longer.at = malloc(longer.room);
	if (!longer.at) {
		t->failed = true;
		return;
	}
	if (t->n > 0)
		memcpy(longer.at, t->at, t->n);
	text_free(t);
	*t = longer;
}

void
text_add(struct text *t, const char *fmt, ...)
{
	va_list args;

	while (!t->failed) {
		size_t room = t->room - t->n, n;

		va_start(args, fmt);
		n = (size_t)vsnprintf(room ? t->at + t->n : NULL, room, fmt, args);
		va_end(args);
		if (n < room) {
			t->n += n;
			return;
		}
		text_grow(t, n);
	}
}

/* Before all but the first of a list or an object. */
static const char *
comma(const struct text *t)
{
	return t->n > 0 && !strchr("[{", t->at[t->n - 1]) ? "," : "";
}

static void
put_number(struct text *t, const char *name, int64_t value)
{
	if (value)
		text_add(t, "%s\"%s\":%" PRId64, comma(t), name, value);
}

static void
put_bytes(struct text *t, const char *name, const char *bytes)
{
	char coded[4 * (KV_KEY_BYTES / 3 + 2)];
	size_t n = strlen(bytes);

	if (n > KV_KEY_BYTES) {
		t->failed = true;
		return;
	}
	base64_write(coded, bytes, n);
	text_add(t, "%s\"%s\":\"%s\"", comma(t), name, coded);
}

static void
put_keys(struct text *t, const char *key, const char *end)
{
	put_bytes(t, "key", key);
	if (end)
		put_bytes(t, "range_end", end);
}

void
kv_range(struct text *t, const struct kv_range *r)
{
	put_keys(t, r->key, r->end);
	put_number(t, "limit", r->limit);
	put_number(t, "min_create_revision", r->least_create);
	put_number(t, "max_create_revision", r->most_create);
	put_number(t, "revision", r->revision);
	if (r->by_create || r->newest)
		text_add(t, ",\"sort_target\":\"CREATE\",\"sort_order\":\"%s\"",
		    r->newest ? "DESCEND" : "ASCEND");
	text_add(t, "%s%s", r->keys_only ? ",\"keys_only\":true" : "",
	    r->count_only ? ",\"count_only\":true" : "");
}

void
kv_op_range(struct text *t, const struct kv_range *r)
{
	text_add(t, "%s{\"request_range\":{", comma(t));
	kv_range(t, r);
	text_add(t, "}}");
}

void
kv_op_key(struct text *t, const char *key)
{
	kv_op_range(t, &(struct kv_range){.key = key});
}

void
kv_op_put(struct text *t, const char *key, const char *value, int64_t lease)
{
	text_add(t, "%s{\"request_put\":{", comma(t));
	put_bytes(t, "key", key);
	put_bytes(t, "value", value);
	put_number(t, "lease", lease);
	text_add(t, "}}");
}

void
kv_op_delete(struct text *t, const char *key, const char *end)
{
	text_add(t, "%s{\"request_delete_range\":{", comma(t));
	put_keys(t, key, end);
	text_add(t, "}}");
}

void
kv_if(struct text *t, const char *key, const char *end, const char *how, int64_t create)
{
	text_add(t,
	    "%s{\"target\":\"CREATE\",\"result\":\"%s\",\"create_revision\":%" PRId64,
	    comma(t), how, create);
	put_keys(t, key, end);
	text_add(t, "}");
}

void
kv_if_unchanged(struct text *t, const char *key, int64_t modified)
{
	text_add(t,
	    "%s{\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":%" PRId64,
	    comma(t), modified);
	put_keys(t, key, NULL);
	text_add(t, "}");
}

/* A list that nothing was added to is empty. */
static void
put_list(struct text *t, const char *name, struct text *list)
{
	text_add(t, "%s\"%s\":[%s]", comma(t), name, list->n > 0 ? list->at : "");
	t->failed = t->failed || list->failed;
	text_free(list);
}

void
kv_txn(struct text *t, struct txn *txn)
{
	text_add(t, "{");
	put_list(t, "compare", &txn->compare);
	put_list(t, "success", &txn->success);
	put_list(t, "failure", &txn->failure);
	text_add(t, "}");
}

/* ---- answers ---- */

int64_t
kv_number(const json_t *j, const char *name)
{
	const json_t *value = json_object_get(j, name);

	return json_is_string(value)
	    ? (int64_t)strtoull(json_string_value(value), NULL, 10)
	    : json_integer_value(value);
}

int64_t
kv_header(const json_t *answer, const char *name)
{
	return kv_number(json_object_get(answer, "header"), name);
}

json_t *
kv_response(const json_t *txn, size_t i)
{
	json_t *one = json_array_get(json_object_get(txn, "responses"), i);

	return json_object_iter_value(json_object_iter(one));
}

size_t
kv_count(const json_t *range)
{
	return json_array_size(json_object_get(range, "kvs"));
}

bool
kv_read(struct kv *kv, const json_t *range, size_t i)
{
	const json_t *one = json_array_get(json_object_get(range, "kvs"), i),
		     *key = json_object_get(one, "key"),
		     *value = json_object_get(one, "value");
	int64_t n;

	kv->create = kv_number(one, "create_revision");
	kv->modified = kv_number(one, "mod_revision");
	kv->lease = kv_number(one, "lease");
	*kv->key = *kv->value = '\0';
	if (!json_is_string(key) || kv->create <= 0)
		return false;
	n = base64_read(
	    kv->key, sizeof kv->key, json_string_value(key), json_string_length(key));
	if (n < 0)
		*kv->key = '\0';
	if (n <= 0 || n == sizeof kv->key - 1 || strlen(kv->key) != (size_t)n)
		return false;
	return !json_is_string(value) ||
	    base64_read(kv->value, sizeof kv->value, json_string_value(value),
		json_string_length(value)) >= 0;
}
