/*
 * filter.h - lets the library read nothing but whole answers that make sense.
 *
 *  1. It trusts its server: it takes memory for a length of 2^31 - 1, frees what it has not read
 *     when an answer ends too early, and ends the process when one comes that it has not
 *     asked for.  So an answer is read here first (inlet.h), and given to it when it is there and
 *     is one to the request whose turn it is (message.h).
 *  2. Anything else is a broken connection: the library reads an error, and begins
 *     another connection, when it may (library.h).
 *  3. It works in the library's own thread, which has one connection at a time.
 */
#ifndef DLOCK_ZK_FILTER_H
#define DLOCK_ZK_FILTER_H

/* The calling thread has begun a connection, and asked for a session. */
void filter_begin(void);

/* What the library has read as errno, for people; NULL: it is not ours. */
const char *filter_error(int error);

#endif
