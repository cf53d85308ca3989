/*
 * stranger.h - asks a server that says nothing whether it is one of another kind.
 *
 * Redis, memcached, ZooKeeper and servers of HTTP wait for the rest of what a database's client says
 * first, for as long as the client waits for them.  They answer a line of theirs at once.  It goes
 * through a second connection: a database that is only slow gets its first words unspoilt.
 */
#ifndef DLOCK_SQL_STRANGER_H
#define DLOCK_SQL_STRANGER_H

#include "backends/common/instant.h"
#include "backends/common/task.h"

/*
 * The name of what answers at the address to which `fd` is connected: "Redis".  NULL: nobody, or
 * nothing known; or the kind that is expected there (`ours`), which was only late.  Blocks for three
 * seconds at most, and no longer than until `end`, or `fd` can be read, or nobody waits for the task.
 * A process asks a few times only: a database that has too much to do is not to have more of it with
 * each connection.
 */
const char *stranger_ask(const struct task *, int fd, const char *ours, instant end);

#endif
