"""Names and numbers of the x86_64 system calls that the seccomp filter speaks about.

Invariants
1. `ALLOWED` needs no look at arguments; calls that do are in `FILTERED`; `FATAL` calls kill the caller; `ADVICE` is
   never taken: such a call succeeds and does nothing.
2. A call in none of these fails with EPERM, and one newer than the table with ENOSYS.
3. `GPU` and `TOOL` are allowed in that profile only, on top of `ALLOWED`.
"""

from __future__ import annotations

# One entry a line would make tables of two hundred lines that nobody compares.
# fmt: off

ALLOWED = {
    # Files and descriptors.
    "read": 0, "write": 1, "close": 3, "openat": 257, "open": 2, "stat": 4, "fstat": 5, "lstat": 6, "newfstatat": 262,
    "statx": 332, "lseek": 8, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "preadv": 295, "pwritev": 296,
    "preadv2": 327, "pwritev2": 328, "access": 21, "faccessat": 269, "faccessat2": 439, "dup": 32, "dup2": 33,
    "dup3": 292, "fsync": 74, "fdatasync": 75, "truncate": 76, "ftruncate": 77,
    "fallocate": 285, "sendfile": 40, "copy_file_range": 326, "getdents64": 217,
    "getcwd": 79, "chdir": 80, "fchdir": 81, "rename": 82, "renameat": 264, "renameat2": 316, "mkdir": 83,
    "mkdirat": 258, "rmdir": 84, "creat": 85, "link": 86, "linkat": 265, "unlink": 87, "unlinkat": 263, "symlink": 88,
    "symlinkat": 266, "readlink": 89, "readlinkat": 267, "chmod": 90, "fchmod": 91, "fchmodat": 268, "umask": 95,
    "utime": 132, "utimes": 235, "utimensat": 280, "futimesat": 261, "statfs": 137, "fstatfs": 138,
    "close_range": 436,
    # Memory.
    "mmap": 9, "mprotect": 10, "munmap": 11, "mremap": 25, "brk": 12, "msync": 26, "mincore": 27,
    "mlock": 149, "munlock": 150, "get_mempolicy": 239,
    # Signals to itself and waiting.
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "rt_sigpending": 127, "rt_sigtimedwait": 128,
    "rt_sigsuspend": 130, "sigaltstack": 131, "restart_syscall": 219, "pause": 34, "wait4": 61, "waitid": 247,
    # Time. No timers that send a signal of choice: one that continues wakes a process that was stopped from outside.
    "nanosleep": 35, "clock_nanosleep": 230, "clock_gettime": 228, "clock_getres": 229, "gettimeofday": 96,
    "time": 201, "times": 100, "getitimer": 36, "setitimer": 38, "alarm": 37,
    # Threads.
    "futex": 202, "futex_waitv": 449, "set_tid_address": 218, "set_robust_list": 273, "get_robust_list": 274,
    "rseq": 334, "membarrier": 324, "exit": 60, "exit_group": 231, "sched_yield": 24, "sched_getaffinity": 204,
    "sched_getparam": 143, "sched_getscheduler": 145, "sched_get_priority_max": 146, "sched_get_priority_min": 147,
    "sched_rr_get_interval": 148, "getcpu": 309,
    # Who and where am I.
    "getpid": 39, "gettid": 186, "getppid": 110, "getuid": 102, "geteuid": 107, "getgid": 104, "getegid": 108,
    "getresuid": 118, "getresgid": 120, "getpgrp": 111, "getpgid": 121, "getsid": 124, "getgroups": 115,
    "getpriority": 140, "getrlimit": 97, "getrusage": 98, "uname": 63, "getrandom": 318,
    # Descriptors it was given, or pipes of its own; no call that makes a socket.
    "poll": 7, "ppoll": 271, "select": 23, "pselect6": 270, "epoll_create": 213, "epoll_create1": 291,
    "epoll_wait": 232, "epoll_pwait": 281, "epoll_pwait2": 441, "epoll_ctl": 233, "eventfd": 284, "eventfd2": 290,
    "pipe": 22, "pipe2": 293, "recvfrom": 45, "recvmsg": 47, "recvmmsg": 299, "sendmsg": 46, "shutdown": 48,
    "getsockname": 51, "getpeername": 52, "getsockopt": 55,
}

# What a CUDA driver does on top: it listens on one abstract socket of its own. Making sockets is `FILTERED`.
GPU = {"bind": 49, "listen": 50}

# What a compiler driver does on top: it starts programs, groups them and signals them, all within its pid namespace.
TOOL = {
    "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "setpgid": 109, "setsid": 112, "kill": 62, "tgkill": 234,
    "tkill": 200,
}

# No honest kernel needs these: trying one is an attack, not a probe.
FATAL = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "kcmp": 312,
    "pidfd_getfd": 438, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "memfd_secret": 447,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "mount": 165, "umount2": 166,
    "pivot_root": 155, "chroot": 161, "setns": 308, "unshare": 272, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "move_mount": 429, "open_tree": 428, "mount_setattr": 442, "open_by_handle_at": 304,
    "name_to_handle_at": 303, "keyctl": 250, "add_key": 248, "request_key": 249, "kexec_load": 246,
    "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176, "reboot": 169,
    "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "syslog": 103, "settimeofday": 164, "adjtimex": 159,
    "clock_adjtime": 305, "clock_settime": 227, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "vhangup": 153,
}

# How to treat files that the whole host reads: what is fetched and forgotten for one process is so for all of them, and
# the reads that this leaves to do delay, behind its back, whoever comes next.
ADVICE = {"fadvise64": 221, "readahead": 187}

FILTERED = {
    "clone": 56, "clone3": 435, "ioctl": 16, "prctl": 157, "arch_prctl": 158, "prlimit64": 302, "kill": 62,
    "tgkill": 234, "sendto": 44, "fcntl": 72, "socket": 41, "madvise": 28,
}
# fmt: on

NEWEST_KNOWN = 462
