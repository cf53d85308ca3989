/* pool_look.c - looks at a semaphore of kazoo's. */
#include "pool_look.h"

#include "pool.h"
#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By their slots; kazoo's own, which have none, are behind. */
static int
compare_leases(const void *a, const void *b, void *layout)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	unsigned m = (unsigned)layout_read(layout, x).slot,
		 n = (unsigned)layout_read(layout, y).slot;

	return m != n ? (m < n ? -1 : 1) : strcmp(x, y);
}

/* Those that are leases, in their order. */
static void
keep_leases(struct names *names, const struct layout *l)
{
	size_t kept = 0;

	for (size_t i = 0; i < names->n; i++)
		if (layout_read(l, names->at[i]).what == CHILD_LEASE)
			names->at[kept++] = names->at[i];
	names->n = kept;
	qsort_r(names->at, names->n, sizeof *names->at, compare_leases, (void *)l);
}

/* For how many it is, as it says itself. */
static enum rc
read_limit(struct looking *l, struct call *pool, struct fault *f)
{
	int code;
	enum rc rc = call_await(pool, l->look->until, &code, f);

	if (rc == RC_OK)
		tell_pooled(l, pool_limit(pool));
	call_drop(pool);
	return rc;
}

enum rc
pool_look_list(struct pool_look *p, struct looking *l, const char *lock,
    const struct call *list, bool alone, struct fault *f)
{
	char path[NODE_BYTES];
	struct call *pool;
	int code;
	enum rc rc = names_copy(&p->leases, list, f);

	p->lock = lock;
	if (rc != RC_OK)
		return rc;
	keep_leases(&p->leases, l->layout);
	if (p->leases.n == 0 && !alone)
		return RC_OK;
	snprintf(path, sizeof path, "%s%s", lock, l->layout->queue);
	p->queue = call_list(l->session, path);
	pool = call_get(l->session, lock);
	rc = call_await(p->queue, l->look->until, &code, f);
	if (rc == RC_OK)
		rc = names_copy(&p->waiters, p->queue, f);
	if (rc == RC_OK)
		p->waiters.n = queue_sort(l->layout, p->waiters.at, p->waiters.n);
	if (rc == RC_OK)
		return read_limit(l, pool, f);
	call_drop(pool);
	return rc;
}

enum rc
pool_look_tell_holders(struct pool_look *p, struct looking *l, struct fault *f)
{
	struct reader r;

	reader_begin(&r, l->session, p->lock, "", &p->leases, p->leases.n);
	return tell_all(l, &r, ENTRY_HOLDER, tell_place, f);
}

enum rc
pool_look_tell_waiters(struct pool_look *p, struct looking *l, struct fault *f)
{
	struct reader r;

	reader_begin(
	    &r, l->session, p->lock, l->layout->queue, &p->waiters, p->waiters.n);
	return tell_all(l, &r, ENTRY_WAITER, tell_place, f);
}

void
pool_look_end(struct pool_look *p)
{
	call_drop(p->queue);
	names_free(&p->leases);
	names_free(&p->waiters);
	*p = (struct pool_look){.lock = NULL};
}
