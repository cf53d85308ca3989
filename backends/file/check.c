/*
 * check.c - tells whether a directory is fit for locks, and removes the file of a probe.
 *
 * The kernel's locks are those of one machine: on a file system that carries files to a server
 * they promise nothing (dlock-file(7)).  A file of a lock stays for the next one who wants that
 * lock; that of a probe is removed with byte 0 locked, so that who has just opened it finds
 * out (directory_look) and opens another.
 */
#include "file.h"

#include "backends/common/checkup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A file system by its number, statfs(2). */
static const struct kind {
	unsigned long magic;
	char name[40];
	enum fitness fitness;
} kinds[] = {
    {0x6969, "NFS", UNFIT},
    {0xff534d42, "CIFS", UNFIT},
    {0xfe534d42, "SMB", UNFIT},
    {0x517b, "SMB", UNFIT},
    {0x00c36400, "Ceph", UNFIT},
    {0x5346414f, "AFS", UNFIT},
    {0x6b414653, "AFS", UNFIT},
    {0x73757245, "Coda", UNFIT},
    {0x19830326, "BeeGFS", UNFIT},
    {0x20030528, "OrangeFS", UNFIT},
    {0x0bd00bd0, "Lustre", UNFIT},
    {0x47504653, "GPFS", UNFIT},
    {0x01161970, "GFS2", UNFIT},
    {0x7461636f, "OCFS2", UNFIT},
    {0x01021997, "9p", UNFIT},
    {0x6a656a63, "virtiofs", UNFIT},
    {0x786f4256, "vboxsf", UNFIT},
    {0x65735546, "FUSE", DOUBTFUL},
    {0x794c7630, "overlay", DOUBTFUL},
    {0x01021994, "tmpfs", FIT},
    {0xef53, "ext4", FIT},
    {0x58465342, "XFS", FIT},
    {0x9123683e, "btrfs", FIT},
    {0x2fc12fc1, "ZFS", FIT},
    {0xca451a4e, "bcachefs", FIT},
    {0xf2f52010, "F2FS", FIT},
    {0x3153464a, "JFS", FIT},
    {0x858458f6, "ramfs", FIT},
};

static void
tell_kind(struct checkup *c, int fd)
{
	struct kind kind = {.fitness = DOUBTFUL};
	struct statfs st;
	unsigned long magic;

	if (fstatfs(fd, &st) != 0)
		return;
	magic = (unsigned long)st.f_type & 0xffffffff;
	snprintf(kind.name, sizeof kind.name, "one of an unknown kind, 0x%lx", magic);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].magic == magic)
			kind = kinds[i];
	if (kind.fitness == FIT)
		checkup_tell(
		    c, FIT, "filesystem", NULL, "the file system is %s", kind.name);
	else if (kind.fitness == UNFIT)
		checkup_tell(c, UNFIT, "filesystem",
		    "name a directory on a local disk, or use another backend for several hosts",
		    "the directory is on %s, where the kernel's locks promise nothing",
		    kind.name);
	else
		checkup_tell(c, DOUBTFUL, "filesystem",
		    "name a directory on a local disk that is no container's own",
		    "the directory is on %s: perhaps nobody else sees these locks",
		    kind.name);
}

static void
tell_room(struct checkup *c, int fd)
{
	struct statvfs st;
	bool full;

	if (fstatvfs(fd, &st) != 0)
		return;
	full = st.f_bavail == 0 || (st.f_files > 0 && st.f_favail == 0);
	if (full || (st.f_flag & ST_RDONLY))
		checkup_tell(c, UNFIT, "disk",
		    full ? "make room on the file system" : "mount it for writing",
		    full ? "the file system is full" : "the file system is read-only");
}

/* Does one user have the same directory wherever dlock is started? */
static void
tell_default(struct checkup *c, const struct directory *d)
{
	char other[DEFAULT_BYTES];
	int fd = directory_other(d, other);
	bool tmp = strcmp(d->path, other) == 0;

	checkup_tell(c, tmp || fd >= 0 ? DOUBTFUL : FIT, "default",
	    tmp ? "name a directory: -u file:///DIR"
		: fd >= 0
		? "remove it once nothing is locked there (dlock ls -u file://...)"
		: NULL,
	    "%s is the default one%s", d->path,
	    tmp ? ": a service with PrivateTmp= has another"
		: fd >= 0
		? ", for cron and login alike, but /tmp has one, too: left over, "
		  "or a service's that cannot write to /run"
		: " of this user, for cron and login alike");
	if (fd >= 0)
		close(fd);
}

static enum rc
file_sweep(struct file *f, struct checkup *c, struct fault *fault)
{
	struct block h;
	enum rc rc;

	f->use = DIRECTORY_CHANGE;
	file_name(f->name, c->probe, ".lock");
	rc = file_open_all(f, fault);
	if (rc == RC_OK)
		rc = file_enter(f, &h, c->until, fault);
	if (rc == RC_OK && unlinkat(f->dir.fd, f->name, 0) != 0)
		rc = directory_failed(
		    &f->dir, "cannot remove the file of the probe", fault);
	file_leave(f);
	file_close_lock(f);
	return rc == RC_LOST ? RC_OK : rc;
}

enum rc
file_check(struct store *s, struct checkup *c, struct fault *fault)
{
	struct file *f = file_of(s);
	struct directory *d = &f->dir;
	enum rc rc;

	if (c->sweep)
		return file_sweep(f, c, fault);
	rc = directory_open(d, DIRECTORY_LOOK, fault);
	if (rc == RC_OK) {
		checkup_tell(c, FIT, "directory", NULL, "%s of uid %u, mode %03o",
		    d->path, (unsigned)d->owner, (unsigned)d->mode & 07777);
		if (d->is_default)
			tell_default(c, d);
		tell_kind(c, d->fd);
		tell_room(c, d->fd);
	}
	if (rc != RC_LOST)
		return rc;
	checkup_tell(c, FIT, "directory", NULL,
	    "%s is the default one, and not there yet: the first run makes it", d->path);
	fault_set(&c->hands_off, RC_OK, "the directory would be made for it");
	return RC_OK;
}
