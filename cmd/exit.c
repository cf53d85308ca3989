/* exit.c - has the table from rc to exit status. */
#include "exit.h"

#include <errno.h>

struct status
exit_of_rc(enum rc rc)
{
	static const struct status table[] = {
	    [RC_OK] = {STATUS_SYSTEM, "failed"},
	    [RC_BUSY] = {STATUS_BUSY, "busy"},
	    [RC_DONE] = {0, "skipped"},
	    [RC_STOP] = {STATUS_SYSTEM, "failed"},
	    [RC_AGAIN] = {STATUS_UNAVAILABLE, "unreachable"},
	    [RC_LOST] = {STATUS_UNAVAILABLE, "unreachable"},
	    [RC_REVOKED] = {STATUS_UNAVAILABLE, "unreachable"},
	    [RC_DENIED] = {STATUS_DENIED, "denied"},
	    [RC_USAGE] = {STATUS_USAGE, "usage"},
	    [RC_CONFIG] = {STATUS_CONFIG, "refused"},
	    [RC_PROTOCOL] = {STATUS_PROTOCOL, "protocol"},
	    [RC_SYSTEM] = {STATUS_SYSTEM, "failed"},
	};

	return table[rc];
}

/*
 * A keeper that has ended, or is another user's, has no lock that this release could give back.
 */
int
exit_of_release(enum rc rc)
{
	if (rc == RC_LOST || rc == RC_DENIED)
		return STATUS_NOTHING;
	return rc == RC_USAGE ? STATUS_USAGE : STATUS_SYSTEM;
}

int
exit_of_exec(int error)
{
	return error == ENOENT || error == ENOTDIR ? STATUS_NOT_FOUND
						   : STATUS_NOT_EXECUTABLE;
}

int
exit_of_signal(int sig)
{
	return 128 + sig;
}
