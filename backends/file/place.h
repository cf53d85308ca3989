/*
 * place.h - one line on a lock file for locks of all kinds, made of byte locks.
 *
 * THE BYTES.  All that is decided is decided by which bytes of the file are
 * locked, in these ranges (the file itself is shorter, which does not matter):
 *
 *	META		    locked by who joins, or writes down a grant
 *	ALONE   + N	    ticket N of an exclusive lock, waiting or holding
 *	LIMITED + N	    ticket N of a limited lock, waiting only
 *	PERMITS + S	    permit S of a limited lock, holding
 *	LIMITS  + L	    locked for reading by every limited lock of limit L
 *	READERS + N	    ticket N of a shared lock, waiting or holding
 *
 * Numbers are dealt for all lines together.  All but LIMITS are locked for
 * writing, so one process has each; read locks on them are passing: of one who
 * has waited for these bytes, and looks again.
 *
 * THE RULES.  (1) With META locked a process looks whether the key is in use by
 * a kind that does not go with its own, locks its byte of LIMITS if it is
 * limited, takes a number N above every ticket alive, and locks its ticket.
 * (2) It holds the lock as soon as it finds, of its like, nothing alive:
 *	exclusive: no ticket below N in any line, and then no permit;
 *	shared: no ticket below N in ALONE;
 *	limited: no ticket below N in ALONE nor LIMITED; it then takes
 *	the lowest permit it can lock, gives back its ticket, and holds.
 * (3) It gives all back in one call of the kernel, or by ending.
 *
 * Who finds nothing in the way when it joins a limited lock takes its permit at
 * once, and no ticket.
 *
 * FIRST COME, FIRST SERVED.  Nobody can join below N while ticket N is alive,
 * by (1).  So the set of tickets below N only shrinks, and a look that finds
 * none of some line there is true for ever: looking needs no lock.  Each waits
 * for whoever came before it and excludes it, whether that one holds or waits;
 * so a reader never overtakes a writer that waits.  Two limited locks become
 * holders in the order of their tickets, since only one whose ticket is the
 * lowest tries the permits.
 *
 * EXCLUSION.  Let X be exclusive with ticket N and hold; let Y hold at the same
 * time.  If Y has a ticket (exclusive, shared), one number is lower: were it
 * Y's, X would have found it alive; were it N, Y would have found X's, which
 * blocks every kind.  If Y is limited, it has a permit.  Had Y joined after X, it
 * would have found X's ticket and waited.  So it joined before: its ticket was
 * below N, or it had its permit before N was dealt.  X looks at tickets first and
 * then at permits, Y locks its permit before it gives back its ticket: X sees one
 * of them.  Shared and limited locks exclude each other when joining: a reader
 * is refused while a byte of LIMITS is locked, which every limited lock has from
 * before its ticket or permit until its end; and a limited lock is refused while
 * a ticket of READERS is alive.  Two limits alike.  Who leaves meanwhile
 * makes an answer too careful, never wrong.
 *
 * PERMITS.  A permit is a byte that one process has locked for writing: the kernel
 * sees to it that it is unique, and that there are no more holders than permits
 * below the limit, which all of them share.
 *
 * NO LOST WAKE-UP.  Who waits, waits in the kernel for certain bytes, which are
 * locked when it begins or not: the kernel compares and sleeps in one step.
 *	exclusive: for the tickets nearest before it, which are one exclusive
 *	    ticket, or all shared (limited) ones behind that, in one call that
 *	    returns when the last of these is gone; in the end for all permits;
 *	shared: for the nearest exclusive ticket, which wakes all readers behind
 *	    it and nobody else;
 *	limited: for the nearest ticket of both lines that count; if there is
 *	    none, for any permit.
 * When these are gone it looks again.  For any permit the kernel cannot be waited
 * for.  Only the first of the line needs it, and sleeps until the kernel tells
 * that somebody has let go of the file (tickets_watch), then looks, and looks
 * again after 1, 2, 4, ... ms.  An orderly holder wakes it after it has unlocked,
 * so that the first look sees it.  One that dies is told of just before the
 * kernel takes its locks; if that takes the time t, for want of a processor, the
 * later looks see it after 2t at most.  That it has begun to watch wakes it, too;
 * there is no look without any.
 *
 * WHO DIES, at whatever step, has no byte any more, and so is as if it had never
 * come, or had left.  Who holds dies only with its last descriptor: the front
 * has one from before the command starts until nothing of it is left.  A token
 * may have been written for a grant nobody got; no later one is lower.
 *
 * A FREEZE is none of the kernel's locks.  Whoever finds nothing in its way looks for
 * one, with META locked, before it writes down that the lock is its own; a freeze is
 * made and ended with META locked, too.  Who finds one keeps its ticket, as the first
 * in line, gives back a permit, if it has taken one, and waits for the end: so the line
 * stays as it is, and those behind it sleep.
 *
 * WHO IS STOPPED keeps its bytes.  As a holder, that is right.  As a waiter it
 * keeps those behind it waiting.  With META locked,
 * for some system calls, it keeps all others from joining and from being
 * granted, but nobody from ending; -n gives up after a second.  A waiter that
 * is stopped or ends while a thread of it waits for bytes gets these for reading
 * at most, which makes nobody wait but who would deal that very number, and none
 * does while its own ticket is alive.
 */
