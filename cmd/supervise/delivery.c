/* delivery.c - has a hold been delivered, and to whom: see delivery.h. */
#include "delivery.h"

#include "run.h"

enum delivery
delivery_of(const struct run *r)
{
	return r->ward->is_hold ? (enum delivery)atomic_load(r->ward->delivery)
				: NO_DELIVERY;
}

bool
delivery_known(const struct run *r)
{
	return !r->ward->is_hold || delivery_of(r) == DELIVERED;
}

struct outsider *
delivery_receiver(const struct run *r)
{
	return delivery_of(r) == DELIVERED && !atomic_load(&r->page->end.returned)
	    ? r->ward->outsider
	    : NULL;
}

bool
delivery_settle(const struct run *r, enum delivery how)
{
	int open = UNDELIVERED;

	return r->ward->is_hold &&
	    atomic_compare_exchange_strong(r->ward->delivery, &open, how);
}
