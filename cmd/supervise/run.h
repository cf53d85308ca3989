/*
 * run.h - one run of dlock in its processes, and all that passes between them.
 *
 *	cmd/run.c, cmd/hold.c   fill in a struct run; then start.c forks
 *	front.c    the process that the user sees.  It has the pid that the shell knows, the
 *	           terminal, and no library, thread or socket to a server.  It passes
 *	           signals on, speaks, stops when the command stops, and ends as that ended.
 *	           When the keeper is killed, or frozen beyond a deadline, the front kills
 *	           the command's tree itself and reports the lock as lost; it never
 *	           releases, since it cannot know
 *	keeper.c   keeps the lock: it owns the backend, the command and the lease.  It lives
 *	           in a process group of its own, with a terminal in a session of its own,
 *	           and has none of the user's descriptors: what is to be said, it tells
 *	           the front.  When the front dies,
 *	           it stops the command's tree, then releases.  After the front has been told
 *	           the ending it may live on alone, for --min-hold, or to release when the
 *	           server did not answer
 *	child.c    the command, which the kernel kills when the keeper dies
 *
 * Each may be killed or frozen at any line.  After the fork each has its own copy of the
 * struct run, and only this carries anything further:
 *
 *	the page    memory that all see, for what must be known even when another process is
 *	            frozen or dead: the deadlines, the ending
 *	the link    a pair of sockets for messages.  A message is one datagram, never blocks
 *	            its sender (which may be talking to a stopped process).  Progress and
 *	            traces are dropped when the receiver has slept through some dozens; room
 *	            is left for what must arrive (link_send).  The end of file
 *	            on the link is how each learns that the other one is gone, or, where the
 *	            page says so, that the keeper has had its last word
 *	"go"        an instant for the command: it may begin, but not later than that
 */
#ifndef DLOCK_RUN_H
#define DLOCK_RUN_H

#include "keeper_address.h"
#include "step.h"
#include "stub.h"
#include "tree.h"
#include "verdict.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

/* ---- the page ---- */

/* How it ended; written by the keeper. */
struct shared_end {
	_Atomic bool finished; /* nothing that needs the lock is running */
	_Atomic bool
	    told; /* `ending` is final; `why` has the words, and stays as it is */
	_Atomic bool lingers; /* and the keeper stays on */
	/* `dlock hold`: it was given back, or its time is over */
	_Atomic bool returned;
	_Atomic bool loss_told;  /* `dlock hold`: to the script; written by both */
	_Atomic uint64_t ending; /* shared_ending(): all of one, never a half */
	struct fault why;
};

/* What the front does that the keeper has to know; written by the front. */
struct shared_front {
	_Atomic bool on_screen; /* the live line, which goes before the command writes */
	_Atomic bool mirrored;  /* it has stopped because the command did */
};

/*
 * `dlock hold`: does the process know that it has the lock?  It counts as DELIVERED before
 * it is told: at no moment a process has a lock for which nobody would stop it.  A lock
 * that is given back undelivered is WITHDRAWN first: no process gets one that has ended.
 */
enum delivery { UNDELIVERED, DELIVERED, WITHDRAWN };

/* Where nothing else is said, the keeper writes. */
struct shared {
	_Atomic instant term_at, kill_at; /* NEVER until a grant */
	/* when the keeper last woke; it does so every third of the ttl */
	_Atomic instant alive_at;
	_Atomic pid_t command;      /* 0 before it is known, and after it was reaped */
	_Atomic instant granted_at; /* the command may have begun; 0: not yet */
	_Atomic bool stopping;   /* TERM is being sent by the process that has set this */
	_Atomic bool killing;    /* the keeper kills: it stops all first (tree.h) */
	_Atomic int exec;        /* EXEC_*, or an errno; written by the stub */
	_Atomic bool opened;     /* `where` is set */
	char where[WHERE_BYTES]; /* the server, for people */
	struct shared_end end;
	struct shared_front front;
	_Alignas(void *) char told[]; /* variables, and words: child.h */
};

/* A fresh page, with room for what is told, or NULL with errno. */
struct shared *shared_new(size_t told);

