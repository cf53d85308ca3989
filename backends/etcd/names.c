/* names.c - the names and values of all that is kept in etcd. */
#include "names.h"

#include "backends/common/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

void
names_end(char *out, size_t size, const char *prefix)
{
	size_t n = strlen(prefix);

	snprintf(out, size, "%s", prefix);
	if (n > 0 && n < size)
		out[n - 1]++;
}

void
names_of(struct names *l, const char *root, const char *name, const char *key)
{
	char id[ENCODED_BYTES + 1] = "+";
	size_t plus = name != NULL;

	encode_key(id + plus, sizeof id - plus, name ? name : key);
	if (name)
		snprintf(l->queue, sizeof l->queue, "%s/", name);
	else
		snprintf(l->queue, sizeof l->queue, "%s/q/%s/", root, id);
	names_end(l->queue_end, sizeof l->queue_end, l->queue);
	snprintf(l->freeze, sizeof l->freeze, "%s/f/%s", root, id);
	snprintf(l->permits, sizeof l->permits, "%s/s/%s/", root, id);
	snprintf(l->marks, sizeof l->marks, "%s/m/%s/", root, id);
	snprintf(l->jobs, sizeof l->jobs, "%s/j/%s/", root, id);
}

void
queue_name_write(struct queue_name *m, int64_t lease, enum lock_kind kind, unsigned limit)
{
	int n = snprintf(m->text, sizeof m->text, "%" PRIx64, (uint64_t)lease);

	m->kind = kind;
	m->limit = kind == KIND_LIMIT ? limit : 0;
	if (kind == KIND_SHARED)
		snprintf(m->text + n, sizeof m->text - n, ".r");
	else if (kind == KIND_LIMIT)
		snprintf(m->text + n, sizeof m->text - n, ".%u", limit);
}

bool
queue_name_read(struct queue_name *m, const char *text)
{
	size_t hex = strspn(text, "0123456789abcdef");
	const char *suffix = text + hex;
	int limit;

	*m = (struct queue_name){.kind = KIND_EXCLUSIVE};
	if (strlen(text) >= sizeof m->text || hex == 0 || hex > 16)
		return false;
	memcpy(m->text, text, strlen(text) + 1);
	if (!*suffix)
		return true;
	limit = *suffix == '.'
	    ? endpoint_number(suffix + 1, strlen(suffix + 1), LIMIT_MAX)
	    : 0;
	if (strcmp(suffix, ".r") == 0)
		m->kind = KIND_SHARED;
	else if (limit > 0)
		m->kind = KIND_LIMIT;
	m->limit = m->kind == KIND_LIMIT ? (unsigned)limit : 0;
	return m->kind != KIND_EXCLUSIVE;
}

int64_t
lease_of(const char *owner, const char *key, unsigned nth)
{
	unsigned char hash[SHA256_BYTES];
	char text[OWNER_CHARS + KEY_BYTES + 32];
	int64_t lease = 0;
	int n = snprintf(text, sizeof text, "%s %u %s", owner, nth, key);

	sha256(hash, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
	for (int i = 0; i < 8; i++)
		lease = (int64_t)((uint64_t)lease << 8 | hash[i]);
	lease &= INT64_MAX;
	return lease ? lease : 1;
}

/* ---- values ---- */

/* The rest of a value, a record. */
static bool
read_record(char record[RECORD_BYTES], const char *text)
{
	return snprintf(record, RECORD_BYTES, "%s", text) < RECORD_BYTES;
}

void
queue_value_write(char out[KV_VALUE_BYTES], const struct queue_value *v)
{
	snprintf(out, KV_VALUE_BYTES, "dlock1 %s %c %" PRId64 " %d %s", v->owner,
	    v->held ? 'h' : 'w', v->since, v->slot, v->record);
}

bool
queue_value_read(struct queue_value *v, const char *text)
{
	int end = 0;
	char state;

	*v = (struct queue_value){.slot = -1};
	if (sscanf(text, "dlock1 %32[0-9a-f] %c %" SCNd64 " %d %n", v->owner, &state,
		&v->since, &v->slot, &end) != 4 ||
	    end == 0 || strlen(v->owner) != OWNER_CHARS || v->slot < -1 ||
	    v->slot >= LIMIT_MAX || (state != 'h' && state != 'w'))
		return false;
	v->held = state == 'h';
	return read_record(v->record, text + end);
}

void
freeze_write(char out[KV_VALUE_BYTES], const struct freeze *z)
{
	snprintf(out, KV_VALUE_BYTES, "dlock1 %" PRId64 " %" PRId64 " %s", z->since,
	    z->until, z->record);
}

bool
freeze_read(struct freeze *z, const char *text)
{
	int end = 0;

	*z = (struct freeze){.until = EPOCH_NONE};
	return sscanf(text, "dlock1 %" SCNd64 " %" SCNd64 " %n", &z->since, &z->until,
		   &end) == 2 &&
	    end > 0 && read_record(z->record, text + end);
}

void
run_write(char out[KV_VALUE_BYTES], const struct run *r)
{
	snprintf(out, KV_VALUE_BYTES,
	    "dlock1 %" PRId64 " %" PRId64 " %" PRId64 " %d id=%s %s", r->began, r->ended,
	    r->token, r->status, r->once, r->record);
}

bool
run_read(struct run *r, const char *text)
{
	int end = 0;
	size_t n;

	*r = (struct run){.status = STATUS_NONE};
	if (sscanf(text, "dlock1 %" SCNd64 " %" SCNd64 " %" SCNd64 " %d id=%n", &r->began,
		&r->ended, &r->token, &r->status, &end) != 4 ||
	    end == 0 || r->status < 0 || r->status > 255)
		return false;
	n = strcspn(text + end, " ");
	if (n >= sizeof r->once || text[end + n] != ' ')
		return false;
	memcpy(r->once, text + end, n);
	return read_record(r->record, text + end + n + 1);
}
