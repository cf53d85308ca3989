/*
 * tickets.h - a queue in the byte locks of an open file.
 *
 * Ticket N is a write lock on byte N: fcntl(2) F_OFD_SETLK, which belongs to
 * the open file, so that a copy of the descriptor in another process keeps it,
 * and the end of the last copy frees it at once.  Byte 0 (META) is no ticket.
 * A read lock on a byte is somebody's who has waited for that ticket to end:
 * it is none either.
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

struct ticket_wait;

/*
 * Takes or gives back one byte without waiting (F_WRLCK, F_RDLCK, F_UNLCK): 0, or -1
 * with errno, EAGAIN if it is taken.
 */
int tickets_lock(int fd, short type, int64_t byte);
void tickets_unlock(int fd, int64_t byte);

/* Is any ticket of others alive? */
bool tickets_any(int fd);

/*
 * The last ticket of others that is alive below `limit`; 0: there is none; -1
 * with errno.  `hint`, at most `limit`, is where it should be: just below.
 * Three questions where that is so, some 2 log(distance) where it is not.
 * While we look none may be drawn below `limit`; some may end.
 */
int64_t tickets_last(int fd, int64_t hint, int64_t limit);

/*
 * How many tickets of others are alive below `ticket`, for people.  Where that
 * may be more than some dozens it is reckoned from the numbers, and counts
 * those who have left the queue in the middle.
 */
unsigned tickets_before(int fd, int64_t ticket);

/*
 * Lets a thread wait for the byte in the kernel, since fcntl cannot wait in
 * poll.  NULL with errno.  The lock belongs to the open file behind `fd`; the
 * thread has a descriptor of its own for it.
 */
struct ticket_wait *tickets_wait(int fd, short type, int64_t byte);

/* A descriptor that becomes readable when the thread has the lock or an error. */
int tickets_done(const struct ticket_wait *);

/*
 * Has the thread got it?  Frees `w`.  A thread that still waits is abandoned,
 * and keeps the file open until it gets the lock or the process ends: what else
 * is locked on it is to be unlocked, not just closed.
 */
bool tickets_waited(struct ticket_wait *w);

#endif
