/*
 * page.h - memory that front, keeper and stub share: what must be known even when another of
 * them is frozen or dead.
 *
 * The front maps it before it forks; it ends with the last of them.  Each member has one
 * writer, unless it says otherwise.  A member that is read while it may be written is atomic; a
 * text is written once, before the atomic member that says so.
 */
#ifndef DLOCK_PAGE_H
#define DLOCK_PAGE_H

#include "verdict.h"
#include "watch.h"

#include <stdatomic.h>
#include <sys/types.h>

/* How it ended; written by the keeper. */
struct page_end {
	_Atomic bool finished; /* nothing that needs the lock is running */
	_Atomic bool final;    /* `ending` stays as it is, and so does `why`: its words */
	_Atomic bool lingers;  /* and the keeper stays on */
	/* before the tree is killed: the lock is lost, `ending` says how, and `loss` why */
	_Atomic bool lost;
	struct fault loss;
	/* a newer run with --newest has come, and `newer` says whose */
	_Atomic bool superseded;
	struct fault newer;
	/* `dlock hold`: it was given back, or its time is over */
	_Atomic bool returned;
	/* a run that is skipped: what the run ended with because of which it is */
	_Atomic int done_status;
	_Atomic bool loss_told;  /* `dlock hold`: to the script; written by both */
	_Atomic uint64_t ending; /* page_ending(): all of one, never a half */
	struct fault why;
};

/* The lines of --log: whichever of front and keeper sets a flag writes that line. */
struct page_log {
	_Atomic uint64_t token; /* of the grant; written by the keeper */
	_Atomic bool granted, ended;
};

/* The front's doings that the keeper has to know; written by the front. */
struct page_front {
	/*
	 * The live line, which goes before the command writes.  It spares each grant an
	 * answer of the front, which would be two wake-ups.
	 */
	_Atomic bool on_screen;
	_Atomic bool mirrored; /* it is suspended because the command was */
	_Atomic bool guarded;  /* so it has, and guard.h watches in its place */
};

/* Where nothing else is said, the keeper writes. */
struct page {
	_Atomic instant term_at, kill_at; /* NEVER until a grant */
	/* when the keeper last woke, or went to sleep; it wakes every third of the ttl */
	_Atomic instant alive_at;
	_Atomic pid_t command;   /* 0 before it is known, and after it was reaped */
	_Atomic instant died_at; /* set before `died_of` */
	_Atomic int died_of; /* the signal that has killed it, once it was reaped; or 0 */
	_Atomic instant granted_at; /* the command may have begun; 0: not yet */
	/* --newest: when the run came, as its record has it; for the next keeper */
	_Atomic int64_t newest;
	_Atomic instant begin_by; /* but not later than that: before.h; NEVER: no bound */
	_Atomic bool stopping;   /* TERM is being sent by the process that has set this */
	_Atomic bool killing;    /* the keeper kills: it halts all first (tree.h) */
	_Atomic int exec;        /* EXEC_*, or an errno; written by the stub */
	_Atomic bool opened;     /* `where` is set */
	char where[WHERE_BYTES]; /* the server, for people */
	struct page_end end;
	struct page_front front;
	struct page_log log;
};

/* A fresh page, or NULL with errno. */
struct page *page_new(void);

void page_free(struct page *);

/* How it ended, as far as the keeper has decided it: a front may read it at any moment. */
void page_put_ending(struct page *, const struct ending *);
struct ending page_ending(const struct page *);

/*
 * Asks watch() what is due by now, by what stands in the page.  Before a keeper is given up, /proc
 * is asked whether it only wants a processor: then it is borne (watch_bear()).
 */
struct watch_due page_watch(
    const struct page *, struct watch *, bool granted, pid_t keeper);

/* The server's name, not cleaned; "" while it is not known. */
const char *page_where(const struct page *);

#endif
