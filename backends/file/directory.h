/*
 * directory.h - where lock files lie, and what must be so before one is trusted.
 *
 * The directory is named by the user, or it is the default one of this uid:
 * the first of two paths at which it is or can be made.  In a directory that
 * others may write, files are opened without following links, must be plain,
 * with one name, and (if the world may write) owned by us, root, or the
 * directory's owner.
 */
#ifndef DLOCK_FILE_DIRECTORY_H
#define DLOCK_FILE_DIRECTORY_H

#include "backends/backend.h"

#include <dirent.h>
#include <limits.h>
#include <sys/types.h>

struct directory {
	bool is_default;
	int fd; /* -1: not open */
	dev_t dev;
	ino_t ino;
	uid_t owner;
	mode_t mode;
	char where[WHERE_BYTES]; /* for people */
	char path[PATH_MAX];
};

/* The purpose: it says whether what is missing is made, and how files are opened. */
enum directory_use {
	DIRECTORY_LOOK,   /* for reading; what is not there is RC_LOST */
	DIRECTORY_CHANGE, /* for writing; the same */
	DIRECTORY_MAKE,   /* for writing; it is made */
};

/*
 * Not open yet: the directory of file:[//[localhost]]/DIR; url NULL: the default one, chosen
 * when it is opened.  DIR is all that follows: people write '?' and '#' in it as they are, which
 * url.h would cut off.  RC_USAGE: no such URL.
 */
enum rc directory_init(struct directory *, const char *url, struct fault *);

/*
 * Opens it (again), or makes it if it is the default one, and checks whether it can be
 * trusted.
 */
enum rc directory_open(struct directory *, enum directory_use, struct fault *);

/*
 * Opens the file `name` in it, or makes it, readable and writable by whom the
 * directory is writable by, and checks it.  Directories within the name, each
 * ended by a slash, are made too.  RC_OK: *fd is the caller's.  RC_DENIED: what
 * is there is not to be trusted, or not ours to open.
 */
enum rc directory_open_file(const struct directory *, const char *name,
    enum directory_use, int *fd, struct fault *);

/*
 * Opens the directories within the name alone; *leaf is what is behind the last slash.  With RC_OK,
 * directory_close_steps() is the caller's.
 */
enum rc directory_open_steps(const struct directory *, const char *name,
    enum directory_use, int *at, const char **leaf, struct fault *);
void directory_close_steps(const struct directory *, int at);

/* Lists the directory to which `name` leads, which ends with a slash; "": this one itself. */
enum rc directory_list(
    const struct directory *, const char *name, DIR **, struct fault *);

/*
 * Do path and name still lead to the directory and the file that are open?
 * RC_LOST: no, so that others lock something else.  RC_AGAIN: it cannot be seen now.
 */
enum rc directory_look(
    const struct directory *, const char *name, int fd, struct fault *);

/*
 * The path of the other default directory of this uid, and a descriptor of it (O_PATH), if it
 * is there; otherwise, and if d is no default one (then without a path), or the second:
 * -1.
 */
enum { DEFAULT_BYTES = 64 };
int directory_other(const struct directory *d, char path[DEFAULT_BYTES]);

/*
 * Says in *notice if anybody's ticket is alive on a file of this name in another default
 * directory of this uid.
 */
void directory_notice_elsewhere(
    const struct directory *, const char *name, const char *key, struct fault *notice);

/* RC_DENIED or RC_SYSTEM by errno, "WHERE: WHAT: why". */
enum rc directory_failed(const struct directory *, const char *what, struct fault *);

void directory_close(struct directory *);

#endif
