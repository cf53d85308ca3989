/*
 * said.h - what was said of options, wherever it was said, in one list.
 *
 * The words of the command line (args.c), variables (variables.c) and files (conf.c) put each
 * value into the list, with its origin.  The list is in order of strength, the strongest first:
 *
 *	the words
 *	variables
 *	[profile] of the user's file, then of the system's file
 *	[key] of the user's file, then what stands there before all sections
 *	the same two of the system's file
 *	the server of the outer run
 *
 * So a profile, in whichever file, counts more than what files say of every run, and the user's
 * file counts more than the system's.  Of two sections of one kind the later one is stronger.
 *
 * The first value of an option in the list counts.  Options of one group (which server, how long
 * to wait) go together: the strongest origin that says one of them owns the group, and the others
 * count only from there.  Settings of the backend (-O) count one by one, by name.  Settings in
 * files belong to the server of that file, so they do not count where a stronger origin names a
 * server.
 *
 * The list owns its entries and origins.  Texts are not copied: they must outlive it.
 */
#ifndef DLOCK_SAID_H
#define DLOCK_SAID_H

#include "options.h"
#include "text.h"

/* Where something was said, in the order of strength. */
enum said_by {
	BY_WORDS,
	BY_VARIABLE,
	BY_USER_PROFILE,
	BY_SYSTEM_PROFILE,
	BY_USER_KEY,
	BY_USER,
	BY_SYSTEM_KEY,
	BY_SYSTEM,
	BY_OUTER, /* the outer run names its server */
};

struct said_origin {
	enum said_by by;
	size_t nsettings; /* how many -O it has said */
	size_t nswitches; /* how many --unless-frozen */
	/* of a section of a file only */
	const char *file;    /* fit to be shown */
	const char *section; /* as between its brackets; "": before all sections */
	/* a key of this run that the section is not for, though it is for another one; or NULL */
	const char *outside;
};

struct said {
	struct said *next; /* as strong, or weaker */
	const struct said_origin *origin;
	const char *value; /* "1" for a flag among the words */
	int option;        /* OPT_ */
	int line;          /* of the file; 0 elsewhere */
};

enum {
	SAID_SECTIONS = 29, /* sections of files that count for one run */
	/*
	 * An origin says each option once, except for keys among the words, for -O and for
	 * --unless-frozen.  For those there is room for one more than is allowed, so that the one
	 * too many can be refused.
	 */
	SAID_SWITCHES = SWITCHES_MAX + 2, /* one is empty */
	SAID_MOST = (3 + SAID_SECTIONS) * (OPTIONS + SETTINGS_MAX + 1 + SAID_SWITCHES) +
	    KEYS_MAX,
};

struct said_list {
	unsigned cmd; /* CMD_: it has only options that this subcommand knows */
	/*
	 * The backend of the outer run, from its variables; NULL: no outer run lives.  Where that
	 * run keeps its locks, its keeper tells later (supervise/join_address.h); that counts
	 * only if this run uses the same backend.
	 */
	const char *outer;
	struct said *first;
	/* the origin of each setting in the parameters, once they are applied */
	const struct said *settings[SETTINGS_MAX];
	struct said_origin words, variables, outer_run;
	size_t nsections, n;
	/* last, since a page that a run does not touch costs nothing */
	struct said_origin sections[SAID_SECTIONS];
	struct said room[SAID_MOST];
};

/* An empty list for a subcommand. */
void said_init(struct said_list *, unsigned cmd);

/* Adds a section of a file, stronger than earlier ones of its kind.  NULL: there are too many. */
struct said_origin *said_add_section(struct said_list *, enum said_by);

/*
 * Puts a value into its place: behind all that is stronger, and behind earlier values of its
 * origin.
 */
void said_add(
    struct said_list *, struct said_origin *, int option, const char *value, int line);

/* The value of option i that counts; NULL: nobody has said one. */
const struct said *said_of(const struct said_list *, int i);

/* Does the value stand in a file? */
bool said_in_file(const struct said *);

/*
 * Names option i for an error as its origin does: "--ttl", "DLOCK_TTL", "/etc/dlock.conf:3: ttl".
 * `s` NULL: nobody has said it.
 */
struct clean said_call(const struct said *s, int i);

/* The rc for a wrong value: RC_USAGE, or RC_CONFIG in a file. */
enum rc said_wrong(const struct said *);

/*
 * Takes the values that count into the parameters, of the options from `first` up to, but
 * without, `end`.  Keys among the words are there already.  RC_USAGE, RC_CONFIG: the fault names
 * option and value.
 */
enum rc said_apply(
    struct said_list *, int first, int end, struct params *, struct fault *);

/*
 * Finds out whose fault it is that a backend has refused to open a site (RC_USAGE).  Where the
 * wrong URL or setting stands in a file, it returns RC_CONFIG, and the fault names the line.  To
 * find it, it opens the site again with fewer settings; of two settings that do not go together,
 * it blames the later one.
 */
enum rc said_blame(
    const struct params *, const struct site *, struct host *, struct fault *);

#endif
