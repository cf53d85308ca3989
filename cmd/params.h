/*
 * params.h - what the user asked for, after every source has been read.
 *
 * args_read() fills and checks it; then it stays as it is.
 */
#ifndef DLOCK_PARAMS_H
#define DLOCK_PARAMS_H

#include "cmd/supervise/lease.h"
#include "text.h"

#include <limits.h>
#include <signal.h>

/* The subcommands, as bits, since an option has a set of them.  options_cmd() has their names. */
enum {
	CMD_RUN = 1 << 0,
	CMD_HOLD = 1 << 1,
	CMD_STATUS = 1 << 2,
	CMD_LS = 1 << 3,
	CMD_WAIT = 1 << 4,
	CMD_BREAK = 1 << 5,
	CMD_FREEZE = 1 << 6,
	CMD_THAW = 1 << 7,
	CMD_RELEASE = 1 << 8,
	CMD_CONFIG = 1 << 9,
	CMD_VERSION = 1 << 10,
	CMD_DOCTOR = 1 << 11,
	CMD_FORGET = 1 << 12,
	CMD_HELP = 1 << 13,
	/* groups of them */
	CMD_KEEPS = CMD_RUN | CMD_HOLD,
	CMD_STEERS = CMD_BREAK | CMD_FREEZE | CMD_THAW,
	CMD_TAKES_WORD = CMD_LS | CMD_RELEASE, /* one word, which is no key */
	CMD_ASKS = CMD_KEEPS | CMD_STEERS | CMD_FORGET | CMD_STATUS | CMD_LS | CMD_WAIT |
	    CMD_DOCTOR,
};

enum {
	KEYS_MAX = 16,
	SWITCHES_MAX = 4,
	SETTINGS_MAX = 32,
	SETTINGS_BYTES = 8192,
	URL_BYTES = 4096
};

/* Where the locks are kept: the backend, and which server or directory of it. */
struct params_site {
	const struct backend *backend;
	const char *url;  /* NULL: the backend's default */
	bool of_variable; /* the URL comes from the backend's own variable */
	/* the user names no server, so the outer run's counts */
	bool inherits;
	struct setting settings[SETTINGS_MAX];
	size_t nsettings, settings_used;
};

/* Which kind of lock, and for which job. */
struct params_claim {
	enum lock_kind kind;
	int limit; /* with KIND_LIMIT */
	struct job job;
	struct period period; /* of --once-per */
	bool remembers;       /* --remember: whether surely, job.remember says */
	int skipped_status;   /* of a job that has been done already */
};

/* How long to wait for the lock, and the status if it does not come in that time. */
struct params_wait {
	int64_t most; /* 0: do not wait; NEVER: for ever */
	bool persist; /* --wait was given: it also covers a server that does not answer */
	int conflict_status;
};

/* Where a line is written for each event (log.h). */
struct params_log {
	enum { LOG_NOWHERE, LOG_TO_SYSLOG, LOG_TO_FILE, LOG_TO_FD } kind;
	const char *path; /* of a file; absolute once args_read() has returned */
	int fd;
};

/* The conditions for a run to begin, beside the lock: supervise/before.h. */
struct params_before {
	/* --unless-frozen: keys of the same server that must not be frozen */
	const char *switches[SWITCHES_MAX];
	size_t nswitches;
	bool takes_back; /* what weaker origins say of them does not count */
	bool newest;     /* of those that wait, only the run that came last is to run */
};

/* The texts for others who look at this run, and for the user. */
struct params_show {
	const char *who, *why; /* NULL: not said */
	int status_fd;         /* -1: none */
	const char *metrics;   /* the file for Prometheus; NULL: none */
	struct params_log log;
	bool quiet, verbose;
	bool arguments; /* others may see the command's */
};

struct params_command {
	const char *line; /* -c: for sh */
	char *shell[4];   /* sh, with that line */
	char **argv;      /* what to execute, NULL-ended */
	int signal;       /* asks it to stop */
};

/* Which configuration files count. */
struct params_config {
	const char *file;    /* NULL: the usual ones */
	const char *profile; /* NULL: none */
};

/* The question of a look, and the form of its answer. */
struct params_look {
	bool json, bare;     /* bare: no line of headings */
	bool prometheus;     /* in its text format */
	bool jobs;           /* the runs that are remembered, instead of locks */
	const char *columns; /* NULL: the usual ones */
	int64_t again;       /* look again after so long; 0: once */
	int64_t done_within; /* is the last success as young as that?  0: not asked */
	int64_t held_over;   /* only what has been held for longer; 0: all */
};

/* How a lock is taken away, frozen or held by hand. */
struct params_steer {
	int64_t token; /* of the grant that is meant; 0: the one that is shown */
	bool force, yes;
	int64_t length; /* how long; NEVER: without an end */
	int pid;        /* for as long as this process lives; 0: not said */
	bool shell;     /* print assignments for a shell's eval */
};

/* of a key and a subcommand */
#define PARAMS_NO_PATTERNS \
	"key '%s': %s has no patterns: name each key (dlock ls PATTERN lists those in use), or say -k for a key of just that name"

struct params {
	unsigned cmd;               /* CMD_ */
	const char *keys[KEYS_MAX]; /* as named; no two are the same */
	size_t nkeys;
	const char *word; /* CMD_TAKES_WORD: a pattern or a handle; NULL: not said */
	const char *odd;  /* a key that was named by a word like a pattern; NULL: none */
	struct params_claim claim;
	struct params_site site;
	struct params_wait wait;
	struct params_before before;
	struct terms terms;
	bool with_parent; /* end with the process that has started us */
	struct params_show show;
	struct params_command command;
	struct params_config config;
	struct params_look look;
	struct params_steer steer;
	const struct said_list *said; /* where each value comes from: said.h */
	/* last, since a page that a run does not touch costs nothing */
	struct params_texts {
		char url[URL_BYTES];           /* a copy, where argv had a password */
		char settings[SETTINGS_BYTES]; /* what site.settings points into */
		char log[PATH_MAX];            /* what show.log.path points to */
	} texts;
};

/* The state in which the process was started; the command gets it back. */
struct origin {
	sigset_t mask;
	/* SIGCHLD was SIG_IGN, which would hide the command's end from us */
	bool chld_ignored;
	bool has_tty; /* there is a controlling terminal */
};

/* The keys as a sentence shows them: "a", or "a, b and c"; as many as fit. */
struct clean params_keys(const struct params *);

/*
 * A key that a run waits for: the i-th of its own, or of the switches, which come behind
 * KEYS_MAX.
 */
const char *params_awaited(const struct params *, unsigned i);

/* Does what mask_lone_user() does, and finds none where -O password-file= gives the password. */
const char *params_lone_user(const struct params *, const char *url, size_t *n);

/*
 * Checks what the store can do.  RC_CONFIG: it has no locks of this kind, or cannot remember the
 * job.
 */
enum rc params_check_kind(
    const struct params_claim *, const struct store *, struct fault *);

/* RC_CONFIG: the store has no switches, or each of its keys means the same lock. */
enum rc params_check_switches(
    const struct params *, const struct store *, struct fault *);

/* RC_CONFIG: the store cannot tell which run came last. */
enum rc params_check_newest(const struct params *, const struct store *, struct fault *);

#endif
