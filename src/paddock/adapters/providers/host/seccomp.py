"""The system calls a sandbox may make, for the runtime's bundle and for the joined guest alike.

What is allowed is listed; what is refused on purpose answers EPERM; everything else, such as a call
newer than this list, answers ENOSYS, so that a C library falls back to an older one.
"""

import ctypes
import errno
import os
from dataclasses import dataclass
from typing import Any

_ARCHES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}

ALLOWED = """
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown chroot
clock_adjtime clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range
creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue
futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents
getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid
getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
ioprio_get ioprio_set kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat
listen listxattr llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier
memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap
msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat
open openat openat2 pause pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_mrelease
process_vm_readv process_vm_writev pselect6 ptrace pwrite64 pwritev pwritev2 read readahead
readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages removexattr rename renameat
renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list
set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr shmat shmctl
shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice stat statfs statx symlink
symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times
tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write
writev get_mempolicy mbind set_mempolicy set_mempolicy_home_node
""".split()

REFUSED = """
_sysctl acct add_key adjtimex bpf clock_settime delete_module fanotify_init fanotify_mark
finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter io_uring_register
io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie migrate_pages
mount mount_setattr move_mount move_pages nfsservctl open_by_handle_at open_tree perf_event_open
pivot_root process_madvise quotactl quotactl_fd reboot request_key setdomainname sethostname setns
settimeofday swapoff swapon sysfs syslog umount2 unshare uselib userfaultfd ustat vhangup
""".split()

_NAMESPACE_FLAGS = 0x7E020000
_EVERYTHING = 0xFFFFFFFF
_AF_VSOCK, _AF_LAST = 40, 45
_BTRFS = 0x94 << 8
"""The type number of btrfs ioctls. With them a sandbox could create subvolumes in what is mounted
into it. The disk limit does not cover those, and rm(1) cannot remove them."""
_SHARING = (0x40049409, 0x4020940D, 0xC0189436)
"""FICLONE, FICLONERANGE and FIDEDUPERANGE: all file systems share btrfs's number for them."""
_PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0x40000, _EVERYTHING)


@dataclass(frozen=True, slots=True)
class _Compare:
    """One condition on an argument, in OCI's and in libseccomp's words."""

    index: int
    operator: str
    value: int
    value_two: int = 0

    def oci(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "op": self.operator,
            "value": self.value,
            "valueTwo": self.value_two,
        }


@dataclass(frozen=True, slots=True)
class _Rule:
    names: tuple[str, ...]
    errno: int | None = None
    """None allows."""
    arguments: tuple[_Compare, ...] = ()


def _rules() -> list[_Rule]:
    return [
        _Rule(tuple(ALLOWED)),
        # New namespaces would hand a process every capability over them, and with these the
        # larger part of the kernel's surface. clone3 hides its flags in memory, so it stays
        # unlisted: a C library that is told ENOSYS uses clone, whose flags can be seen.
        _Rule(("clone",), None, (_Compare(0, "SCMP_CMP_MASKED_EQ", _NAMESPACE_FLAGS, 0),)),
        *(
            _Rule(("personality",), None, (_Compare(0, "SCMP_CMP_EQ", value),))
            for value in _PERSONALITIES
        ),
        # Sockets of every family but vsock, which leads to a hypervisor. Not as "unequal": the
        # comparison has 64 bits and the kernel looks at 32 of them.
        _Rule(("socket",), None, (_Compare(0, "SCMP_CMP_LT", _AF_VSOCK),)),
        *(
            _Rule(("socket",), None, (_Compare(0, "SCMP_CMP_EQ", family),))
            for family in range(_AF_VSOCK + 1, _AF_LAST + 1)
        ),
        # Allow every ioctl except those of btrfs. A rule cannot compare an argument twice, so each
        # rule allows the numbers that differ in one bit. The kernel uses 32 of the 64 bits.
        *(
            _Rule(("ioctl",), None, (_Compare(1, "SCMP_CMP_MASKED_EQ", bit, bit & ~_BTRFS),))
            for bit in (1 << number for number in range(8, 16))
        ),
        *(
            _Rule(("ioctl",), None, (_Compare(1, "SCMP_CMP_MASKED_EQ", _EVERYTHING, request),))
            for request in _SHARING
        ),
        _Rule(tuple(REFUSED), errno.EPERM),
    ]


def oci_profile() -> dict[str, Any]:
    """The profile in the form of an OCI bundle's `linux.seccomp`."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [_ARCHES[os.uname().machine]],
        "syscalls": [
            {
                "names": list(rule.names),
                "action": "SCMP_ACT_ALLOW" if rule.errno is None else "SCMP_ACT_ERRNO",
                **({} if rule.errno is None else {"errnoRet": rule.errno}),
                **(
                    {"args": [argument.oci() for argument in rule.arguments]}
                    if rule.arguments
                    else {}
                ),
            }
            for rule in _rules()
        ],
    }


class _ArgCmp(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


_OPERATORS = {"SCMP_CMP_LT": 2, "SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000


def compile_filter() -> bytes:
    """The same profile as the kernel's own program, made by libseccomp.

    The joined guest loads it: a process cannot inherit the filter of a namespace it enters.
    """
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | errno.ENOSYS)))
    if not context:
        raise OSError("libseccomp could not make a filter")
    try:
        for rule in _rules():
            _add(library, context, rule)
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _add(library: Any, context: ctypes.c_void_p, rule: _Rule) -> None:
    action = _ALLOW if rule.errno is None else _ERRNO | rule.errno
    compares = (_ArgCmp * max(1, len(rule.arguments)))(
        *(
            _ArgCmp(argument.index, _OPERATORS[argument.operator], argument.value, 0)
            if argument.operator != "SCMP_CMP_MASKED_EQ"
            else _ArgCmp(argument.index, 7, argument.value, argument.value_two)
            for argument in rule.arguments
        )
    )
    for syscall in rule.names:
        number = library.seccomp_syscall_resolve_name(syscall.encode())
        if number == -1:
            continue  # this architecture or this libseccomp does not know it: ENOSYS stands
        result = library.seccomp_rule_add_array(
            context, ctypes.c_uint32(action), number, len(rule.arguments), compares
        )
        if result < 0:
            raise OSError(-result, f"seccomp rule for {syscall}: {os.strerror(-result)}")


def _export(library: Any, context: ctypes.c_void_p) -> bytes:
    fd = os.memfd_create("seccomp")
    try:
        if (result := library.seccomp_export_bpf(context, fd)) < 0:
            raise OSError(-result, f"seccomp export: {os.strerror(-result)}")
        os.lseek(fd, 0, os.SEEK_SET)
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)
