# Goal of this file: dlock on an older kernel, or in a sandbox, which lacks some of the calls that this kernel has.

import os
import stat

from support import compiled

# Puts a filter on itself, and becomes the program whose name stands in it.
SANDBOX = r"""
    #include <errno.h>
    #include <linux/audit.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <stdio.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    #if defined __x86_64__
    #define ARCH AUDIT_ARCH_X86_64
    #elif defined __aarch64__
    #define ARCH AUDIT_ARCH_AARCH64
    #endif
    #define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
    #define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)

    int main(int argc, char **argv)
    {
        struct sock_filter filter[] = {
            FIELD(arch),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
            ANSWER(SECCOMP_RET_ALLOW),
            FIELD(nr),
    #ifdef SYS_clone3 /* glibc does without only where there is none */
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
            ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
    #endif
            BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, LEAST, 0, 2),
            BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1, 0),
            ANSWER(SECCOMP_RET_ERRNO | ERROR),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 5),
            FIELD(args[1]),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1 /* SOL_SOCKET */, 0, 3),
            FIELD(args[2]),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 71 /* SO_NETNS_COOKIE, 5.14 */, 0, 1),
            ANSWER(SECCOMP_RET_ERRNO | ENOPROTOOPT),
            ANSWER(SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog all = {sizeof filter / sizeof *filter, filter};

        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0 &&
            (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0)) {
            perror("seccomp");
            return 125;
        }
        execv(PROGRAM, argv);
        perror(PROGRAM);
        return 125;
    }
"""

NEWER_THAN_4_18 = 424  # the first number that all machines share: pidfd_send_signal, of 5.1


def sandboxed(path, program, error="ENOSYS", least=NEWER_THAN_4_18):
    """A program at `path` that is `program`, but all calls from number `least` on end with `error`."""
    path.parent.mkdir(exist_ok=True)
    made = compiled(path, SANDBOX, f'-DPROGRAM="{program}"', f"-DERROR={error}", f"-DLEAST={least}")
    os.chmod(made, os.stat(made).st_mode | stat.S_IXOTH | stat.S_IXGRP | stat.S_IROTH)
    return made
