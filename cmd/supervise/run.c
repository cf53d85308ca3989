/* run.c - of a run: whether its ward has the lock, and whom to stop for it. */
#include "run.h"

enum delivery
run_delivery(const struct run *r)
{
	return atomic_load(r->ward->delivery);
}

bool
run_delivers(const struct run *r)
{
	return run_delivery(r) != NO_DELIVERY;
}

bool
run_is_given(const struct run *r)
{
	enum delivery d = run_delivery(r);

	return d == NO_DELIVERY || d == DELIVERED;
}

struct outsider *
run_guarded(const struct run *r)
{
	return run_delivery(r) == DELIVERED && !atomic_load(&r->page->end.returned)
	    ? r->ward->outsider
	    : NULL;
}

bool
run_settle(const struct run *r, enum delivery how)
{
	int open = UNDELIVERED;

	return atomic_compare_exchange_strong(r->ward->delivery, &open, how);
}
