/*
 * run.h - one run of dlock in its processes, and all that passes between them.
 *
 *	cmd/run.c, cmd/hold.c   fill in a struct run; then start.c forks
 *	front.c    the process that the user sees.  It has the pid that the shell knows, the
 *	           terminal, and no library, thread or socket to a server.  It passes
 *	           signals on, speaks, is suspended when the command is, and ends as that ended.
 *	           When the keeper is killed, or frozen beyond a deadline, the front kills
 *	           the command's tree itself and reports the lock as lost; it never
 *	           releases, since it cannot know
 *	keeper.c   keeps the lock: it owns the backend, the command and the lease.  It lives
 *	           in a process group of its own, with a terminal in a session of its own,
 *	           and has none of the user's descriptors: what is to be said, it tells
 *	           the front.  When the front dies,
 *	           it stops the command's tree, then releases.  After the front has been told
 *	           the ending it may live on alone, for --min-hold, or to release when the
 *	           server did not answer
 *	command.c  the command, which the kernel kills when the keeper dies
 *	parent.c   with --with-parent, sees the end of the process that has started us
 *	witness.c  on a terminal, in the front's group: tells which signals were for all of it
 *
 * Each may be killed or frozen at any line.  After the fork each has its own copy of the
 * struct run, and only this carries anything further:
 *
 *	page.h      memory that all see, for what must be known even when another process is
 *	            frozen or dead: the deadlines, the ending
 *	link.h      a pair of sockets for messages between front and keeper
 *	"go"        an instant for the command: it may begin, but not later than that
 */
#ifndef DLOCK_RUN_H
#define DLOCK_RUN_H

#include "join_address.h"
#include "join_site.h"
#include "link.h"
#include "parent.h"
#include "signals.h"
#include "step.h"
#include "stub.h"
#include "verdict.h"
#include "ward.h"

#include <sys/types.h>

/* So much of a socket_id is the run's own, whichever of its keepers has it. */
#define RUN_ID_CHARS (JOIN_ID_CHARS / 2)

struct run {
	const struct params *params;
	const struct origin *origin;
	struct page *page;
	int ends[2]; /* of the link: [0] the front's, [1] the keeper's */
	const struct join_site *where; /* the lock is kept */
	const char *site;              /* the same for DLOCK_KEEPER, behind our address */
	struct ward *ward;
	const char *path; /* of a command: what to execute */
	char owner[OWNER_CHARS + 1];
	char socket_id[JOIN_ID_CHARS + 1]; /* the name of the keeper's socket */
	char record[RECORD_BYTES];
	const char *outer; /* DLOCK_KEEPER of the living keepers around us, or "" */
	struct told told;  /* in the front of a hold: where it comes with the grant */
	/* the front has children from before: `daemon & exec dlock run ...` */
	bool has_elders;
	struct parent parent; /* with whom we are to end */
	instant began;
	/* --newest: when the run came by the server's clock, if a keeper has seen it; else 0 */
	int64_t newest;
	bool again;         /* a look of an earlier keeper has led to this one */
	uint64_t seed;      /* of each keeper's pauses between attempts */
	pid_t front, shown; /* the front's pid, and the one in our record */
};

/* ---- its processes ---- */

/*
 * Notes the signal mask and SIGCHLD, which the command gets back, and whether there is a terminal;
 * then blocks all signals but faults.
 */
void start_origin(struct origin *);

/*
 * Forks a keeper and is the front beside it, again each time that the waiting was suspended.  Returns how the
 * run ended, for start_end().  The caller has filled in params, origin, ward, parent and,
 * of a command, path.
 */
struct verdict start_run(struct run *);

/*
 * Dies of `sig`, as the command did: a loop in a shell stops on Ctrl-C only when it sees that.
 * Returns the status to exit with if that does not end this process.
 */
int start_die_of(int sig);

/* Says what there is to say and ends the process. */
_Noreturn void start_end(const struct params *, const struct verdict *);

/*
 * Runs beside a keeper just forked; returns how it ended, to be said and exited with.  If its
 * `signal` suspends (Ctrl-Z), or `again` is set, the caller asks anew with another keeper.
 */
struct verdict front_run(const struct run *, pid_t keeper);

/*
 * To be called last.  Runs that have joined a hold need not be below its process: they hear that it
 * is lost, and stop their own trees.  Where what keeps the lock, or others of its locks, is
 * descriptors that we have, this returns when the last of these runs has done that, however long it
 * needs: it may be suspended.
 */
void front_await_joined(void);

/* Runs in the keeper's process, right after the fork. */
_Noreturn void keeper_run(const struct run *);

#endif
