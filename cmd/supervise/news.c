/* news.c - what the keeper tells the front, and nothing twice. */
#include "news.h"

#include "cmd/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool
news_message(const struct news *n, const struct msg *m, const struct anchors *a,
    const struct told *told)
{
	if (n->link >= 0)
		return link_send(n->link, m, a, told);
	errno = EPIPE;
	return false;
}

bool
news_send(struct news *n, enum msg_kind kind, int64_t number, const char *text)
{
	struct msg m = {.kind = kind, .number = number};

	snprintf(m.text, sizeof m.text, "%s", text);
	return news_message(n, &m, NULL, NULL);
}

bool
news_grant(const struct news *n, const struct grant *g, const struct anchors *a,
    bool watched, const struct told *told)
{
	const struct msg m = {
	    .kind = MSG_GRANTED, .number = watched, .token = g->token, .slot = g->slot};

	return news_message(n, &m, a, told);
}

void
news_trace(void *news, const char *line)
{
	news_send(news, MSG_TRACE, 0, line);
}

void
news_notice(struct news *n)
{
	if (!*n->host->notice.text)
		return;
	news_send(n, MSG_NOTICE, 0, n->host->notice.text);
	n->host->notice.text[0] = '\0';
}

/* But for the time, which always passes. */
static bool
is_same_wait(const struct msg *a, const struct msg *b)
{
	const struct holding *x = &a->holding, *y = &b->holding;

	if (a->kind != b->kind || a->number != b->number || a->key != b->key)
		return false;
	if (a->kind == MSG_RETRYING)
		return strcmp(a->text, b->text) == 0;
	return x->kind == y->kind && x->holders == y->holders && x->limit == y->limit &&
	    x->frozen == y->frozen && strcmp(x->record, y->record) == 0;
}

/* Which key is waited for, as params_awaited() counts them. */
static unsigned
awaited(const struct news *n)
{
	const char *key = n->host->seen.key;
	unsigned i = 0;

	while (key && i < KEYS_MAX + SWITCHES_MAX && params_awaited(n->params, i) != key)
		i++;
	return i < KEYS_MAX + SWITCHES_MAX ? i : 0;
}

bool
news_wait(struct news *n, const char *trouble)
{
	bool silent = n->host->seen.silent;
	const struct holding *holding = &n->host->seen.holding;
	struct msg m = {.kind = silent ? MSG_RETRYING : MSG_WAITING,
	    .number = n->host->seen.position};

	record_blot(n->host->seen.holding.record, n->host->secret);
	if (silent)
		snprintf(m.text, sizeof m.text, "%s", trouble);
	else
		m.holding = *holding;
	/* where nothing else is known, which key it is says nothing */
	if (!silent && !m.number && !holding->holders && !holding->frozen &&
	    !*holding->record)
		m.key = n->last.key < KEYS_MAX ? n->last.key : 0;
	else
		m.key = awaited(n);
	if (is_same_wait(&m, &n->last))
		return false;
	/* what found no room is news again the next time */
	if (news_message(n, &m, NULL, NULL))
		n->last = m;
	return true;
}
