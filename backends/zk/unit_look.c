/* unit_look.c - looks at what users of Curator's semaphore have made. */
#include "unit_look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_CHARS = 40 /* "_c_<uuid>-" */ };

/* Numbers are ten digits at the end. */
static int
compare_numbers(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	size_t m = strlen(x), n = strlen(y);

	return strcmp(m > 10 ? x + m - 10 : x, n > 10 ? y + n - 10 : y);
}

static int
compare_uuid(const void *name, const void *seat)
{
	return strncmp(name, *(const char *const *)seat, UUID_CHARS);
}

bool
unit_look_has_seat(const struct unit_look *u, const char *name)
{
	return u->seats.n > 0 &&
	    bsearch(name, u->seats.at, u->seats.n, sizeof *u->seats.at, compare_uuid);
}

static bool
is_others(const struct layout *l, const char *name)
{
	struct child c = layout_read(l, name);

	return !c.owner && c.what != CHILD_FREEZE && strlen(name) < NAME_BYTES;
}

/* Those that no dlock has made, in the order of their numbers. */
static enum rc
copy_others(
    struct names *ret, const struct layout *l, const struct call *list, struct fault *f)
{
	size_t kept = 0;
	enum rc rc = names_copy(ret, list, f);

	if (rc != RC_OK)
		return rc;
	for (size_t i = 0; i < ret->n; i++)
		if (is_others(l, ret->at[i]))
			ret->at[kept++] = ret->at[i];
	ret->n = kept;
	qsort(ret->at, ret->n, sizeof *ret->at, compare_numbers);
	return RC_OK;
}

enum rc
unit_look_list(struct unit_look *u, struct looking *l, const char *lock, struct fault *f)
{
	char path[DIR_BYTES + 8];
	int code;
	enum rc rc;

	u->lock = lock;
	snprintf(path, sizeof path, "%s/leases", lock);
	u->leases = call_list(l->session, path);
	snprintf(path, sizeof path, "%s/locks", lock);
	u->locks = call_list(l->session, path);
	rc = call_await(u->leases, l->look->until, &code, f);
	if (rc == RC_OK)
		rc = call_await(u->locks, l->look->until, &code, f);
	if (rc == RC_OK)
		rc = names_copy(&u->seats, u->leases, f);
	if (rc == RC_OK)
		names_sort(&u->seats);
	if (rc == RC_OK)
		rc = copy_others(&u->holders, l->layout, u->leases, f);
	return rc == RC_OK ? copy_others(&u->waiters, l->layout, u->locks, f) : rc;
}

enum rc
unit_look_tell_holders(struct unit_look *u, struct looking *l, struct fault *f)
{
	struct reader r;

	reader_begin(&r, l->session, u->lock, "/leases", &u->holders, u->holders.n);
	return tell_all(l, &r, ENTRY_HOLDER, tell_seat, f);
}

enum rc
unit_look_tell_waiters(struct unit_look *u, struct looking *l, struct fault *f)
{
	struct reader r;

	reader_begin(&r, l->session, u->lock, "/locks", &u->waiters, u->waiters.n);
	return tell_all(l, &r, ENTRY_WAITER, tell_seat, f);
}

void
unit_look_end(struct unit_look *u)
{
	call_drop(u->locks);
	call_drop(u->leases);
	names_free(&u->seats);
	names_free(&u->holders);
	names_free(&u->waiters);
	*u = (struct unit_look){.lock = NULL};
}
