/*
 * link.h - messages between front and keeper: a pair of sockets, of which each has one end.
 *
 * A message is one datagram and never blocks its sender, which may be talking to a suspended
 * process.  Progress and traces are dropped when the receiver has slept through some dozens;
 * room is left for what must arrive (link_send).  The end of file on the link tells each that
 * the other one is gone, or, where the page says so, that the keeper has had its last word.
 */
#ifndef DLOCK_LINK_H
#define DLOCK_LINK_H

#include "anchors.h"
#include "page.h"
#include "signals.h"

/* The variables that a grant tells (told.h): NAME=VALUE of each, with its NUL. */
struct told {
	char *text;
	size_t n; /* bytes */
};

enum msg_kind {
	/* keeper to front */
	MSG_WAITING,    /* number: position; key, holding */
	MSG_RETRYING,   /* the server does not answer; key, text: how */
	MSG_SKIPPED,    /* the job has been done; number: its status; text: by whom */
	MSG_SUPERSEDED, /* --newest: text: the record of a newer run */
	/*
	 * token, slot; carries the anchors.  Behind them come what shows the outer hold that we have
	 * not stopped yet, if number is not 0, and what shows that to us, with a hold that has anchors.
	 */
	MSG_GRANTED,
	MSG_STARTED,   /* number: pid */
	MSG_SUSPENDED, /* the command was suspended; number: by which signal */
	MSG_RESUMED,   /* it continued */
	MSG_SUSPECT,   /* number: nanoseconds left until TERM, text: why */
	MSG_TRUSTED,   /* the lease was confirmed after all */
	MSG_STOPPING,  /* the command is being stopped: number is an enum ending_kind */
	MSG_TRACE,     /* text: for -v */
	MSG_NOTICE,    /* text: what the user should know of the server */
	MSG_GUARD,     /* carries what continues a suspended front: keeper_job.c */
	/* front to keeper */
	MSG_SIGNAL, /* got */
};

struct msg {
	enum msg_kind kind;
	struct signal_case got; /* MSG_SIGNAL: what the front knows of it */
	unsigned key;           /* which is waited for: params_awaited() */
	int64_t number;
	uint64_t token;
	unsigned slot; /* with --limit */
	union {
		struct holding holding;  /* MSG_WAITING */
		char text[RECORD_BYTES]; /* all others */
	};
};

/* Both ends (close-on-exec), or -1 with errno. */
int link_open(int ends[2]);

/*
 * Sends msg, with copies of the anchors and with what is told, unless these are NULL.  Never
 * blocks.  False, with errno: nothing of it was sent.
 *
 * A receiver that sleeps leaves the link to fill.  Progress, traces and MSG_SUSPECT are sent only
 * while half of it is free, the command's suspensions while a quarter is.  Messages that must not
 * be lost have the rest to themselves, and are sent once: the grant, trust, the stopping.
 */
bool link_send(int end, const struct msg *, const struct anchors *, const struct told *);

/* Has the receiver left something unread? */
bool link_is_unread(int end);

/* Is more than half of it filled by what the receiver has not read yet? */
bool link_is_crowded(int end);

/*
 * Receives one message.  1: *msg is set, and so are the anchors, which are now ours; what was told
 * with it stands in room->text, as far as room->n goes, unless room is NULL.  0: nothing has come.
 * -1: the other one is gone.
 */
int link_receive(int end, struct msg *, struct anchors *, const struct told *room);

/*
 * MSG_GRANTED is sent before the command begins.  For so long after its start a front does not
 * listen: only the keeper's last word wakes it, with which all that was said before is read.
 *
 * Its price is a front that looks at the deadlines of a grant so much later, which SLACK
 * (watch.h) covers.  It saves a short command one wake-up: two switches of context in seven, no
 * time where two processors are idle, and where there is one some 0.2 of 2.5 ms.
 */
#define LISTEN_LATER (20 * NS_PER_MS)

#endif
