/*
 * link.h - what passes between the front and the keeper.
 *
 * A page of memory that both see, for what must be known even when the other
 * one is frozen or dead: the deadlines.  And a pair of sockets for messages;
 * a message is one datagram, whole or not at all, never blocks its sender
 * (who may be talking to a stopped process), and may be dropped when the
 * receiver has slept through some dozens.  Only the ending must arrive: it
 * stands in the page too.
 *
 * The end of file on the link is how each learns that the other one is gone.
 */
#ifndef DLOCK_LINK_H
#define DLOCK_LINK_H

#include "cmd/plan.h"
#include "step.h"

#include <stdatomic.h>
#include <sys/types.h>

/* How far the stub has come. */
enum { EXEC_NOT_CALLED, EXEC_CALLED = -1 };

struct shared {
	_Atomic instant term_at, kill_at; /* NEVER until a grant */
	_Atomic instant alive_at;	  /* when the keeper last woke; it does so every third of the ttl */
	_Atomic pid_t command;		  /* its pid, 0 before it is known and after it was reaped */
	_Atomic bool granted;		  /* the command may have begun */
	_Atomic bool stopping;		  /* TERM is being sent, by the one who has set this */
	_Atomic int exec;		  /* EXEC_*, or the errno with which it failed */
	_Atomic bool settled;		  /* nothing that needs the lock is running: no deadline counts */
	_Atomic bool told;		  /* `ending` is final */
	_Atomic bool lingers;		  /* and the keeper stays on: for --min-hold, or to release */
	_Atomic bool on_screen;		  /* the live line is, and must go before the command writes */
	_Atomic bool mirrored;		  /* the front has stopped because the command did */
	_Atomic bool opened;		  /* `where` is set */
	char where[WHERE_BYTES];	  /* the server, for people */
	struct ending ending;
};

enum msg_kind {
	/* keeper to front */
	MSG_WAITING,  /* number: position, held, key, text: a holder's record */
	MSG_RETRYING, /* the server does not answer; key, text: how */
	MSG_GRANTED,  /* number: token; carries the anchors */
	MSG_STARTED,  /* number: pid */
	MSG_STOPPED,  /* the command stopped; number: by which signal */
	MSG_RESUMED,  /* it continued */
	MSG_SUSPECT,  /* number: nanoseconds left until TERM, text: why */
	MSG_TRUSTED,  /* the lease was confirmed after all */
	MSG_STOPPING, /* the command is being stopped: number is an enum ending_kind */
	MSG_TRACE,    /* text: for -v */
	MSG_NOTICE,   /* text: what the user should know of the server */
	MSG_ENDED,    /* shared->ending is set, text: the backend's words */
	/* front to keeper */
	MSG_SIGNAL, /* number: signal; had, ends */
};

struct msg {
	enum msg_kind kind;
	bool had;  /* MSG_SIGNAL: the command, if it runs, has got this one already */
	bool ends; /* MSG_SIGNAL: ends the waiting, if we still wait */
	unsigned key; /* which of the plan's keys is waited for */
	int64_t number;
	uint64_t token;
	int64_t held;
	char text[RECORD_BYTES];
};

/* Both ends (close-on-exec), or -1 with errno. */
int link_open(int ends[2]);

/* Descriptors whose being open keeps the lock: one for each key, or none (grant.anchor). */
struct anchors {
	int fds[KEYS_MAX];
	size_t n;
};

/* Sends msg, and copies of the anchors unless that is NULL.  Never blocks. */
void link_send(int end, const struct msg *, const struct anchors *);

/* 1: *msg is set, and the anchors, which are ours to close.  0: nothing now.  -1: the other one is gone. */
int link_receive(int end, struct msg *, struct anchors *);

/* The server's name, not cleaned; "" while it is not known. */
const char *shared_where(const struct shared *);

/* A fresh shared page, or NULL with errno. */
struct shared *shared_new(void);

#endif
