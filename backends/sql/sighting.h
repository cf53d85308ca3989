/* sighting.h - what a look has seen of one key after the other, on its way to who looks. */
#ifndef DLOCK_SIGHTING_H
#define DLOCK_SIGHTING_H

#include "backends/backend.h"

/* One look; whoever reads the rows stops when there is `enough`. */
struct sighting {
	const struct look *look;
	/* of the last row: of KEY_BYTES in any encoding that a database may have, in UTF-8 */
	char key[4 * KEY_BYTES + 1];
	int64_t now;      /* the server's, then */
	unsigned waiters; /* of that key, until now */
	bool untold;      /* they are counted, and that is not told yet */
	bool enough;      /* nobody wants more */
};

/* The next row is of `key`, which is shorter than the member; perhaps the same again. */
void sighting_key(struct sighting *, const char *key);

void sighting_tell(struct sighting *, const struct entry *);

/* The same of one who holds or waits; who waits gets a position, or is only counted. */
void sighting_tell_one(struct sighting *, struct entry *);

/* At the end, and where a key has more rows behind its waiters: how many these were. */
void sighting_tell_waiting(struct sighting *);

#endif
