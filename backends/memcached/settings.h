/*
 * settings.h - a store from what the user has said: URL and -O.
 *
 * Nothing here touches the network.  The password is wiped when the store is closed.
 */
#ifndef DLOCK_MEMCACHED_SETTINGS_H
#define DLOCK_MEMCACHED_SETTINGS_H

#include "backends/backend.h"

extern const struct setting_row settings_rows[];

/* As struct backend has them. */
enum rc settings_open(
    struct store **ret, struct host *, const struct site *, struct fault *);
void settings_close(struct store *);
enum rc settings_identify(struct store *, struct identity *, struct fault *);

#endif
