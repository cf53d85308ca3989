/*
 * steer.c - marks holders, freezes and thaws.
 *
 * All of it is written with byte 0 locked, so that nobody is granted the lock
 * meanwhile, and by whoever may write the lock file: he could as well hold it.
 *
 * Nobody's lock is taken away by force.  The kernel gives it back when the last
 * process that has it has ended, and not before; a new file in the place of the
 * old one would take it from all who hold it beside him, and leave those who
 * wait asleep on the old one.  Whoever wants to use force can: the processes are
 * on this machine, and when they are killed the lock is free at once.
 */
#include "line.h"
#include "file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum rc
open_entered(struct file *f, const char *key, enum directory_use use, struct block *h,
    instant until, struct fault *fault)
{
	enum rc rc;

	f->claim = NULL;
	f->use = use;
	file_name(f->name, key, ".lock");
	rc = file_open_all(f, fault);
	if (rc == RC_OK)
		rc = file_enter(f, h, until, fault);
	if (rc == RC_BUSY)
		return fault_set(fault, RC_AGAIN,
		    "%s: a process keeps %.60s locked and does not go on: is one stopped?",
		    f->dir.where, f->name);
	return rc;
}

static enum rc
leave_closed(struct file *f, enum rc rc)
{
	file_leave(f);
	file_close_lock(f);
	return rc;
}

/* ---- marks ---- */

static bool
is_target(const struct target *t, const struct block *who)
{
	return who->token > 0 && (t->token > 0 || t->owner) &&
	    (t->token == 0 || t->token == (uint64_t)who->token) &&
	    (!t->owner || strcmp(t->owner, who->owner) == 0);
}

/* The holder that is meant: his block; -1: there is none. */
static off_t
find_meant(const struct line *l, const struct target *t, struct block *who)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct line_holder *h = &l->holders[i];

		line_who(l, h, who);
		if (h->at >= 0 && is_target(t, who))
			return h->at;
	}
	return -1;
}

static enum rc
mark_grant(
    struct file *f, const struct target *t, const char *record, struct fault *fault)
{
	struct line l;
	struct block who;
	int got = line_read(&l, f->fd, TICKET_OF_A_LOOK, false, file_now());
	off_t at = got > 0 ? find_meant(&l, t, &who) : -1;

	line_free(&l);
	if (got < 0)
		return directory_failed(&f->dir, "cannot look at the queue", fault);
	if (at < 0)
		return fault_set(
		    fault, RC_LOST, "%s: that grant has ended", f->dir.where);
	who.granted = file_now();
	who.freeze = 0;
	snprintf(who.record, sizeof who.record, "%s", record);
	return file_write(f, &who, block_mark(at), fault);
}

static enum rc
file_revoke(struct store *s, const struct target *t, const char *record, bool force,
    instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block h;
	enum rc rc;

	if (force)
		return fault_set(fault, RC_CONFIG,
		    "%s: the kernel keeps the lock until the processes that hold it have ended: kill them",
		    f->dir.where);
	rc = open_entered(f, t->key, DIRECTORY_CHANGE, &h, until, fault);
	return leave_closed(f, rc == RC_OK ? mark_grant(f, t, record, fault) : rc);
}

/* ---- freezes ---- */

/* Says in the header whether the lock is frozen. */
static enum rc
write_frozen(struct file *f, struct block *h, int frozen, struct fault *fault)
{
	enum rc rc;

	h->freeze = frozen;
	rc = file_write(f, h, BLOCK_HEADER, fault);
	if (rc == RC_OK && fdatasync(f->fd) != 0)
		rc = directory_failed(&f->dir, "cannot write it to the disk", fault);
	return rc;
}

/* The block first: it says nothing, or replaces what it said, until the header does. */
static enum rc
file_freeze(struct store *s, const char *key, const char *record, int64_t length,
    instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block h, freeze = {.next = 1};
	enum rc rc = open_entered(f, key, DIRECTORY_MAKE, &h, until, fault);

	freeze.granted = file_now();
	freeze.freeze = length == NEVER ||
		length / 1000 >= FREEZE_FOREVER - freeze.granted
	    ? FREEZE_FOREVER
	    : freeze.granted + length / 1000;
	snprintf(freeze.record, sizeof freeze.record, "%s", record);
	if (rc == RC_OK)
		rc = file_write(f, &freeze, BLOCK_FREEZE, fault);
	return leave_closed(f, rc == RC_OK ? write_frozen(f, &h, 1, fault) : rc);
}

/* Those who wait are told when the file is closed, at the latest. */
static enum rc
file_thaw(struct store *s, const char *key, instant until, struct fault *fault)
{
	struct file *f = file_of(s);
	struct block h, freeze;
	enum rc rc = open_entered(f, key, DIRECTORY_CHANGE, &h, until, fault);

	if (rc == RC_OK && !block_is_frozen(f->fd, &h, file_now(), &freeze))
		rc = fault_set(fault, RC_LOST, "%s: it is not frozen", f->dir.where);
	return leave_closed(f, rc == RC_OK ? write_frozen(f, &h, 0, fault) : rc);
}

const struct admin_ops file_admin = {file_each, file_revoke, file_freeze, file_thaw};
