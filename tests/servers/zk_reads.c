/*
 * zk_reads.c - our node as everybody else keeps it: the lock is believed to be held for
 * as long as the server answers reads.  build/dlock-reads has it in place of
 * backends/zk/node.c; tests/system/zk/test_outages.py shows what becomes of it when a
 * follower is cut off from its leader.
 */
#include "backends/zk/call.h"

#define call_set(session, path, data, version) call_ask(session, ASK_GET, path)

#include "backends/zk/node.c"
