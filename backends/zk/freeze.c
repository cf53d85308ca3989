/* freeze.c - names, reads and removes what freezes a lock. */
#include "freeze.h"

#include "node.h"
#include "queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define LONGEST 999999999999 /* ms; 31 years */

void
freeze_name(char out[FREEZE_BYTES], int64_t length)
{
	uint64_t number;
	char ms[16] = "inf";

	if (getrandom(&number, sizeof number, 0) != sizeof number)
		number = (uint64_t)instant_now();
	if (length != NEVER && ns_to_ms(length) <= LONGEST)
		snprintf(ms, sizeof ms, "%" PRId64, length > 0 ? ns_to_ms(length) : 1);
	snprintf(out, FREEZE_BYTES, FREEZE "%016" PRIx64 "-%s" FREEZE_END, number, ms);
}

static int64_t
end_of(const char *name, int64_t since)
{
	int64_t length = queue_freeze_length(name);

	return length == NEVER || since < 0 ? NEVER : since + length;
}

static void
freeze_note(struct freeze *z, struct session *s, const char *name, const struct call *c)
{
	int64_t since = node_server_time(call_stat(c)->ctime);

	*z = (struct freeze){.on = true,
	    .czxid = call_stat(c)->czxid,
	    .since = since,
	    .until = end_of(name, since)};
	snprintf(z->name, sizeof z->name, "%s", name);
	session_quote(s, z->record, sizeof z->record, call_text(c));
}

static enum rc
freeze_read(struct freeze *z, struct session *s, const char *lock, const char *part,
    const char *name, int64_t now, bool sweep, instant until, struct fault *f)
{
	char whole[NODE_BYTES];
	struct call *c;
	int code;
	bool removed;
	enum rc rc;

	snprintf(whole, sizeof whole, "%s%s/%s", lock, part, name);
	c = call_get(s, whole);
	rc = call_await(c, until, &code, f);
	if (rc == RC_OK && code == ZOK) {
		int64_t end = end_of(name, node_server_time(call_stat(c)->ctime));

		if (now >= 0 && now >= end)
			rc = sweep ? freeze_remove(s, lock, name, &removed, until, f)
				   : RC_OK;
		else if (!z->on || call_stat(c)->czxid > z->czxid)
			freeze_note(z, s, name, c);
		if (rc == RC_DENIED)
			rc = RC_OK; /* it was worth trying */
	}
	call_drop(c);
	return rc;
}

enum rc
freeze_look(struct freeze *z, struct session *s, const char *lock, const char *part,
    const char *const *names, size_t n, int64_t now, bool sweep, instant until,
    struct fault *f)
{
	enum rc rc = RC_OK;

	*z = (struct freeze){.until = NEVER};
	for (size_t i = 0; rc == RC_OK && i < n; i++)
		if (queue_freeze_length(names[i]) > 0)
			rc = freeze_read(
			    z, s, lock, part, names[i], now, sweep, until, f);
	return rc;
}

bool
freeze_leaves(const struct freeze *z, int64_t czxid, enum stage stage)
{
	return stage != STAGE_WAITING && (!z->on || czxid < z->czxid);
}

static enum rc
remove_from(struct session *s, const char *lock, const char *part, const char *name,
    int *code, instant until, struct fault *f)
{
	char path[NODE_BYTES];

	snprintf(path, sizeof path, "%s%s/%s", lock, part, name);
	return call_finish(call_delete(s, path, -1), until, code, f);
}

/*
 * The semaphore's directory, if nobody stands there: while there is one, who comes looks into
 * it.  Worth trying, and not worth waiting for.
 */
static void
remove_part(struct session *s, const char *lock)
{
	char path[NODE_BYTES];

	snprintf(path, sizeof path, "%s" FREEZE_PART, lock);
	call_drop(call_delete(s, path, -1));
}

enum rc
freeze_remove(struct session *s, const char *lock, const char *name, bool *removed,
    instant until, struct fault *f)
{
	int code = ZNONODE, other = ZNONODE;
	enum rc rc = remove_from(s, lock, FREEZE_PART, name, &other, until, f);

	if (rc == RC_OK)
		rc = remove_from(s, lock, "", name, &code, until, f);
	remove_part(s, lock);
	*removed = rc == RC_OK && (code == ZOK || other == ZOK);
	return rc;
}
