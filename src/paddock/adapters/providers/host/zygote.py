"""The process that guests are forked from: it has everything loaded, and it holds still.

A page that parent and child share is copied when either of them writes to it. A busy parent would
leave each guest alone with its share of every page the parent touches, so this one does nothing
between two forks but wait; even the order that a guest is made by is read in the fork.
"""

import gc
import json
import os
import signal
import socket

from paddock.adapters.providers.host import syscalls
from paddock.adapters.providers.host.join import Join, become_guest
from paddock.adapters.providers.host.processes import Process

_PACKET = 1 << 20


def start(filter_program: bytes) -> tuple[int, socket.socket]:
    """Fork the zygote; what is sent to the socket becomes guests, until it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        syscalls.set_title("paddock-zygote")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
        os.closerange(3, theirs.fileno())
        os.closerange(theirs.fileno() + 1, 1 << 16)
        gc.collect()
        gc.freeze()
        gc.disable()
        _wait_and_fork(theirs, filter_program)
        os._exit(0)
    theirs.close()
    return pid, ours


def _wait_and_fork(orders: socket.socket, filter_program: bytes) -> None:
    while True:
        packet, descriptors, _, _ = socket.recv_fds(orders, _PACKET, 2)
        if not packet:
            return
        if os.fork() == 0:
            _become(packet, descriptors, filter_program)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(packet: bytes, descriptors: list[int], filter_program: bytes) -> None:
    listener, report = descriptors
    order = json.loads(packet)
    become_guest(
        Join(
            init=Process(**order["init"]),
            config=order["config"],
            capabilities=tuple(order["capabilities"]),
            no_new_privs=order["no_new_privs"],
            cgroup_procs=tuple(order["cgroup_procs"]),
            accounting=order["accounting"],
            nofile=order.get("nofile", 0),
        ),
        socket.socket(fileno=listener),
        filter_program,
        report,
    )
