/* votes.c - what the votes of a round say, beside how many there are. */
#include "votes.h"

#include <stdio.h>
#include <string.h>

bool
votes_has(const struct quorum *q, const struct master *m)
{
	return quorum_has_heard(q, m) && m->rc == RC_OK;
}

/* The votes of one owner other than us. */
static size_t
votes_of(const struct quorum *q, const char *owner)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		n += votes_has(q, m) && m->vote.verdict == VERDICT_NO &&
		    strcmp(m->vote.owner, owner) == 0;
	}
	return n;
}

const struct vote *
votes_find_holder(const struct quorum *q)
{
	const struct vote *found = NULL;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		if (votes_has(q, m) && m->vote.verdict == VERDICT_NO &&
		    votes_of(q, m->vote.owner) >= q->need && (!found || !*found->record))
			found = &m->vote;
	}
	return found;
}

void
votes_find_mark(const struct quorum *q, char *mark, size_t size)
{
	*mark = '\0';
	for (size_t i = 0; i < q->n && !*mark; i++)
		if (votes_has(q, &q->masters[i]))
			snprintf(mark, size, "%s", q->masters[i].vote.record);
}

size_t
votes_count_foreign(const struct quorum *q)
{
	size_t n = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct master *m = &q->masters[i];

		n += quorum_has_heard(q, m) && m->rc != RC_OK && m->route.foreign;
	}
	return n;
}

bool
votes_are_repeated(const struct quorum *q)
{
	for (size_t i = 0; i < q->n; i++)
		if (quorum_has_heard(q, &q->masters[i]) && q->masters[i].vote.repeated)
			return true;
	return false;
}

bool
votes_are_in(const struct quorum *q, const struct tally *t)
{
	return t->votes[VERDICT_YES] >= q->need || t->answered + t->open < q->need ||
	    (t->answered >= q->need && t->open == 0);
}
