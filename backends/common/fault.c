/* fault.c - puts into words what became of a call. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef fault_set /* an analyzer has another one */

enum rc
fault_set(struct fault *f, enum rc rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->text, sizeof f->text, fmt, ap);
	va_end(ap);
	return rc;
}

enum rc
fault_of(struct fault *f, enum rc rc, const char *where, const char *what)
{
	char *at = f->text;
	const char *end = f->text + sizeof f->text - 1;

	at = mempcpy(at, where, strnlen(where, end - at - 1));
	*at++ = ' ';
	at = mempcpy(at, what, strnlen(what, end - at));
	*at = '\0';
	return rc;
}

const char *
fault_rc_name(enum rc rc)
{
	static const char *const names[] = {
	    [RC_OK] = "ok",
	    [RC_BUSY] = "busy",
	    [RC_DONE] = "done already",
	    [RC_STOP] = "stopped",
	    [RC_AGAIN] = "no answer",
	    [RC_LOST] = "not ours",
	    [RC_REVOKED] = "wanted back",
	    [RC_DENIED] = "denied",
	    [RC_USAGE] = "usage",
	    [RC_CONFIG] = "unsafe configuration",
	    [RC_PROTOCOL] = "protocol",
	    [RC_SYSTEM] = "system",
	};

	return names[rc];
}
