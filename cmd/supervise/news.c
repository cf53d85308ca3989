/* news.c - what the keeper tells the front, and nothing twice. */
#include "news.h"

#include <stdio.h>
#include <string.h>

static void
send_to_front(const struct news *n, const struct msg *m, const struct anchors *a)
{
	if (n->link >= 0)
		link_send(n->link, m, a);
}

void
news_send(struct news *n, enum msg_kind kind, int64_t number, const char *text)
{
	struct msg m = {.kind = kind, .number = number};

	snprintf(m.text, sizeof m.text, "%s", text);
	send_to_front(n, &m, NULL);
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

void
news_grant(struct news *n, const struct grant *g, const struct anchors *anchors)
{
	const struct msg m = {.kind = MSG_GRANTED, .token = g->token, .slot = g->slot};

	send_to_front(n, &m, anchors);
}

/* Which of the plan's keys is waited for. */
static unsigned
key_seen(const struct news *n)
{
	unsigned i = 0;

	while (n->host->seen.key && n->plan->keys[i] != n->host->seen.key)
		i++;
	return i;
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

bool
news_wait(struct news *n, const char *trouble)
{
	bool silent = n->host->seen.silent;
	const struct holding *holding = &n->host->seen.holding;
	struct msg m = {.kind = silent ? MSG_RETRYING : MSG_WAITING,
	    .number = n->host->seen.position};

	if (silent)
		snprintf(m.text, sizeof m.text, "%s", trouble);
	else
		m.holding = *holding;
	/* where nothing else is known, which key it is says nothing */
	m.key = silent || m.number || holding->holders || holding->frozen ||
		*holding->record
	    ? key_seen(n)
	    : n->last.key;
	if (is_same_wait(&m, &n->last))
		return false;
	n->waited = true;
	n->last = m;
	send_to_front(n, &m, NULL);
	return true;
}

void
news_suspect(struct news *n, int64_t left, const char *why)
{
	if (!n->suspect)
		news_send(n, MSG_SUSPECT, left, why);
	n->suspect = true;
}

void
news_trust(struct news *n)
{
	if (n->suspect)
		news_send(n, MSG_TRUSTED, 0, "");
	n->suspect = false;
}
