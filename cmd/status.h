/*
 * status.h - every exit status of dlock's own.
 *
 * Those that sysexits.h names keep its numbers; 124, 126 and 127 are what
 * timeout(1) and shells use; 79 is ours.
 */
#ifndef DLOCK_STATUS_H
#define DLOCK_STATUS_H

enum {
	STATUS_USAGE = 64,
	STATUS_UNAVAILABLE = 69,
	STATUS_SYSTEM = 71,
	STATUS_BUSY = 75,
	STATUS_PROTOCOL = 76,
	STATUS_DENIED = 77,
	STATUS_CONFIG = 78,
	STATUS_LOST = 79,
	STATUS_MAX_RUN = 124,
	STATUS_NOT_EXECUTABLE = 126,
	STATUS_NOT_FOUND = 127,
};

#endif
