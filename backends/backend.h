/*
 * backend.h - the contract between the callers (cmd/) and the servers (backends/).
 *
 * A backend opens a store: the locks that one server, ensemble or directory
 * keeps.  Its lock_ops serve one claim on one key of it: ask for it, keep the
 * lease alive, give it back.  Its admin_ops look at the whole store and steer it;
 * they need no owner, no lease and no keeper.
 *
 * Its code is straight-line: send, wait, read, decide.  It waits only through
 * host->wait, and that is the only call that goes upward: while a backend waits
 * there, its caller forwards signals, reaps the command and enforces the
 * deadlines.
 *
 * A backend never prints (what the user should know is a host->notice), exits, forks, installs a
 * signal handler, or measures time by a clock other than instant_now().  It knows nothing of
 * argv, of the command or of exit statuses.  Everything it opens is close-on-exec.  All that a
 * server sends is hostile until it is checked.
 *
 * The sequence for one lock, always in this order and always from one thread:
 *
 *	open      read URL and settings, touch nothing outside
 *	acquire   ask, queue, wait; once
 *	renew     any number of times, only after acquire gave RC_OK
 *	release   after every acquire, won or not; perhaps more than once
 *	close     free everything; at most once, when nothing of the command is left
 *
 * Looking and steering is open, any calls of admin_ops, close; a store that serves a
 * claim is asked nothing else.
 *
 * Several stores may be open at once, and calls on others be made from inside
 * this one's host->wait (multi.h): what a call needs beyond a wait stands in its
 * store, never in a variable that they share.
 *
 * A new backend is one directory here, a row in registry.c and one in the Makefile.  Each call
 * ends with an rc and, if it fails, with a sentence for a person: common/fault.h.
 */
#ifndef DLOCK_BACKEND_H
#define DLOCK_BACKEND_H

#include "common/instant.h"
#include "common/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum {
	KEY_BYTES = 512,     /* longest key, without the NUL */
	RECORD_BYTES = 1024, /* longest holder record, with the NUL */
	OWNER_CHARS = 32,    /* an owner: 128 random bits in hexadecimal */
	ONCE_BYTES = 200,    /* longest ID of a job, without the NUL */
	LIMIT_MAX = 100000,  /* most holders of a limited lock */
	WHERE_BYTES = 384,   /* a server's name for people, with the NUL */
};

/* A lease that the server takes back only when the holder's process ends. */
#define LEASE_FOREVER NEVER

/* ---- where, and what ---- */

/* One `-O name=value`. */
struct setting {
	const char *name, *value;
};

/*
 * Where locks are kept, as the user named it.  Owned by the caller; outlives the store.
 */
struct site {
	const char *url; /* NULL: the backend's own default */
	const struct setting *settings;
	size_t nsettings;
};

/*
 * Every kind excludes every other on one key; KIND_SHARED and KIND_LIMIT, or two
 * limits, do not even queue for a key together: RC_PROTOCOL, naming both.
 */
enum lock_kind {
	KIND_EXCLUSIVE, /* no other holder beside it */
	KIND_WRITER, /* the same, said by -x: a server's other clients are told of readers */
	KIND_SHARED, /* any number of its kind */
	KIND_LIMIT,  /* up to `limit` of its kind */
};

static inline bool
kind_is_exclusive(enum lock_kind kind)
{
	return kind == KIND_EXCLUSIVE || kind == KIND_WRITER;
}

/* An ID that the server's clock makes: 2026-11-26, 2026-11-26T13 or 2026-W48, in UTC. */
enum period_kind { PER_NONE, PER_DAY, PER_HOUR, PER_WEEK };
struct period {
	enum period_kind kind;
	int64_t offset; /* from midnight, the full hour, or Monday's midnight */
	char id[16];    /* "": not known yet */
};

/* Is a run that is no job to be remembered? */
enum remember {
	REMEMBER_NOT,
	REMEMBER_IF_ABLE, /* a server that cannot, or refuses it, keeps no run from its lock */
	REMEMBER_SURELY,
};

