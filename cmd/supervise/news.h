/*
 * news.h - what the keeper tells the front, and nothing twice.
 *
 * The keeper's end of the link.  When the front is gone, nobody is told.
 */
#ifndef DLOCK_NEWS_H
#define DLOCK_NEWS_H

#include "run.h"

struct news {
	const struct plan *plan;
	struct host *host;
	int link; /* -1: the front is gone, and its end was seen and closed */
	/* the front has been told: */
	bool waited;     /* that we wait */
	struct msg last; /* what for; at first: for nobody */
	bool suspect;    /* that a renewal was not answered */
};

void news_send(struct news *, enum msg_kind, int64_t number, const char *text);

/* MSG_TRACE, of a struct news: as host->tell. */
void news_trace(void *news, const char *line);

/* What the backend wants the user to know, if there is something. */
void news_notice(struct news *);

/*
 * What is waited for; `trouble` is why a silent server does not answer.  Is that something
 * else than before?
 */
bool news_wait(struct news *, const char *trouble);

/* The grant, with the anchors, if there are any. */
void news_grant(struct news *, const struct grant *, const struct anchors *);

/* A renewal was not answered, and so much time is left until TERM; or one was. */
void news_suspect(struct news *, int64_t left, const char *why);
void news_trust(struct news *);

#endif
