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
	int link; /* -1: the front is gone */
	/* the front has been told: */
	bool waited;            /* that we wait: */
	bool silent;            /* for a server that does not answer, */
	unsigned position;      /* or at this place in the queue */
	unsigned key;           /* for this key, */
	struct holding holding; /* which these hold; */
	char why[RECORD_BYTES]; /* why it does not answer */
	bool suspect;           /* that a renewal was not answered */
};

/* plan and host outlive it; the link is closed by whoever sees its end. */
void news_init(struct news *, const struct plan *, struct host *, int link);

void news_send(struct news *, enum msg_kind, int64_t number, const char *text);

/* MSG_TRACE, of a struct news: for lock_trace(). */
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

/* A renewal was not answered, and so much time is left until TERM. */
void news_suspect(struct news *, int64_t left, const char *why);

/* One was. */
void news_trust(struct news *);

#endif