/*
 * Work that is to be done once for all hosts.  The backend decides under the lock whether it has
 * been done, by the runs that such releases remember (for at least 400 days).  acquire gives
 * RC_DONE if a run with this ID has ended with status 0, or if the last run that ended with 0,
 * whatever its ID, began less than `cooldown` ago by the server's clock.  It may say so before it
 * queues, since neither becomes untrue while a run waits for the lock.
 *
 * A clock may have been wrong when a run began, or may be wrong now.  So a run that is dated
 * `cooldown` or more ahead of the server's clock does not count for the cooldown: a clock that
 * was wrong once makes no run skip for longer than twice the cooldown.  A server that decides
 * does so by this rule; a backend that decides itself calls job_is_recent().  An ID that was done
 * is done, whatever its date.
 *
 * With `no_retry` an ID is also done if a run of it with `no_retry` has ended otherwise
 * (struct outcome).  The backend keeps such a run where no claim without `no_retry`, and no dlock
 * that does not know it, takes it for one that ended with 0.
 */
struct job {
	/*
	 * The period in which the run asks, for a job of which each period has an ID; NULL: none.
	 * Then `once` points to its `id`.  The backend fills that in (job_name_period()) when the
	 * server has told its clock, before it asks whether that ID was done.
	 */
	struct period *per;
	/* 1 to ONCE_BYTES of UTF-8 without control characters; NULL: has no ID */
	const char *once;
	int64_t cooldown; /* 0: none */
	bool no_retry;    /* of an ID: whatever it ends with */
	/*
	 * Of a run that is no job: it is remembered to be shown (ENTRY_SHOWN), and counts
	 * for nothing else.
	 */
	enum remember remember;
};

/* Is this the claim of a job, whose run the backend remembers, since it may count for the next one? */
static inline bool
job_is_wanted(const struct job *j)
{
	return j->once || j->per || j->cooldown > 0;
}

/* Is its run remembered to be shown only? */
static inline bool
job_is_shown(const struct job *j)
{
	return j->remember && !job_is_wanted(j);
}

/* Nothing was run, so there is no status to remember. */
enum { STATUS_NONE = -1 };

/* The end of a run, for release. */
struct outcome {
	int status; /* 0 to 255, what dlock ends with; or STATUS_NONE */
	/*
	 * The command was executed and has ended, by itself, by a signal or at a time that was
	 * set for it, and the lock was ours all the while: with no_retry that counts.  (The number does not
	 * say it: a command may end with 79 or 127 itself.)
	 */
	bool ended;
};

#define NO_OUTCOME ((struct outcome){.status = STATUS_NONE})

/* The lock that is wanted.  Owned by the caller; outlives the store. */
struct claim {
	const char *key; /* 1 to KEY_BYTES of UTF-8 without control characters */
	enum lock_kind kind;
	unsigned limit; /* with KIND_LIMIT: how many holders fit, 1 to LIMIT_MAX */
	struct job job;
	/* OWNER_CHARS, fresh for this acquisition: proof that a hold is ours */
	const char *owner;
	const char *record; /* who we are, JSON, for others to read; below RECORD_BYTES */
	int64_t ttl;        /* the lease asked for */
	bool persist;       /* `until` is the user's: it holds for a silent server, too */
};

/*
 * A grant, as the server gave it.  acquire fills it; `sent`, `lease`, `pace` and `soon` again by
 * renew.
 */
struct grant {
	/*
	 * The token is greater than in every earlier grant of this key that excludes this one:
	 * where one of the two is a writer's, or both have the same slot.  Grants that hold
	 * together have different tokens, in any order.
	 */
	uint64_t token;
	/* with KIND_LIMIT: 0 to limit - 1, the lowest that no living holder has */
	unsigned slot;
	instant sent;  /* just before the request left that earned this lease */
	int64_t lease; /* what the server really gave; LEASE_FOREVER without expiry */
	int64_t pace;  /* renew so long after `sent`; 0: after a third of the lease */
	int64_t soon;  /* but this once so long after it; 0: no sooner */
	/*
	 * Where the lock lasts for as long as a descriptor is open anywhere, that
	 * descriptor; otherwise -1.  The front gets a copy, so that the lock outlives a
	 * killed keeper until the command's tree is gone too, and so that the front sees
	 * a connection end though the keeper be frozen.
	 */
	int anchor;
};

/* The holders of a lock that we wait for, as far as they are known. */
struct holding {
	enum lock_kind kind; /* of those who hold it now */
	unsigned holders;    /* how many those are; 0: not known */
	unsigned limit;      /* with KIND_LIMIT: how many fit */
	/* nobody may take the key: without holders, `held` and `record` are of the freeze */
	bool frozen;
	/* how long the first holder has had it, ns by the server's clock; < 0: not known */
	int64_t held;
	/* that holder's record as stored by it: hostile; "" if none */
	char record[RECORD_BYTES];
};