void shared_end(struct shared *, size_t told);

/* How it ended, as far as the keeper has decided it: a front may read it at any moment. */
void shared_put_ending(struct shared *, const struct ending *);
struct ending shared_ending(const struct shared *);

/* The server's name, not cleaned; "" while it is not known. */
const char *shared_where(const struct shared *);

/* ---- the link ---- */

enum msg_kind {
	/* keeper to front */
	MSG_WAITING,  /* number: position; key, holding */
	MSG_RETRYING, /* the server does not answer; key, text: how */
	MSG_SKIPPED,  /* the job has been done; text: by whom */
	/* token, slot; carries the anchors; may be left out: link_tells() */
	MSG_GRANTED,
	MSG_STARTED,  /* number: pid */
	MSG_STOPPED,  /* the command stopped; number: by which signal */
	MSG_RESUMED,  /* it continued */
	MSG_SUSPECT,  /* number: nanoseconds left until TERM, text: why */
	MSG_TRUSTED,  /* the lease was confirmed after all */
	MSG_STOPPING, /* the command is being stopped: number is an enum ending_kind */
	MSG_TRACE,    /* text: for -v */
	MSG_NOTICE,   /* text: what the user should know of the server */
	/* front to keeper */
	MSG_SIGNAL, /* number: signal; had, typed, ends */
	MSG_GUARD,  /* carries a descriptor to be kept open: that we live */
};

