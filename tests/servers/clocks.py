# Goal of this file: hosts whose clocks are wrong.

from support import FilePlace

CLOCK = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <sys/time.h>
    #include <time.h>

    /* The wall clock is CLOCK_SHIFT seconds off; leases are counted by another. */
    int clock_gettime(clockid_t id, struct timespec *t)
    {
        int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
        int rc = real(id, t);

        if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && getenv("CLOCK_SHIFT"))
            t->tv_sec += atol(getenv("CLOCK_SHIFT"));
        return rc;
    }

    int gettimeofday(struct timeval *t, void *zone)
    {
        struct timespec now;

        (void)zone;
        clock_gettime(CLOCK_REALTIME, &now);
        *t = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
        return 0;
    }

    time_t time(time_t *ret)
    {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        if (ret)
            *ret = now.tv_sec;
        return now.tv_sec;
    }
"""


def shifted(place, shim, seconds):
    """Variables for a host whose clock is so much off; a file's users share one host and its clock."""
    return {} if isinstance(place, FilePlace) else {"LD_PRELOAD": shim, "CLOCK_SHIFT": str(seconds)}