/* ---- the caller, as a backend sees it ---- */

enum woke {
	WOKE_READY,   /* the descriptor is readable, writable or broken: try it */
	WOKE_TIMEOUT, /* `until` has come */
	WOKE_STOP,    /* give up at once what you are doing: return RC_STOP */
};

/* The caller: a backend may ask this of it, and tells it here what it sees. */
struct host {
	/*
	 * Sleeps until `fd` (-1: none) has one of `events` (poll(2)'s), or `until`.
	 * Errors and hang-ups of fd count as ready: the next read says what happened.
	 * To watch several sockets, hand in an epoll descriptor.
	 */
	enum woke (*wait)(struct host *, int fd, short events, instant until);

	/*
	 * The queue, as acquire last saw it.  The backend writes it before it waits (and
	 * before it says RC_BUSY); the caller reads it inside wait.
	 */
	struct {
		/* the server does not answer; the fault given to acquire says how */
		bool silent;
		unsigned position; /* 1: next in line; 0: not known */
		const char *key;   /* which of several keys; NULL: the only one */
		struct holding holding;
		/* with RC_DONE: what the run ended with because of which it is said */
		int done_status;
	} seen;

	/*
	 * A descriptor of the backend's that becomes readable (or breaks) when
	 * something has happened to the lock between two calls: the session has
	 * expired, the connection ended, somebody wrote to our record.  The
	 * keeper then renews at once (if many come in a row, a little later: alert.h),
	 * and that call finds out what it was and clears the descriptor.  -1: there is
	 * none.
	 */
	int alert;

	/*
	 * The record of the one who has asked for the lock back, or taken it by force, as
	 * stored (hostile); "": not known.  The backend writes it before renew or release
	 * says RC_REVOKED or RC_LOST.
	 */
	char breaker[RECORD_BYTES];

	/*
	 * The password by which the store logs in; NULL, "": none.  The backend writes it when it
	 * knows it, and keeps the memory.  Texts of others (entries, `seen`, `breaker`, the words
	 * of RC_DONE) may repeat it, and a backend hands them on as they stand: the caller blots
	 * it out there.  Other faults never have it.
	 */
	const char *secret;

	/*
	 * A notice to the user although the call succeeds; "": none.  The backend
	 * writes it with fault_set(&host->notice, RC_OK, ...), in open or in any
	 * call, and says each thing once; the keeper takes it when the call waits or
	 * returns (a second one before that replaces the first).
	 */
	struct fault notice;

	/* The user wants to know more (-v), so a notice may cost a question of its own. */
	bool verbose;

	/* For trace_call(); NULL: nobody wants to know. */
	void (*tell)(void *ctx, const char *line);
	void *tell_ctx;
};

/* ---- a backend ---- */

struct backend;
struct identity;

/* The first member of every backend's own store. */
struct store {
	const struct backend *backend;
	struct host *host;
	/* the server for people, e.g. "redis 10.0.0.5:6379"; owned by the store */
	const char *where;
	unsigned caps; /* CAP_ bits, as URL and settings have them */
};

/* Checks a store before a downcast: a store of another backend is a mistake of ours, so abort. */
static inline struct store *
store_of(struct store *s, const struct backend *b)
{
	if (s->backend != b)
		abort();
	return s;
}

/* The abilities of a store; the caller looks at them before it asks a server. */
enum {
	CAP_FAIR = 1 << 0,    /* serves waiters first come, first served */
	CAP_DURABLE = 1 << 1, /* the lease outlives the connection */
	CAP_SHARED = 1 << 2,  /* KIND_SHARED */
	CAP_LIMIT = 1 << 3,   /* KIND_LIMIT */
	CAP_JOB = 1 << 4,     /* struct job: it remembers runs */
	/* a setting names the only lock of the store, and every key means that one */
	ONE_LOCK = 1 << 5,
	CAP_REVOKE = 1 << 6, /* admin_ops.revoke without force */
	CAP_FORCE = 1 << 7,  /* the same with force */
	CAP_FREEZE = 1 << 8, /* admin_ops.freeze and thaw */
};

