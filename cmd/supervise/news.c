/* news.c - what the keeper tells the front, and nothing twice. */
#include "news.h"

#include <stdio.h>
#include <string.h>

void
news_init(struct news *n, const struct plan *p, struct host *host, int link)
{
	n->plan = p;
	n->host = host;
	n->link = link;
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

static void
send_to_front(struct news *n, struct msg *m)
{
	m->key = key_seen(n);
	if (n->link >= 0)
		link_send(n->link, m, NULL);
}

void
news_send(struct news *n, enum msg_kind kind, int64_t number, const char *text)
{
	struct msg m = {.kind = kind, .number = number};

	snprintf(m.text, sizeof m.text, "%s", text);
	send_to_front(n, &m);
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
	struct msg m = {.kind = MSG_GRANTED, .token = g->token, .slot = g->slot};

	if (n->link >= 0)
		link_send(n->link, &m, anchors);
}

/* But for the time, which always passes. */
static bool
is_same_holding(const struct holding *a, const struct holding *b)
{
	return a->kind == b->kind && a->holders == b->holders && a->limit == b->limit &&
	    a->frozen == b->frozen && strcmp(a->record, b->record) == 0;
}

bool
news_wait(struct news *n, const char *trouble)
{
	bool silent = n->host->seen.silent;
	unsigned position = n->host->seen.position;
	const struct holding *holding = &n->host->seen.holding;
	const char *why = silent ? trouble : "";
	/* else which key it is says nothing */
	bool known = silent || position || holding->holders || holding->frozen ||
	    *holding->record;
	unsigned key = known ? key_seen(n) : n->key;

	if (n->silent == silent && n->position == position && n->key == key &&
	    is_same_holding(&n->holding, holding) && strcmp(n->why, why) == 0)
		return false;
	n->waited = true;
	n->silent = silent;
	n->position = position;
	n->key = key_seen(n);
	n->holding = *holding;
	snprintf(n->why, sizeof n->why, "%s", why);
	if (silent)
		news_send(n, MSG_RETRYING, position, why);
	else
		send_to_front(n,
		    &(struct msg){
			.kind = MSG_WAITING, .number = position, .holding = *holding});
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
