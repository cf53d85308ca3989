/* freeze.c - names, reads and removes what freezes a lock. */
#include "freeze.h"

#include <inttypes.h>
#include <stdio.h>
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

bool
freeze_is(const char *name, const char *other)
{
	struct freeze_parts a = layout_freeze(name), b = layout_freeze(other);

	return a.length > 0 && b.length > 0 && a.n == b.n &&
	    memcmp(a.core, b.core, a.n) == 0;
}

bool
freeze_form(char out[FORM_BYTES], const char *name, int i)
{
	struct freeze_parts f = layout_freeze(name);
	const struct freeze_form *form = f.forms + i;

	if (f.length == 0 || i < 0 || i >= FREEZES || !form->head)
		return false;
	snprintf(out, FORM_BYTES, "%s/%s%.*s%s", form->part, form->head, (int)f.n, f.core,
	    form->tail);
	return true;
}

enum rc
freeze_look(struct freeze *z, const struct lockdir *d, const char *part,
    const char *const *names, size_t n, int64_t now, bool sweep, instant until,
    struct fault *f)
{
	enum rc rc = RC_OK;

	*z = (struct freeze){.until = NEVER};
	for (size_t i = 0; rc == RC_OK && i < n; i++) {
		int64_t length = layout_freeze(names[i]).length, since, end;
		struct call *c;

		if (length == 0)
			continue;
		c = lockdir_ask(d, ASK_GET, part, names[i]);
		rc = call_await(c, until, f);
		since = rc == RC_OK ? stat_time(c->stat.ctime) : -1;
		end = length == NEVER || since < 0 ? NEVER : since + length;
		if (rc == RC_OK && c->code == ZOK && now >= 0 && now >= end) {
			if (sweep)
				rc = freeze_remove(d, names[i], NULL, until, f);
		} else if (rc == RC_OK && c->code == ZOK &&
		    (!z->on || c->stat.czxid > z->czxid)) {
			*z = (struct freeze){.on = true,
			    .czxid = c->stat.czxid,
			    .since = since,
			    .until = end};
			snprintf(z->name, sizeof z->name, "%s", names[i]);
			data_quote(z->record, sizeof z->record, c->text);
		}
		if (rc == RC_DENIED && c->code == ZOK)
			rc = RC_OK; /* it was worth trying */
		call_drop(c);
	}
	return rc;
}

bool
freeze_leaves(const struct freeze *z, const struct call *node)
{
	return data_read(node->text).stage != STAGE_WAITING &&
	    (!z->on || node->stat.czxid < z->czxid);
}

/*
 * The one in the lock's own directory is the last.  The directory of a semaphore goes with it if
 * nobody stands there: while there is one, who comes looks into it.  That is worth trying, and
 * not worth waiting for.
 */
enum rc
freeze_remove(const struct lockdir *d, const char *name, bool *removed, instant until,
    struct fault *f)
{
	char form[FORM_BYTES];
	bool some = false;
	enum rc rc = RC_OK;

	for (int i = FREEZES - 1; i >= 0 && rc == RC_OK; i--) {
		int code;

		if (!freeze_form(form, name, i))
			continue;
		rc = call_finish(
		    call_delete(d->session, lockdir_below(d, form, NULL).at, -1), until,
		    &code, f);
		some = some || (rc == RC_OK && code == ZOK);
		*strrchr(form, '/') = '\0';
		if (rc == RC_OK && *form)
			call_drop(
			    call_delete(d->session, lockdir_below(d, form, NULL).at, -1));
	}
	if (removed)
		*removed = some && rc == RC_OK;
	return rc;
}
