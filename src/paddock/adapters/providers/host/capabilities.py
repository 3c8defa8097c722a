"""The Linux capabilities that root keeps inside a sandbox, and their numbers."""

NUMBERS = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_SYS_CHROOT": 18,
    "CAP_SETFCAP": 31,
}

KEPT = tuple(NUMBERS)
"""Enough for sudo, apt and a server on port 80; nothing that configures a kernel, a network or a
device. Inside a user namespace they hold only over what the sandbox owns."""


def numbers(names: tuple[str, ...] = KEPT) -> tuple[int, ...]:
    return tuple(NUMBERS[name] for name in names)