#ifndef DLOCK_FILE_PLACE_H
#define DLOCK_FILE_PLACE_H

#include "backends/backend.h"
#include "tickets.h"

/* Our place in the line of one file; the file is the caller's. */
struct place {
	int fd;
	enum lock_kind kind;
	unsigned limit;
	int64_t ticket; /* 0: none */
	int permit;     /* -1: none */
	bool plain;     /* whoever is before us is exclusive, too */
	/*
	 * What is to end before we are granted the lock; nothing (from == to): it is
	 * ours.
	 */
	struct span before;
	bool any; /* one byte of that is enough */
};

/* Has anybody a byte of these ranges, and not only passing?  1, 0, or -1 with errno. */
int place_any(int fd, enum range first, enum range last);

/* Is there a limit from `least` to `most`?  1: *limit is it; 0; or -1 with errno. */
int place_limit(int fd, unsigned least, unsigned most, unsigned *limit);

/* Sets a place that is not in line yet, on this file. */
void place_init(struct place *, int fd, enum lock_kind, unsigned limit);

/*
 * With META locked, and before anything else: is the key in use by a kind that
 * does not go with ours?  1: *other is that one, with its *limit; 0: no, and our
 * own limit is known to others from now on; -1 with errno.
 */
int place_refuses(struct place *, enum lock_kind *other, unsigned *limit);

/*
 * With META locked: the number we are to have, above all that are alive, and
 * what is before it.  If nothing is, a limited lock has its permit now.  `hint`:
 * the number it should be.  NUMBER_LIMIT: there is none, for as long as what is
 * before us now is alive; only somebody else's program locks that much.  -1 with
 * errno.
 */
int64_t place_join(struct place *, int64_t hint);

/* Looks again what is before our ticket; then as above.  0, or -1 with errno. */
int place_look(struct place *);

/* Locks the lowest permit that can be had.  1: done; 0: there is none; -1 with errno. */
int place_take_permit(struct place *);

/* The byte of our ticket of this number. */
int64_t place_byte(const struct place *, int64_t number);

/* Is something before us that is to end first? */
bool place_is_waiting(const struct place *);

/* Are we in line with all we need, so that nobody can come before us? */
bool place_has_joined(const struct place *);

/* The byte that makes us the holder, once nothing is before us. */
int64_t place_held_byte(const struct place *);

/* Gives back a permit that is not to be used now: our ticket is the first in line again. */
void place_give_permit_back(struct place *);

/* It has been written down that the lock is ours. */
void place_granted(struct place *);

/* Gives all back, and tells those who wait for a permit. */
void place_leave(struct place *);

#endif
