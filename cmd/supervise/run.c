/* run.c - of a run: whom its lock guards. */
#include "run.h"

struct outsider *
run_guarded(const struct run *r)
{
	return r->body && r->body->outsider.pid && run_delivery(r) == DELIVERED &&
		!atomic_load(&r->page->end.returned)
	    ? &r->body->outsider
	    : NULL;
}

enum delivery
run_delivery(const struct run *r)
{
	return r->body ? atomic_load(r->body->delivery) : UNDELIVERED;
}

bool
run_settle(const struct run *r, enum delivery how)
{
	int open = UNDELIVERED;

	return r->body && atomic_compare_exchange_strong(r->body->delivery, &open, how);
}
