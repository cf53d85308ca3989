/*
 * kv.h - requests of etcd's key-value store as JSON, and what is in its answers.
 *
 * Keys and values go as base64, numbers of 64 bits come as strings.  Requests are written as
 * text, answers are read with jansson.
 */
#ifndef DLOCK_ETCD_KV_H
#define DLOCK_ETCD_KV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	KV_KEY_BYTES = 3072,   /* longest key of ours, with a NUL */
	KV_VALUE_BYTES = 2048, /* so much of a value is kept, with a NUL */
};

/* ---- requests ---- */

/*
 * A request, or a list within one.  When there was no memory for a part of it, `failed` stays, and
 * nothing of it is sent: one without a condition could make two holders.  It begins as {0}.
 */
struct text {
	char *at;
	size_t n, room;
	bool failed;
};

void text_add(struct text *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* It may hold a password or a token, so it is wiped. */
void text_free(struct text *);

struct kv_range {
	const char *key, *end;             /* end NULL: this key only */
	int64_t limit;                     /* 0: none */
	int64_t least_create, most_create; /* 0: any create revision */
	int64_t revision;                  /* as of then; 0: now */
	bool by_create;                    /* in that order, and not in that of keys */
	bool newest;                       /* the last ones of it */
	bool keys_only;
	bool count_only;
};

/* The fields of a request to /v3/kv/range. */
void kv_range(struct text *, const struct kv_range *);

/* An operation of a transaction, behind those of a list; end NULL: this key only. */
void kv_op_range(struct text *, const struct kv_range *);
void kv_op_key(struct text *, const char *key);
void kv_op_put(struct text *, const char *key, const char *value, int64_t lease);
void kv_op_delete(struct text *, const char *key, const char *end);

/*
 * A condition: is the create revision of all keys from `key` (to `end`) "EQUAL" to that, or
 * "GREATER"?  Was the key last written at this revision?
 */
void kv_if(
    struct text *, const char *key, const char *end, const char *how, int64_t create);
void kv_if_unchanged(struct text *, const char *key, int64_t modified);

/* The lists of a transaction. */
struct txn {
	struct text compare, success, failure;
};

/* Writes it, and frees the lists. */
void kv_txn(struct text *, struct txn *);

/* ---- answers ---- */

/* A number, however it is written; what is left out is 0, and so is what is none. */
int64_t kv_number(const json_t *, const char *name);

/* Of the answer's header. */
int64_t kv_header(const json_t *answer, const char *name);

/* What the transaction's `i`th operation found; NULL: not so many. */
json_t *kv_response(const json_t *txn, size_t i);

/* One key of what a range has found. */
struct kv {
	char key[KV_KEY_BYTES];
	char value[KV_VALUE_BYTES]; /* as much as there is room for */
	int64_t create, modified, lease;
};

/*
 * False: there is no `i`th one (then `create` is 0); or it is no key (hostile), or a longer one
 * than any of ours.
 */
bool kv_read(struct kv *, const json_t *range, size_t i);

size_t kv_count(const json_t *range);

/* Writes base64, and reads it: the length, with a NUL behind it; -1: it is none. */
void base64_write(char *out, const void *bytes, size_t n);
int64_t base64_read(char *out, size_t size, const char *text, size_t n);

#endif
