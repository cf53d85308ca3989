/* kv.c - requests of etcd's key-value store as JSON, and what is in its answers. */
#include "kv.h"

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

static json_t *
kv_bytes(const char *text)
{
	size_t n = strlen(text);
	char *coded = malloc(n / 3 * 4 + 5);
	json_t *j;

	if (!coded)
		return NULL;
	base64_write(coded, text, n);
	j = json_string(coded);
	free(coded);
	return j;
}

/* ---- requests ---- */

/* jansson leaves out what it has no memory for, and says so only in what it returns. */
static void
drop_if(json_t **j, int failed)
{
	if (!failed)
		return;
	json_decref(*j);
	*j = NULL;
}

void
kv_set(json_t **j, const char *name, json_t *value)
{
	drop_if(j, json_object_set_new(*j, name, value));
}

void
kv_add(json_t **list, json_t *value)
{
	drop_if(list, json_array_append_new(*list, value));
}

static void
put_number(json_t **j, const char *name, int64_t value)
{
	if (value)
		kv_set(j, name, json_integer(value));
}

json_t *
kv_range(const struct kv_range *r)
{
	json_t *j = json_pack("{s:o}", "key", kv_bytes(r->key));

	if (r->end)
		kv_set(&j, "range_end", kv_bytes(r->end));
	put_number(&j, "limit", r->limit);
	put_number(&j, "min_create_revision", r->least_create);
	put_number(&j, "max_create_revision", r->most_create);
	put_number(&j, "revision", r->revision);
	if (r->by_create || r->newest) {
		kv_set(&j, "sort_target", json_string("CREATE"));
		json_object_set_new(
		    j, "sort_order", json_string(r->newest ? "DESCEND" : "ASCEND"));
	}
	if (r->keys_only)
		kv_set(&j, "keys_only", json_true());
	if (r->count_only)
		kv_set(&j, "count_only", json_true());
	return j;
}

json_t *
kv_op_range(const struct kv_range *r)
{
	return json_pack("{s:o}", "request_range", kv_range(r));
}

json_t *
kv_op_put(const char *key, const char *value, int64_t lease)
{
	json_t *j = json_pack(
	    "{s:o, s:o}", "key", kv_bytes(key), "value", kv_bytes(value));

	put_number(&j, "lease", lease);
	return json_pack("{s:o}", "request_put", j);
}

json_t *
kv_op_delete(const char *key, const char *end)
{
	json_t *j = json_pack("{s:o}", "key", kv_bytes(key));

	if (end)
		kv_set(&j, "range_end", kv_bytes(end));
	return json_pack("{s:o}", "request_delete_range", j);
}

json_t *
kv_if(const char *key, const char *end, const char *how, int64_t create)
{
	json_t *j = json_pack("{s:o, s:s, s:s, s:I}", "key", kv_bytes(key), "target",
	    "CREATE", "result", how, "create_revision", (json_int_t)create);

	if (end)
		kv_set(&j, "range_end", kv_bytes(end));
	return j;
}

json_t *
kv_if_unchanged(const char *key, int64_t modified)
{
	return json_pack("{s:o, s:s, s:s, s:I}", "key", kv_bytes(key), "target", "MOD",
	    "result", "EQUAL", "mod_revision", (json_int_t)modified);
}

json_t *
kv_txn(json_t *compare, json_t *success, json_t *failure)
{
	return json_pack("{s:o, s:o, s:o}", "compare", compare, "success", success,
	    "failure", failure);
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
