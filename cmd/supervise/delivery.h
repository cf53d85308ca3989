/*
 * delivery.h - of a hold: does the process that asked for it know that it has the lock?
 *
 * What each state means says ward.h.  The front delivers (front.c); front and keeper may each
 * withdraw what is not delivered yet.
 */
#ifndef DLOCK_DELIVERY_H
#define DLOCK_DELIVERY_H

#include "ward.h"

enum delivery delivery_of(const struct run *);

/* Of a hold: was it delivered?  Of a command: always true, also before the grant. */
bool delivery_known(const struct run *);

/*
 * The process that has a hold now, and is stopped if the lock is lost; NULL: none, also of a
 * command.
 */
struct outsider *delivery_receiver(const struct run *);

/* Settles UNDELIVERED as DELIVERED or WITHDRAWN.  False: it was settled before, or is no hold. */
bool delivery_settle(const struct run *, enum delivery);

#endif
