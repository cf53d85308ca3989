/* trace.c - writes one line about a call to a backend. */
#include "trace.h"

#include <stdio.h>

void
trace_call(const struct host *host, const struct store *s, const char *key,
    const char *call, instant began, enum rc rc, const struct grant *g,
    const struct fault *f)
{
	instant now = instant_now();
	char line[1024], lease[64] = "";

	if (!host->tell)
		return;
	if (g && g->lease == LEASE_FOREVER && (rc == RC_OK || rc == RC_REVOKED))
		snprintf(lease, sizeof lease, ", kept until this process ends");
	else if (g && (rc == RC_OK || rc == RC_REVOKED))
		snprintf(lease, sizeof lease, ", lease for %.3f s",
		    (double)(instant_after(g->sent, g->lease) - now) / NS_PER_S);
	snprintf(line, sizeof line, "%s: %s%s%.100s: %s in %.3f ms%s%s%s", s->where, call,
	    key ? " " : "", key ? key : "", fault_rc_name(rc),
	    (double)(now - began) / NS_PER_MS, lease, rc == RC_OK ? "" : ": ",
	    rc == RC_OK ? "" : f->text);
	host->tell(host->tell_ctx, line);
}