/* One claim on one key of one store. */
struct lock_ops {
	/*
	 * Takes the lock, waiting for it inside host->wait until `until`; 0
	 * means: do not queue, answer now.  A server that does not answer is
	 * asked again as retry.h says, also one that refuses to connect.
	 *
	 * Idempotent for one owner: where an answer got lost and the server
	 * already counts us as waiter or holder, we go on as that.  A grant
	 * that was not the answer to a request just sent (a wake-up) is
	 * confirmed by one before RC_OK: grant->sent has no other source.
	 * *grant is set with RC_OK only.  The claim is kept: renew and release
	 * speak of it.  With RC_DONE nothing is held, and nobody waits for us.
	 */
	enum rc (*acquire)(struct store *, const struct claim *, instant until,
	    struct grant *, struct fault *);

	/*
	 * Extends the lease by a write on the authoritative server that
	 * succeeds only while this owner holds it; never creates, never takes
	 * back what was lost.  Gives up at `until`; an answer that comes after
	 * that is never read (its connection is closed).  RC_OK and RC_REVOKED
	 * set sent and lease in *grant; RC_LOST only on the server's word;
	 * everything else is RC_AGAIN or RC_STOP and leaves *grant alone.
	 */
	enum rc (*renew)(struct store *, instant until, struct grant *, struct fault *);

	/*
	 * Gives back what this owner holds and leaves the queue, whichever it
	 * is, at most until `until`.  Harmless when there is nothing, and
	 * twice.  RC_OK: we were the owner until now (or never asked).
	 * RC_LOST: the server says we were not.  RC_AGAIN: not known; may be
	 * asked again; what is left ends with the lease.
	 *
	 * For a job the outcome is remembered in the same atomic operation,
	 * with ID, begin (the grant), end, token and record, and only while
	 * this owner still holds the lock; so it is where a run is remembered to be shown.
	 */
	enum rc (*release)(struct store *, struct outcome, instant until, struct fault *);
};

/* ---- looking and steering ---- */

/* The subject of one entry of a look. */
enum entry_kind {
	ENTRY_HOLDER,
	ENTRY_WAITER,
	ENTRY_WAITING, /* in a brief look, instead of waiters: how many there are */
	ENTRY_FREEZE,
	ENTRY_LAST, /* the last run that is remembered of a job */
	ENTRY_GOOD, /* the last one that ended with 0, where that is another */
	/* in a look at jobs: the run of one ID that ended with 0, or (no_retry) ended */
	ENTRY_DONE,
	ENTRY_SHOWN, /* the last run that is no job's, and is remembered to be shown */
	ENTRY_UNKNOWN, /* something that is no lock, or is damaged, uses the key: see `what` */
};

/* A time by the server's clock that is not known, or that there is not. */
enum { EPOCH_NONE = -1 };

/*
 * Another program that has or wants a lock, as far as the server tells.  A member that is
 * not known is NULL, or 0.  All of it is hostile.
 */
struct foreign {
	const char *what; /* "a lock of Curator, session 0x10..."; never NULL */
	const char *who;  /* a user, an application's name */
	const char *host; /* or its address */
	int64_t pid;
};

/*
 * One fact about one key, valid during the call that hands it out.  Texts are as they
 * are stored: hostile, any bytes, any length.  Times are microseconds since the epoch
 * by the server's clock, EPOCH_NONE if not known.
 */
struct entry {
	enum entry_kind kind;
	const char *key;
	/* holder, waiter: which kind of lock it has or asks for, and its limit */
	enum lock_kind lock;
	unsigned limit;
	uint64_t token;     /* holder, run; 0: not known */
	const char *owner;  /* holder, waiter: as revoke wants it; NULL: not known */
	int slot;           /* holder of a limited lock; -1: none */
	unsigned position;  /* waiter: 1 is next */
	uint64_t count;     /* waiting */
	const char *record; /* of dlocks: JSON as stored; NULL: none */
	const struct foreign *foreign; /* NULL: it is a dlock's */
	/* holder: the grant; waiter: joined the queue; freeze: made; run: began */
	int64_t since;
	/* holder: end of its lease; freeze: its end; run: it ended */
	int64_t until;
	bool revoked;      /* holder: it has been asked to give the lock up, */
	const char *asker; /* by the one whose record this is; NULL: not known */
	const char *once;  /* run: its ID; NULL: it had none, or it is not known */
	int status;        /* run: what it ended with */
	const char *what;  /* unknown: one clause for a person, such as "a list" */
};

