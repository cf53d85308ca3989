/*
 * file.h - the file backend's store, for its own files: file.c takes locks, waits for them and
 * gives them back, admin.c looks at them and steers.
 */
#ifndef DLOCK_FILE_FILE_H
#define DLOCK_FILE_FILE_H

#include "block.h"
#include "directory.h"
#include "place.h"

#include "backends/common/encode.h"

enum {
	NAME_CHUNK = 200, /* of an encoded key in one directory entry (NAME_MAX is 255) */
	NAME_BYTES = ENCODED_BYTES + 2 * (ENCODED_BYTES / NAME_CHUNK) + 8,
};

struct file {
	struct store base;
	const struct claim *claim; /* NULL: there is none, a look or a steering */
	enum directory_use use;
	const char *path, *lock; /* for joined_open(); NULL: not said */
	int fd;                  /* the lock file; -1: not open */
	/* for byte 0, where a call has given up; else NULL */
	struct ticket_wait *entering;
	struct place place;
	bool frozen; /* when we last looked: nobody may take the lock */
	/* the lock, once it is ours */
	struct {
		bool ours;              /* if so: */
		int64_t granted, token; /* the token is the first, as the header has it */
		off_t at;               /* our block */
	} hold;
	char name[NAME_BYTES]; /* of the lock file */
	char runs[NAME_BYTES]; /* of what is remembered beside it */
	/* the last, so that what is used of a store lies in one page */
	struct directory dir;
};

extern const struct backend file_backend;
extern const struct admin_ops file_admin;

/* The whole of a store of this backend. */
struct file *file_of(struct store *);

/*
 * A file's name.  A key too long for one goes into directories "CHUNK+" ('+' is in no
 * encoded key).
 */
void file_name(char out[NAME_BYTES], const char *key, const char *suffix);

/*
 * Directory and file, from the names and as `use` says; a ticket on a file that was
 * open before is gone.
 */
enum rc file_open_all(struct file *, struct fault *);

/*
 * Locks byte 0 of the file that the name leads to, and reads its header.  A file
 * that was replaced is opened anew: then our ticket is gone, which was on the
 * old one.  Whatever it returns, byte 0 is given back with file_leave().
 */
enum rc file_enter(struct file *, struct block *, instant until, struct fault *);
void file_leave(struct file *);

/* Writes a block.  RC_SYSTEM, RC_DENIED. */
enum rc file_write(struct file *, const struct block *, off_t at, struct fault *);

/* Closes the lock file. */
void file_close_lock(struct file *);

/*
 * joined.c: the lock of another program, on the file that -O path= names, as -O lock= says.  A
 * directory in the URL does not matter.
 */
enum rc joined_open(
    struct store **, struct host *, const char *path, const char *lock, struct fault *);

/* check.c, as admin_ops has it. */
enum rc file_check(struct store *, struct checkup *, struct fault *);

/* admin.c: shows in host->seen who has the lock, and who is before us. */
void file_show_line(struct file *);

#endif
