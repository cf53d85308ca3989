/* restart.c - whether a master may have forgotten to whom it gave its vote. */
#include "restart.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef LONGEST_MS
#define LONGEST_MS 60000
#endif

/* for clocks of holders and of those who wait that differ by less than 1 % in speed */
enum { MARGIN_MS = 1000 };

int64_t
restart_longest(void)
{
	return LONGEST_MS;
}

int64_t
restart_enough(void)
{
	return LONGEST_MS + MARGIN_MS;
}

bool
restart_is_over(int64_t known)
{
	return known >= restart_enough();
}

void
restart_name_clock(char id[CLOCK_ID_BYTES], const char *otherwise)
{
	char boot[48], space[32];
	ssize_t n = readlink("/proc/self/ns/time", space, sizeof space - 1);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	space[n > 0 ? n : 0] = '\0';
	n = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
	if (fd >= 0)
		close(fd);
	boot[n > 0 ? n : 0] = '\0';
	boot[strcspn(boot, " \n")] = '\0';
	/* a container may have a clock of its own */
	snprintf(id, CLOCK_ID_BYTES, "%s %s", *boot ? boot : otherwise, space);
}
