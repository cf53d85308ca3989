/*
 * zk_reads.c - the zk backend as everybody else writes it: the lock is believed
 * to be held for as long as the server answers reads.  build/dlock-reads has it
 * in place of backends/zk/zk.c; tests/system/test_zk_outages.py shows what becomes of it when a
 * follower is cut off from its leader.
 */
#include "backends/zk/session.h"

#define session_set(session, path, data, version) session_get(session, path)

#include "backends/zk/zk.c"