/* A look: the locks that are meant, and who is told of them. */
struct look {
	const char *key; /* NULL: all that are held, waited for or frozen */
	bool brief;      /* count the waiters, do not list them */
	/*
	 * With CAP_JOB, and no key: instead, the runs that are remembered.  The last two of
	 * a key (ENTRY_LAST, ENTRY_GOOD) come together; ENTRY_SHOWN and those of its IDs may
	 * come elsewhere.
	 */
	bool jobs;
	/* With a key: its last success is asked for, and not to see it is a failure. */
	bool success;
	instant until; /* give up then */
	/* how long one request may take, with all its retries: see look_answer_by() */
	int64_t patience;
	/*
	 * Gets each entry, all of one key in a row: holders first, in the order of
	 * their grants, then waiters in the order of the queue.  `now` is the
	 * server's clock at that moment.  False ends the look.
	 */
	bool (*see)(void *ctx, const struct entry *, int64_t now);
	void *ctx;
};

/*
 * Until when to wait for the answer to a request (of one page) that is made now.  A look may take
 * long, but a server that keeps saying that it cannot answer now is given up.
 */
static inline instant
look_answer_by(const struct look *l)
{
	return instant_first(l->until, instant_after(instant_now(), l->patience));
}

/* The grant that is meant, as a look has shown it. */
struct target {
	const char *key;
	uint64_t token;    /* 0: it has none */
	const char *owner; /* NULL: the token says it */
};

/* How fit the server is, as far as one fact goes. */
enum fitness {
	FIT,
	DOUBTFUL, /* it works, but something can go wrong */
	UNFIT,    /* a lock may be lost, or cannot be had */
};

/* One fact about a server, valid during the call that hands it out. */
struct finding {
	enum fitness fitness;
	const char *name;   /* a word for scripts, such as "eviction" */
	const char *fact;   /* a clause for a person; hostile */
	const char *advice; /* what to do about it, one line; NULL: nothing */
};

/* The questions of doctor to a server, see admin_ops.check. */
struct checkup {
	int64_t ttl;       /* the lease that runs will ask for */
	const char *probe; /* a key that nobody else uses */
	bool sweep;        /* remove what is left of it; tell nothing */
	instant until;
	/*
	 * The backend writes why the probe must not be locked: that would leave something behind.
	 * "": it may be locked.
	 */
	struct fault hands_off;
	/* and the rc that acquire would give there, as far as that is known; RC_OK */
	enum rc refusal;
	void (*tell)(struct checkup *, const struct finding *);
};

/*
 * Looking and steering: not one claim, but all locks of a store.  A store that lacks a capability
 * is never asked for it.
 */
struct admin_ops {
	/*
	 * Tells all there is to `see`, page by page: no operation that others on the
	 * server would wait for, memory that does not grow with the number of keys or
	 * waiters.  Changes nothing, not even what has run out, and makes nothing (no
	 * directory, schema or node): where there is nothing yet, nothing is held.
	 * A change meanwhile may be missed, or (between pages) be told twice; one
	 * holder or waiter is told as it was at one moment.  With a key the last runs of
	 * its jobs are told too.
	 * RC_OK: the end was reached, or `see` wanted no more.  RC_DENIED: all was
	 * told that may be read (there may be more), which may be nothing.  RC_AGAIN,
	 * RC_CONFIG, RC_SYSTEM as for acquire.
	 */
	enum rc (*each)(struct store *, const struct look *, struct fault *);

	/*
	 * Asks the holder of exactly this grant to give the lock up: it is marked,
	 * its next renewal says RC_REVOKED with `record` (who asks, and why; JSON
	 * below RECORD_BYTES) as host->breaker, and nothing else changes.  With `force`
	 * the grant is taken away at once, as if its lease had ended, and whoever is
	 * next is told; its next renewal says RC_LOST, again with that record where
	 * the server can still say it.  RC_OK: done, or it had been done.  RC_LOST:
	 * there is no such grant (any more).  RC_AGAIN: not known; may be repeated.
	 * RC_DENIED, RC_CONFIG: a person's advice is in the fault.
	 */
	enum rc (*revoke)(struct store *, const struct target *, const char *record,
	    bool force, instant until, struct fault *);

	/*
	 * Lets nobody take the key any more, also not those who wait already, until
	 * thaw, or for `length` from now (NEVER: without an end); who holds it goes
	 * on.  It needs no process, and survives what a hold survives.  A second one
	 * replaces the first, record and end.
	 */
	enum rc (*freeze)(struct store *, const char *key, const char *record,
	    int64_t length, instant until, struct fault *);

	/* Ends that; whoever is next is told.  RC_LOST: it was not frozen. */
	enum rc (*thaw)(struct store *, const char *key, instant until, struct fault *);

