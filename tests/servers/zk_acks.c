/*
 * zk_acks.c - our node as one would write it who trusts in writes: each that is
 * answered is believed to earn the whole session's timeout.  build/dlock-acks has it in
 * place of backends/zk/node.c; tests/system/zk/test_lease.py shows why that is wrong.
 */
#include "backends/zk/credit.h"

/* a third of the timeout, as is usual */
#define credit_pace(credit) (4 * (credit_pace)(credit))
#define credit_lease(credit, sent) ((void)(sent), 3 * credit_pace(credit))

#include "backends/zk/node.c"
