"""`python -m paddock.gateway`: started by a control plane, with the control socket at hand."""

import argparse
import ctypes
import encodings.idna  # noqa: F401 - loaded before the files may be out of reach
import logging
import os
import resource
import socket
import sys

import uvloop

from paddock.gateway.client_hello import ClientHello
from paddock.gateway.gateway import Gateway

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_NAME = 15
_PR_SET_DUMPABLE = 4


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="paddock-egress", description=__doc__)
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--uid", type=int, required=True)
    parser.add_argument("--of", default="", help="for people who look at the list of processes")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    listener = socket.socket(fileno=given.socket_fd)
    os.set_inheritable(given.socket_fd, False)
    drop_privileges(given.uid)
    ClientHello(lambda _name: False)
    uvloop.run(Gateway().serve(listener))


def drop_privileges(uid: int) -> None:
    """Before anything hostile is read: no capability, no group, no way back."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, b"paddock-egress", 0, 0, 0)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    # It holds credentials: neither a core nor a debugger shall.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or os.geteuid() == 0:
        raise SystemExit("the gateway could not give up its privileges, and does not run with them")


if __name__ == "__main__":
    main(sys.argv[1:])