	/*
	 * With CAP_JOB: forgets the runs of that key and ID (NULL: of any ID, and of none), so
	 * that none of them has done a job, or begun a cooldown, or is shown.  A run that goes on is
	 * remembered when it ends.  With NULL it may take longer than `until` where it has to
	 * look through others' keys, but no answer does.  RC_LOST: none was remembered.
	 */
	enum rc (*forget)(struct store *, const char *key, const char *once,
	    instant until, struct fault *);

	/*
	 * For dlock doctor: tells what is so of the server that a user of its locks should know,
	 * and changes nothing.  Where acquire warns of something, the same function finds it.
	 * With checkup->sweep instead: removes what acquire, freeze and the like have left of the
	 * probe, which is locked by nobody, and that alone.  RC_OK: all has been told, however
	 * bad it is; else as each().  NULL: there is nothing to tell, and nothing is left.
	 */
	enum rc (*check)(struct store *, struct checkup *, struct fault *);

	/*
	 * Does something stand under this very name, or beside it, that may be the lock of another
	 * program, which a lock of dlock's with this key does not exclude?  RC_OK: `advice` says
	 * what it is, and which settings join it.  RC_LOST: nothing is known of such a thing.  Else
	 * as each().  With `until` 0 nobody is asked: it goes by the name alone.  NULL: never.
	 */
	enum rc (*beside)(
	    struct store *, const char *key, instant until, struct fault *advice);
};

/*
 * One `-O name=value` that a backend knows: read by parser, help, completions and
 * errors.
 */
struct setting_row {
	const char *name;
	const char *arg;  /* what to call the value */
	const char *help; /* one line; NULL: named nowhere, since it is always refused */
	/* RC_OK, or RC_USAGE or RC_CONFIG and what would be right. */
	enum rc (*set)(struct store *, const char *value, struct fault *);
};

struct backend {
	const char *name;
	/* of its URLs, the usual one first; NULL-ended */
	const char *const *schemes;
	bool pairs; /* a URL may also be written name=value name=value */
	/*
	 * A user of a URL logs in with a password only: one without may be a password by mistake.
	 */
	bool user_needs_password;
	/* ended by a row without a name; NULL: none */
	const struct setting_row *settings;
	/* URL forms and the default; lines of up to 67 characters */
	const char *url_help;
	/* a script for what an administrator may have to set up on a server; or NULL */
	const char *schema;
	/* why nobody should rely on its locks alone, shown with each lock; or NULL */
	const char *caveat;

	/*
	 * Makes a store from what the user named; checks URL and settings,
	 * touches neither network nor servers.  RC_OK: *ret is the caller's until
	 * close.  Otherwise (RC_USAGE, RC_CONFIG, RC_SYSTEM) *ret is untouched
	 * and nothing needs closing.  A NULL member means: not compiled in.
	 * Relative names of files are of the directory in which it is called; the process may
	 * leave that later.
	 */
	enum rc (*open)(
	    struct store **ret, struct host *, const struct site *, struct fault *);

	/*
	 * Frees all, and takes leave of the server where that is the custom.  The keeper
	 * ends the process when it has not returned after two seconds.  Accepts NULL.
	 */
	void (*close)(struct store *);

	/*
	 * Writes which locks the store's are (identity.h): all that open has made of URL,
	 * settings, and whatever its client library reads by itself (variables,
	 * service and option files, the home directory), so that two stores whose
	 * texts are equal have the same lock under the same key.  Called right after open,
	 * on a store that is asked nothing else; or right after a grant: then it is of what
	 * was reached, for a file or a link may lead elsewhere by now.  Connects to nobody;
	 * writes no secret.  The caller has begun the text with the backend's name, and sees
	 * to ONE_LOCK.  Not RC_OK, or a NULL member: not known, and equal to nothing.
	 */
	enum rc (*identify)(struct store *, struct identity *, struct fault *);

	/*
	 * RC_OK: these two keys can be held together; else RC_CONFIG, and what to do.
	 * NULL: any two can.
	 */
	enum rc (*together)(
	    struct store *, const char *key, const char *other, struct fault *);

	/*
	 * Does this program take by itself the lock that the settings name, so that it would wait
	 * for the run that holds it?  Then its name; NULL, also as the member: not known.
	 */
	const char *(*runs_own)(const struct site *, char *const *argv);

	const struct lock_ops *lock;
	const struct admin_ops *admin; /* NULL: it can only lock */
};

#endif
