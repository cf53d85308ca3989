/* look.h - what a look has seen of one key after the other, on its way to who looks. */
#ifndef DLOCK_SQL_LOOK_H
#define DLOCK_SQL_LOOK_H

#include "sql.h"

/* One look; whoever reads the rows stops when there is `enough`. */
struct sql_look {
	const struct look *look;
	/* of the last row: of KEY_BYTES in any encoding that a database may have, in UTF-8 */
	char key[4 * KEY_BYTES + 1];
	int64_t now;          /* the server's, then */
	int64_t turn, number; /* of that row, where pages go by these below a key */
	unsigned waiters;     /* of that key, until now */
	bool untold;          /* they are counted, and that is not told yet */
	bool enough;          /* nobody wants more */
};

/*
 * The position of the next row: its first three fields are key, turn and number; 0 holds, 1
 * waits.  `moment` is that with the server's clock.  False: it makes no sense, or goes back
 * (of keys, unless these are in `any_order`).
 */
bool sql_look_position(
    struct sql_look *, const struct row *, int64_t turns, int moment, bool any_order);

/* The next row is of `key`, which is shorter than the member; perhaps the same again. */
void sql_look_key(struct sql_look *, const char *key);

void sql_look_entry(struct sql_look *, const struct entry *);

/* The same of one who holds or waits; who waits gets a position, or is only counted. */
void sql_look_claim(struct sql_look *, struct entry *);

/* At the end, and where a key has more rows behind its waiters: how many these were. */
void sql_look_waiting(struct sql_look *);

/*
 * One page: asks, and has each row read (false: it makes no sense), until there is enough.
 * *n: how many rows came.
 */
enum rc sql_look_page(struct sql *, struct sql_look *, const struct question *,
    bool (*read)(void *ctx, const struct row *), void *ctx, int *n, struct fault *);

/*
 * A session as the owner of a lock, for struct target: "4711-1764000000000000".  The second
 * number is for that the first one comes again; 0: it is not known.
 */
struct session_name {
	int64_t session, second;
};
enum { SESSION_NAME_BYTES = 48 };

void session_name_write(char out[SESSION_NAME_BYTES], const struct session_name *);

/* False: the owner is no session. */
bool session_name_read(const char *owner, struct session_name *);

#endif
