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
freeze_name(char out[FREEZE_BYTES], const struct layout *l, int64_t length)
{
	const struct freeze_form *form = &l->freezes[0];
	uint64_t number;
	char ms[16] = "inf";

	if (getrandom(&number, sizeof number, 0) != sizeof number)
		number = (uint64_t)instant_now();
	if (length != NEVER && ns_to_ms(length) <= LONGEST)
		snprintf(ms, sizeof ms, "%" PRId64, length > 0 ? ns_to_ms(length) : 1);
	snprintf(out, FREEZE_BYTES, "%s%016" PRIx64 "-%s%s", form->head, number, ms,
	    form->tail);
}

/* What all names of one freeze have in common: number and length; *n: so long. */
static const char *
core_of(const char *name, size_t *n)
{
	const struct freeze_form *form = layout_freeze_form(name);

	*n = form ? strlen(name) - strlen(form->head) - strlen(form->tail) : 0;
	return form ? name + strlen(form->head) : NULL;
}

bool
freeze_is(const char *name, const char *other)
{
	size_t n, m;
	const char *a = core_of(name, &n), *b = core_of(other, &m);

	return a && b && n == m && memcmp(a, b, n) == 0;
}

bool
freeze_form(char out[FORM_BYTES], const char *name, int i)
{
	size_t n;
	const char *core = core_of(name, &n);
	const struct freeze_form *form = layout_freeze_forms(name);

	if (!form || i < 0 || i >= FREEZES || !form[i].head)
		return false;
	snprintf(out, FORM_BYTES, "%s/%s%.*s%s", form[i].part, form[i].head, (int)n, core,
	    form[i].tail);
	return true;
}

static int64_t
end_of(const char *name, int64_t since)
{
	int64_t length = layout_freeze_length(name);

	return length == NEVER || since < 0 ? NEVER : since + length;
}

static void
freeze_note(struct freeze *z, struct session *s, const char *name, const struct call *c)
{
	int64_t since = node_server_time(call_stat(c)->ctime);
	char *record = data_record(call_text(c), session_secret(s));

	*z = (struct freeze){.on = true,
	    .czxid = call_stat(c)->czxid,
	    .since = since,
	    .until = end_of(name, since)};
	snprintf(z->name, sizeof z->name, "%s", name);
	session_quote(s, z->record, sizeof z->record, record ? record : call_text(c));
	free(record);
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
		if (layout_freeze_length(names[i]) > 0)
			rc = freeze_read(
			    z, s, lock, part, names[i], now, sweep, until, f);
	return rc;
}

bool
freeze_leaves(const struct freeze *z, int64_t czxid, enum stage stage)
{
	return stage != STAGE_WAITING && (!z->on || czxid < z->czxid);
}

/*
 * The directory of a semaphore, if nobody stands there: while there is one, who comes looks into
 * it.  Worth trying, and not worth waiting for.
 */
static void
remove_part(struct session *s, const char *node)
{
	char path[NODE_BYTES];

	snprintf(path, sizeof path, "%.*s", (int)(strrchr(node, '/') - node), node);
	call_drop(call_delete(s, path, -1));
}

/* The one in the lock's own directory is the last. */
enum rc
freeze_remove(struct session *s, const char *lock, const char *name, bool *removed,
    instant until, struct fault *f)
{
	char form[FORM_BYTES], path[NODE_BYTES];
	enum rc rc = RC_OK;

	*removed = false;
	for (int i = FREEZES - 1; i >= 0 && rc == RC_OK; i--) {
		int code;

		if (!freeze_form(form, name, i))
			continue;
		snprintf(path, sizeof path, "%s%s", lock, form);
		rc = call_finish(call_delete(s, path, -1), until, &code, f);
		*removed = *removed || (rc == RC_OK && code == ZOK);
		if (rc == RC_OK && strchr(form + 1, '/'))
			remove_part(s, path);
	}
	*removed = *removed && rc == RC_OK;
	return rc;
}
