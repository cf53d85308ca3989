/* lease_steering.c - looks at and steers what mode=lease keeps. */
#include "modes.h"

static enum rc
lease_each(struct mysql *my, const struct look *look, struct fault *f)
{
	(void)look;
	return fault_set(f, RC_CONFIG, "%s: not yet", my->session.where);
}

const struct steering mysql_lease_steering = {.each = lease_each};
