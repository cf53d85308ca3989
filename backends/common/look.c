/* look.c - where a backend hands on what it has found. */
#include "look.h"

#include "text.h"

#include <stdlib.h>
#include <string.h>

/* Texts of an entry in which the secret may stand. */
enum { RECORD, ASKER, ONCE, WHAT, FOREIGN_WHAT, FOREIGN_WHO, FOREIGN_HOST, TEXTS };

/* A copy without the secret; "" for want of memory; NULL for NULL. */
static const char *
blotted(const char *text, const char *secret, char **copy)
{
	if (!text)
		return NULL;
	*copy = strdup(text);
	if (!*copy)
		return "";
	secret_blot(*copy, secret);
	return *copy;
}

bool
look_tell(const struct look *look, const struct entry *e, int64_t now, const char *secret)
{
	struct entry shown = *e;
	struct foreign foreign;
	char *copies[TEXTS] = {NULL};
	bool more;

	if (!secret || !*secret)
		return look->see(look->ctx, e, now);
	shown.record = blotted(e->record, secret, &copies[RECORD]);
	shown.asker = blotted(e->asker, secret, &copies[ASKER]);
	shown.once = blotted(e->once, secret, &copies[ONCE]);
	shown.what = blotted(e->what, secret, &copies[WHAT]);
	if (e->foreign) {
		foreign = *e->foreign;
		foreign.what = blotted(foreign.what, secret, &copies[FOREIGN_WHAT]);
		foreign.who = blotted(foreign.who, secret, &copies[FOREIGN_WHO]);
		foreign.host = blotted(foreign.host, secret, &copies[FOREIGN_HOST]);
		shown.foreign = &foreign;
	}
	more = look->see(look->ctx, &shown, now);
	for (size_t i = 0; i < TEXTS; i++)
		free(copies[i]);
	return more;
}
