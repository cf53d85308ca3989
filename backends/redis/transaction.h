/*
 * transaction.h - the string dialect on a server that runs no scripts: WATCH, MULTI, EXEC.
 */
#ifndef DLOCK_REDIS_TRANSACTION_H
#define DLOCK_REDIS_TRANSACTION_H

#include "dialects.h"

/*
 * What string.lua does.  RC_AGAIN also when others changed the lock
 * at the same time again and again.
 */
enum rc transaction_run(struct route *, const struct names *, const struct claim *,
    const struct request *, instant until, struct answer *, struct fault *);

#endif
