/* ward.c - of a ward: whether it has the lock, and whom to stop if that is lost. */
#include "run.h"

enum delivery
ward_delivery(const struct run *r)
{
	return r->ward->is_hold ? (enum delivery)atomic_load(r->ward->delivery)
				: NO_DELIVERY;
}

bool
ward_knows(const struct run *r)
{
	return !r->ward->is_hold || ward_delivery(r) == DELIVERED;
}

struct outsider *
ward_guarded(const struct run *r)
{
	return ward_delivery(r) == DELIVERED && !atomic_load(&r->page->end.returned)
	    ? r->ward->outsider
	    : NULL;
}

bool
ward_settle(const struct run *r, enum delivery how)
{
	int open = UNDELIVERED;

	return r->ward->is_hold &&
	    atomic_compare_exchange_strong(r->ward->delivery, &open, how);
}
