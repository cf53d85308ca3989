/*
 * news.h - what the keeper tells the front over the link, and nothing twice.
 */
#ifndef DLOCK_NEWS_H
#define DLOCK_NEWS_H

#include "link.h"

/* The keeper's end of the link.  When the front is gone, nobody is told. */
struct news {
	const struct params *params;
	struct host *host;
	int link; /* -1: the front is gone, and its end was seen and closed */
	/* the front has been told: */
	bool suspect;    /* that a renewal was not answered */
	struct msg last; /* what we wait for; at first: for nobody */
};

/* False: the front will not hear of it. */
bool news_message(
    const struct news *, const struct msg *, const struct anchors *, const struct told *);
bool news_send(struct news *, enum msg_kind, int64_t number, const char *text);

/*
 * Sends a grant, with all that keeps the lock; `watched`: outer.watched is among that.  False, with
 * errno: it has not reached the front.
 */
bool news_grant(const struct news *, const struct grant *, const struct anchors *,
    bool watched, const struct told *);

/* MSG_TRACE, of a struct news: as host->tell. */
void news_trace(void *news, const char *line);

/* Tells what the backend wants the user to know, if there is something. */
void news_notice(struct news *);

/*
 * Tells what is waited for; `trouble` is why a silent server does not answer.  False: it is the
 * same as before.
 */
bool news_wait(struct news *, const char *trouble);

#endif
