/*
 * zk_acks.c - the zk backend as one would write it who trusts in writes: each that
 * is answered is believed to earn the whole session's timeout.  build/dlock-acks has
 * it in place of backends/zk/zk.c; tests/system/test_zk_lease.py shows why that is wrong.
 */
#include "backends/zk/session.h"

#define session_pace(session) (4 * (session_pace)(session)) /* a third of the timeout, as is usual */
#define session_lease(session, sent) ((void)(sent), 3 * session_pace(session))

#include "backends/zk/zk.c"
