"""The judge of strace logs finds what is not allowed, and nothing else."""

import pytest

from tests.security.strace_log import Allowed, violations

ALLOWED = Allowed(
    read=("/usr", "/etc/hosts"),
    write=("/data", "/tmp/paddock-*"),
    execute=("/usr/bin",),
    connect=("unix:/data/", "127.0.0.1:7070"),
    canaries=("/root/canary", "127.0.0.1:9999"),
)


def kinds(*lines, since=0):
    return [each.partition(":")[0] for each in violations(lines, ALLOWED, since)]


@pytest.mark.parametrize(
    "line",
    [
        '1 openat(AT_FDCWD</>, "/usr/lib/x.so", O_RDONLY|O_CLOEXEC) = 3</usr/lib/x.so>',
        '1 openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY) = -1 EACCES (Permission denied)',
        '1 openat(5</data/a>, "b", O_RDWR|O_CREAT, 0600) = 6</data/a/b>',
        '1 mkdir("/tmp/paddock-12", 0700) = 0',
        '1 execve("/usr/bin/crun", ["crun", "/root/canary"], 0x55 /* 9 vars */) = 0',
        '1 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/data/s"}, 110) = 0',
        "1 connect(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(7070), "
        'sin_addr=inet_addr("127.0.0.1")}, 16) = -1 EINPROGRESS (Operation now in progress)',
        "1 connect(3<socket:[1]>, {sa_family=AF_NETLINK, nl_pid=0}, 12) = 0",
        "1 +++ exited with 0 +++",
        "1 --- SIGCHLD {si_signo=SIGCHLD} ---",
    ],
)
def test_what_is_allowed_is_passed_over(line):
    assert kinds(line) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('1 openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY) = 3</etc/shadow>', "read /etc/shadow"),
        ('1 open("/etc/hosts", O_WRONLY|O_TRUNC) = 3</etc/hosts>', "write /etc/hosts"),
        ('1 openat(AT_FDCWD</data>, "link", O_RDONLY) = 3</etc/shadow>', "read /etc/shadow"),
        ('1 openat(AT_FDCWD</data>, "../etc/x", O_RDONLY) = 3', "read /etc/x"),
        ('1 unlinkat(4</data/a>, "../../home/x", 0) = 0', "write /home/x"),
        ('1 rename("/data/a", "/home/b") = 0', "write /home/b"),
        ('1 execve("/opt/x", ["/usr/bin/x"], 0x5 /* 1 var */) = 0', "execute /opt/x"),
        (
            '1 openat(AT_FDCWD</>, "/root/canary/x", O_RDONLY) = -1 ENOENT (No such file)',
            "read canary /root/canary/x",
        ),
        (
            "1 connect(3<socket:[1]>, {sa_family=AF_INET6, sin6_port=htons(80), "
            'sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), '
            "sin6_scope_id=0}, 28) = -1 ENETUNREACH (Network is unreachable)",
            "connect 2001",
        ),
        (
            "1 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(9999), "
            'sin_addr=inet_addr("127.0.0.1")}, 16) = 0',
            "connect canary 127.0.0.1",
        ),
        (
            '1 connect(3<socket:[1]>, {sa_family=AF_UNIX, sun_path=@"x\\0y"}, 110) = 0',
            "connect unix",
        ),
    ],
)
def test_what_is_not_allowed_is_found(line, found):
    assert kinds(line) == [found]


def test_calls_that_another_one_interrupts_are_put_together():
    lines = (
        '1 openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY <unfinished ...>',
        '2 openat(AT_FDCWD</>, "/etc/gshadow", O_RDONLY <unfinished ...>',
        "1 <... openat resumed>) = 3</etc/shadow>",
        "2 <... openat resumed>) = -1 ENOENT (No such file or directory)",
    )
    assert kinds(*lines) == ["read /etc/shadow"]


INSIDE = '%d openat(AT_FDCWD</>, "/etc/shadow", O_RDONLY) = 3</etc/shadow>'


def test_a_sandbox_reads_its_own_files_and_so_do_its_children():
    lines = (
        "1 clone(child_stack=NULL, flags=CLONE_NEWPID|SIGCHLD) = 2",
        "2 setns(7<mnt:[4026532]>, CLONE_NEWNS) = 0",
        INSIDE % 2,
        "3 " + (INSIDE % 3).partition(" ")[2],
        "2 clone3({flags=0}, 88) = 5 /* 3 in strace's PID NS */",
        INSIDE % 1,
    )
    # The child's first line may come before the parent's result.
    begun = "2 clone3({flags=0}, 88 <unfinished ...>"
    ended = "2 <... clone3 resumed>) = 5 /* 3 in strace's PID NS */"
    assert kinds(*lines[:3], begun, lines[3], ended, lines[5]) == ["read /etc/shadow"]
    assert "pid 1" in violations((*lines[:3], begun, lines[3], ended, lines[5]), ALLOWED)[0]


def test_a_sandbox_that_opens_a_canary_is_found_too():
    lines = ('1 pivot_root(".", ".") = 0', '1 open("/root/canary", O_RDONLY) = 3</root/canary>')
    assert kinds(*lines) == ["read canary /root/canary"]
    failed = ('1 chroot("/data") = -1 EPERM (Operation not permitted)', INSIDE % 1)
    assert kinds(*failed) == ["read /etc/shadow"]


def test_lines_before_the_walk_only_tell_who_is_inside():
    lines = ('1 chroot("/data") = 0', INSIDE % 1, INSIDE % 2, INSIDE % 2)
    assert kinds(*lines) == ["read /etc/shadow"]
    assert kinds(*lines[:3], since=3) == []
