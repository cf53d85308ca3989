/*
 * sources.h - where the values of options come from, files among them, and which counts.
 *
 * An ordered list, the strongest first: see enum source_kind.  The first source that has
 * an option gives its value; the first one that has a member of a group (which server,
 * how long to wait) owns that group, and what weaker ones say of its other members does
 * not count.  A backend's settings (-O) count one by one, by name; what files say of them
 * belongs to the server, so it does not count where a stronger source names one.
 *
 * An empty variable is as good as none, so that `DLOCK_WAIT= dlock run` resets it.
 */
#ifndef DLOCK_SOURCES_H
#define DLOCK_SOURCES_H

#include "options.h"
#include "text.h"

/*
 * In the order of their strength.  A profile, in whichever file, counts more than what
 * files say of every run; the user's file as a whole more than the system's; in one file
 * a section for the key more than what stands before all sections.
 */
enum source_kind {
	SOURCE_WORDS,
	SOURCE_ENVIRONMENT,
	SOURCE_USER_PROFILE,
	SOURCE_SYSTEM_PROFILE,
	SOURCE_USER_KEY,
	SOURCE_USER,
	SOURCE_SYSTEM_KEY,
	SOURCE_SYSTEM,
	SOURCE_ENCLOSING, /* the server of a dlock around this one */
};

enum { SOURCES_MAX = 32, FILES_MAX = 2, FILE_SHOWN_BYTES = 200 };

/* One NAME=VALUE of -O. */
struct source_setting {
	const char *text;
	int line; /* of a file; 0 */
};

struct source {
	enum source_kind kind;
	const char *value[OPTIONS]; /* "1" for a flag; NULL: not said */
	/* of -O, of which value[] is not NULL then; one too many is enough to be refused */
	struct source_setting settings[SETTINGS_MAX + 1];
	size_t nsettings;

	/* all below: of a section of a file only */
	const char *file;    /* fit to be shown */
	const char *section; /* as between its brackets; "": before all sections */
	int line[OPTIONS];   /* 0: it does not stand in this section */
	/* a key of this run that the section is not for, while it is for another one */
	const char *outside;
};

/* A file that was looked for. */
struct source_file {
	char shown[FILE_SHOWN_BYTES];
	bool there;
	bool is_secret; /* nobody else can read it, see trusted_check() */
};

struct sources {
	unsigned cmd; /* CMD_: only options that it knows have values */
	/*
	 * The backend of the dlock around this one, as its variables tell; NULL: there is none
	 * that has not ended.
	 * Its keeper tells where its locks are when it is asked (supervise/keeper_address.h), and
	 * that counts for its own backend alone.
	 */
	const char *outer;
	size_t n;
	struct source_file files[FILES_MAX];
	size_t nfiles;
	/* the sources of the plan's settings, in their order, once applied */
	struct setter {
		const struct source *by;
		int line;
	} setters[SETTINGS_MAX];
	struct source list[SOURCES_MAX]; /* the last: only pages that are used cost */
};

/* All that needs no reading; args.c notes the words. */
void sources_init(struct sources *, unsigned cmd);

/*
 * A new one, empty, in its place: before those of its kind, since what stands later in a
 * file is stronger.  Moves the weaker ones.  NULL: there are too many.
 */
struct source *sources_add(struct sources *, enum source_kind);

/* Is it a section of a file? */
bool sources_filed(const struct source *);

/* Notes one NAME=VALUE of -O. */
void sources_note_setting(struct source *, const char *text, int line);

/* The source whose value of option i counts, or NULL. */
const struct source *sources_of(const struct sources *, int i);

/*
 * The option as its source (NULL: none has it) calls it, for errors: "--ttl",
 * "DLOCK_TTL", "/etc/dlock.conf:3: ttl".
 */
struct clean sources_call(const struct source *, int i);

/* The same of one of the plan's settings. */
struct clean sources_call_setting(const struct setter *);

/* What a wrong value of it is: RC_USAGE, of a file RC_CONFIG. */
enum rc sources_wrong(const struct source *);

/*
 * Takes the values that count of the options from `first` on, before `end`, into the plan, but
 * keys among the words, which took effect as they were read.  RC_USAGE, RC_CONFIG: the fault
 * names source, option and value.
 */
enum rc sources_apply(
    struct sources *, int first, int end, struct plan *, struct fault *);

/*
 * A site that its backend does not open (RC_USAGE): where the URL or the setting that it objects
 * to is said by a file, this is RC_CONFIG, and the fault names the line.  Opens it again, with
 * fewer settings: what makes no sense only beside another one is the later one's fault.
 */
enum rc sources_blame(
    const struct plan *, const struct site *, struct host *, enum rc, struct fault *);

/* "DLOCK_REDIS_URL" */
struct brief sources_url_variable(const struct backend *);

/*
 * Variables that look like dlock's but mean nothing to it, most likely for a typing error:
 * their names and what was meant, fit to be shown, as far as there is room.  False: there
 * are none.
 */
bool sources_strays(char *out, size_t size);

/*
 * ---- the configuration files: which are read, whether they can be trusted, what their
 * lines say, and which of their sections count.  dlock.conf(5) tells users. ----
 */

enum { CONF_BYTES = 65536 };

/*
 * Adds what files say to the sources, for a run of the plan's keys (none: no [key] section
 * counts); the plan says already which files and which profile.  Once in the life of a
 * process: values point into memory of this module.  RC_CONFIG: a file cannot be read,
 * trusted or understood; RC_USAGE: there is no such profile.
 */
enum rc conf_read(struct sources *, const struct plan *, struct fault *);

/* What one text says, for conf_read() and for tests. */
struct conf_text {
	char *text; /* n bytes, and room for one more; written over */
	size_t n;
	const char *shown;   /* the file's name */
	bool user;           /* it counts as the user's */
	const char *profile; /* that is wanted; NULL: none */
	const char *const *keys;
	size_t nkeys;
	/* results */
	bool found;     /* it has that profile */
	char meant[40]; /* or one that may be meant; "": no guess */
	int secret;     /* the line of a password; 0: there is none */
	/* while it is taken */
	struct sources *all;
	struct source *into; /* the section's; not of `all`: it does not count */
	struct source_setting settings[SETTINGS_MAX]; /* of that section */
	size_t nsettings;
};

/* RC_CONFIG: it cannot be understood. */
enum rc conf_take(struct sources *, struct conf_text *, struct fault *);

/* May an option stand in a file? */
bool conf_allows(int option);

/* One line that says something. */
struct conf_line {
	int number;          /* from 1 on */
	const char *section; /* what stands between the brackets; "": none so far */
	const char *name;    /* NULL: the section begins here */
	const char *value;
};

/*
 * Hands each of these lines to `take`, until one gives another rc than RC_OK.  The text, n
 * bytes and room for one more, is written over: the line's texts are pieces of it.  Returns
 * that rc, or RC_CONFIG for what cannot be read; then *number is the line's, and the fault
 * says what is wrong with it.
 */
enum rc conf_cut(char *text, size_t n,
    enum rc (*take)(void *ctx, const struct conf_line *, struct fault *), void *ctx,
    int *number, struct fault *);

#endif
