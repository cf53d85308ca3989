/*
 * tickets.h - what the kernel's byte locks on an open file can say and do.
 *
 * Ticket N of a line is a write lock on byte N of its range: fcntl(2)
 * F_OFD_SETLK, which belongs to the open file, so that a copy of the descriptor
 * in another process keeps it, and the end of the last copy frees it at once.
 * What the ranges mean, says place.h.  A read lock on such
 * a byte is somebody's who has waited for it to become free: it is no ticket.
 *
 * The kernel reports, of all locks in a range, the first one in its own list,
 * which is not the lowest.  Nothing here takes it for that.  It looks through
 * that list for each question, so that what counts is how few are asked.
 */
#ifndef DLOCK_FILE_TICKETS_H
#define DLOCK_FILE_TICKETS_H

#include <stdbool.h>
#include <stdint.h>

enum { META = 0 };

enum range { ALONE, LIMITED, PERMITS, LIMITS, READERS, RANGES };

/*
 * Numbers of tickets are below this, as are tokens and times: 18 digits.  Clocks reach
 * half of that in the year 17,800.
 */
#define NUMBER_LIMIT INT64_C(1000000000000000000)

/* Byte `n` of a range, which has room for NUMBER_LIMIT. */
#define BYTE(range, n) (((int64_t)(range) << 60) + (n))
#define RANGE_OF(byte) ((enum range)((byte) >> 60))
#define NUMBER_OF(byte) ((byte) & (BYTE(1, 0) - 1))

/* Bytes [from, to). */
struct span {
	int64_t from, to;
};

/* Numbers [from, to) of a range. */
static inline struct span
numbers(enum range r, int64_t from, int64_t to)
{
	return (struct span){BYTE(r, from), BYTE(r, to)};
}

struct ticket_wait;

/*
 * Takes or gives back one byte without waiting (F_WRLCK, F_RDLCK, F_UNLCK): 0, or -1
 * with errno, EAGAIN if it is taken.
 */
int tickets_lock(int fd, short type, int64_t byte);
void tickets_unlock(int fd, struct span);

/*
 * Is there a lock of others in the span that `type` conflicts with: F_RDLCK with
 * those for writing, F_WRLCK with all?  1: some such lock, cut to the span, is
 * *found; 0: none; -1 with errno.
 */
int tickets_look(int fd, short type, struct span, struct span *found);

/*
 * The last ticket of others that is alive below `limit` in the range that begins at
 * `base`; 0: there is none; -1 with errno.  `hint`, at most `limit`, is where it should
 * be: just below. Three questions where that is so, some 2 log(distance) where it is not.
 * While we look none may be drawn below `limit`; some may end.
 */
int64_t tickets_last(int fd, int64_t base, int64_t hint, int64_t limit);

/*
 * The first bytes of the span that others have locked for writing side by side, cut to
 * the span.  Two questions where the kernel's list is in order.
 */
bool tickets_next(int fd, struct span, struct span *found);

/*
 * Lets a thread wait in the kernel until it can lock all of the span, since fcntl
 * cannot wait in poll.  NULL with errno.  The lock belongs to the open file
 * behind `fd`; the thread has a descriptor of its own for it.
 */
struct ticket_wait *tickets_wait(int fd, short type, struct span);

/* The same for all of a file, by flock(2) or else by fcntl(2), as other programs lock it. */
struct ticket_wait *tickets_wait_file(int fd, bool by_flock, short type);

/* Locks or unlocks all of a file, without waiting.  0, or -1 with errno: EAGAIN: it is taken. */
int tickets_lock_file(int fd, bool by_flock, short type);

/* A descriptor that becomes readable when the thread has the lock or an error. */
int tickets_done(const struct ticket_wait *);

/*
 * Has the thread got it?  Frees `w`.  Before tickets_done() is readable that is
 * not known, and the thread is abandoned: it keeps the file open until it gets
 * the lock or the process ends, so that what else is locked on it is to be
 * unlocked, not just closed; and it gives back at once what it gets from now on,
 * also if by then the same open file has locked that in another way.  A `true` of
 * that time is therefore not yours either, and is to be unlocked.
 */
bool tickets_waited(struct ticket_wait *w);

/*
 * A descriptor that becomes readable when somebody may have let go of some lock
 * on the file: has called tickets_wake() after it, or is about to lose it with
 * his last descriptor.  About to: the kernel says it is closed and then takes
 * the locks away.  -1 where the kernel does not tell such things.
 */
int tickets_watch(int fd);
void tickets_watched(int watch); /* forgets what it has told so far */

/* Closes it, in a thread: the kernel takes some 20 ms for that.  Accepts -1. */
void tickets_unwatch(int watch);

/* Tells those who watch the file that something has been unlocked. */
void tickets_wake(int fd);

#endif
