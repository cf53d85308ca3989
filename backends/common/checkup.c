/* checkup.c - tells one finding of a server. */
#include "checkup.h"

#include <stdarg.h>
#include <stdio.h>

void
checkup_tell(struct checkup *c, enum fitness fitness, const char *name,
    const char *advice, const char *fact, ...)
{
	struct fault text;
	va_list ap;

	va_start(ap, fact);
	vsnprintf(text.text, sizeof text.text, fact, ap);
	va_end(ap);
	c->tell(c, &(struct finding){fitness, name, text.text, advice});
}