struct msg {
	enum msg_kind kind;
	bool had;     /* MSG_SIGNAL: the command has got this one already */
	bool typed;   /* MSG_SIGNAL: by a key, so all of our process group have got it */
	bool ends;    /* MSG_SIGNAL: ends the waiting */
	unsigned key; /* which of the plan's keys is waited for */
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

/* Descriptors whose being open keeps the lock: for each key one, or none (grant.anchor). */
struct anchors {
	int fds[KEYS_MAX];
	size_t n;
	bool cut; /* there were more, for which the receiver had no room */
};

/*
 * Sends msg, and copies of the anchors unless that is NULL.  Never blocks.  False, with errno:
 * it was not sent, nor any anchor.
 *
 * A receiver that sleeps leaves the link to fill.  Progress, traces and doubts are sent only
 * while half of it is free, the command's stops while a quarter is.  What must not be lost
 * has the rest to itself, and is sent once: the grant, trust, the stopping.
 */
bool link_send(int end, const struct msg *, const struct anchors *);

/* Is more than half of it filled by what the receiver has not read yet? */
bool link_is_crowded(int end);

/* 1: *msg is set, and the anchors, now ours.  0: nothing now.  -1: the other one is gone. */
int link_receive(int end, struct msg *, struct anchors *);

/*
 * When MSG_GRANTED is sent.  A front that has nothing to do about a grant is
 * left asleep: waking it would cost the command's start more than all else here.
 *
 * TELL_BEFORE the command begins:
 *  - where there is an anchor, for what keeps the lock must be in two hands;
 *  - where the live line is on the screen, for it must go first;
 *  - where the front would look at the deadlines too late (link_looks_in_time).
 * A front that does not listen yet (LISTEN_LATER in front.c) has it in its socket, the anchor
 * with it, and looks at the page when it begins to.
 * TELL_AFTER: it is `awaited`.  TELL_NOT: the front looks at the page anyhow.
 */
enum telling { TELL_BEFORE, TELL_AFTER, TELL_NOT };
enum telling link_tells(
    const struct shared *, const struct grant *, int64_t ttl, instant now, bool awaited);

/*
 * Before the grant the front looks again no later than the first deadline of a
 * lease of the ttl that is asked for at that moment (watch.c).  That is in time
 * unless the lease is shorter, or the front has looked since it was asked for.
 * Then it is late by what the answer took at most, which does not matter up to
 * GRANT_QUICK, since that is less than SLACK (watch.h).
 */
#define GRANT_QUICK (20 * NS_PER_MS)
bool link_looks_in_time(const struct grant *, int64_t ttl, instant now);

/* ---- news: what the keeper tells the front, and nothing twice ---- */

/* The keeper's end of the link.  When the front is gone, nobody is told. */
struct news {
	const struct plan *plan;
	struct host *host;
	int link; /* -1: the front is gone, and its end was seen and closed */
	/* the front has been told: */
	bool waited;     /* that we wait */
	bool suspect;    /* that a renewal was not answered */
	struct msg last; /* what we wait for; at first: for nobody */
};

/* False: the front will not hear of it. */
bool news_message(const struct news *, const struct msg *, const struct anchors *);
bool news_send(struct news *, enum msg_kind, int64_t number, const char *text);

/* MSG_TRACE, of a struct news: as host->tell. */
void news_trace(void *news, const char *line);

/* What the backend wants the user to know, if there is something. */
void news_notice(struct news *);

/*
 * What is waited for; `trouble` is why a silent server does not answer.  False: it is the
 * same as before.
 */
bool news_wait(struct news *, const char *trouble);

/* ---- the run ---- */

struct run;

/*
 * `dlock hold`: the lock is for a process that goes on by itself, or for nobody and a time.
 * A grant is delivered instead of starting a command; from then on that process is stopped
 * on a loss, as a command is.
 */
struct body {
	struct outside outside; /* pid 0: for nobody */
	instant until;          /* --for, from the grant on; NEVER */
	/*
	 * In the front: prints the grant; then leaves the process that has asked, which
	 * ends.  False: nobody has it, and the lock goes back; so it does if a signal that
	 * was to end the asker comes between the two.
	 */
	bool (*print)(const struct run *);
	bool (*leave)(const struct run *);
	pid_t asker;           /* waits for the delivery */
	_Atomic int *delivery; /* an enum delivery; shared by asker, front and keeper */
	/* what stderr was when hold was started: events.h */
	bool has_stderr;
	struct stat errors;
};

struct run {
	const struct plan *plan;
	const struct origin *origin;
	struct shared *shared;
	int ends[2]; /* of the link: [0] the front's, [1] the keeper's */
	const struct nested_site *where; /* the lock is kept */
	const char *site;  /* the same for DLOCK_KEEPER, behind our address */
	const char *path;  /* what to execute; NULL with a body */
	struct body *body; /* NULL: a command of ours is run */
	char owner[OWNER_CHARS + 1];
	char door[DOOR_ID_CHARS + 1]; /* the name of the keeper's socket */
	char record[RECORD_BYTES];
	/* the front has children from before: `daemon & exec dlock run ...` */
	bool has_elders;
	instant began;
};

/* The process that has been given the lock, and is to be stopped; NULL: there is none. */
struct outside *run_guarded(const struct run *);

/* UNDELIVERED where a command is run. */
enum delivery run_delivery(const struct run *);

/* Settles UNDELIVERED as DELIVERED or WITHDRAWN.  False: it was settled before. */
bool run_settle(const struct run *, enum delivery);

/* ---- its processes ---- */

/* Notes for the command what signals do; from here on all are blocked. */
void start_origin(struct origin *);

/* The caller has filled in plan (which is `p`), origin, and path or body. */
struct verdict start_run(struct run *, struct plan *p);

/* Why a command could not be stopped here, so that none is run; NULL: it could. */
const char *start_objection(void);

/*
 * Makes this process the parent of all that loses its own below it: who stops a command's
 * tree finds it so.  NULL, or why that cannot be.
 */
const char *start_adopting(void);

/*
 * As the command did: loops in shells stop on Ctrl-C only when they see the signal.
 * Returns the status to exit with if that does not end this process.
 */
int start_die_of(int sig);

/* Says what there is to say and ends the process. */
_Noreturn void start_end(const struct plan *, const struct verdict *);

/*
 * Runs beside a keeper just forked; returns how it ended, to be said and exited with.  An end
 * by a signal that stops: the waiting was stopped by it, and the lock is to be asked for anew,
 * by another keeper.
 */
struct verdict front_run(const struct run *, pid_t keeper);

/* Does this signal stop? */
bool run_is_stop(int sig);

/* Would this signal have ended a program that does nothing about it? */
bool run_is_end(int sig);

/* Runs in the keeper's process, right after the fork. */
_Noreturn void keeper_run(const struct run *);

#endif
