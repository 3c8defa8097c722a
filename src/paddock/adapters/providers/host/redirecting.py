"""What is put into a sandbox's network so that whatever it sends ends up at the gateway.

The network has loopback only. Every address is made its own, so that nothing needs a cable, and
the packet filter turns connections to the gateway's sockets, which were made in there from outside.
What is no TCP and no question to a name server is refused at once: nothing ever waits for nothing.
"""

import socket

from paddock.adapters.providers.host import netns, nftables, routes
from paddock.adapters.providers.host.processes import Process
from paddock.domain.egress import doors
from paddock.domain.egress.addresses import OURS
from paddock.domain.errors import Broken

PROXY = doors.PROXY
_BACKLOG = 512
_OWN = str(OURS[2])
_TABLE = "paddock_egress"
# Name servers on other addresses of loopback are those of engines and of systemd, which write them
# into resolv.conf; the rules come before those that an engine has set for its own.
_RULES = f"""
create table inet {_TABLE}
table inet {_TABLE} {{
  chain turn {{
    type nat hook output priority -110; policy accept;
    ip daddr 127.0.0.1 accept
    meta l4proto udp udp dport 53 redirect to :{doors.DNS}
    meta nfproto ipv4 tcp dport 53 redirect to :{doors.DNS}
    ip daddr 127.0.0.0/8 accept
    meta nfproto ipv4 meta l4proto tcp redirect to :{doors.TRANSPARENT}
  }}
  chain refuse {{
    type filter hook output priority 0; policy accept;
    ip daddr 127.0.0.0/8 accept
    ip6 daddr ::1 accept
    ct status dnat accept
    ct direction reply accept
    meta l4proto tcp reject with tcp reset
    reject with icmpx type admin-prohibited
  }}
}}
"""
_NO_RULES = f"table inet {_TABLE}\ndelete table inet {_TABLE}\n"


async def place(process: Process) -> list[socket.socket]:
    """The gateway's sockets in the network of a process, with everything turned to them.

    In their order: transparent, proxy, DNS by TCP, DNS by UDP.
    """
    return await netns.within(process, _place)


async def remove(process: Process) -> None:
    """Loopback only, as before. Absent is success."""
    await netns.within(process, _remove)


def _place() -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for port in (doors.TRANSPARENT, doors.PROXY, doors.DNS):
            made.append(listener := socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((doors.ADDRESS, port))
            listener.listen(_BACKLOG)
        # To 0.0.0.0 it would answer from an address that the kernel knows no question to.
        made.append(datagrams := socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind((doors.ADDRESS, doors.DNS))
        _turn()
        routes.keep_everything_here(_OWN)
    except BaseException:
        for each in made:
            each.close()
        raise
    return made


def _turn() -> None:
    """They are always the same, so where they are already they stay: to exchange them takes 10 ms,
    since the kernel waits for whoever may be going through the old ones."""
    try:
        nftables.apply(_RULES)
    except Broken as error:
        if "File exists" not in error.message:
            raise


def _remove() -> None:
    routes.forget_everything(_OWN)
    nftables.apply(_NO_RULES)
