"""The other firewalls of this host: what one of them drops is lost, whatever our own rules say.

Docker drops what it does not know as soon as it has switched forwarding on itself. Where it is
Docker, known by its chain DOCKER-USER, our rules stand at the very end, where only that default
would come: whatever anybody has ruled before them holds. What an operator's own firewall drops is
the operator's to change.
"""

import json
import os
import subprocess
from pathlib import Path

from paddock.domain.errors import Broken
from paddock.ports.provider import Finding, Status

_NAME = "open network"
_DOCKERS = "DOCKER-USER"
_FORWARD = "FORWARD"
_ANSWERS = "-m conntrack --ctstate RELATED,ESTABLISHED"
_DROPS = f"-P {_FORWARD} DROP"
_TIMEOUT_S = 20.0


def let_through(bridge: str) -> None:
    """Have Docker's firewall let the bridge out where it would not; done already is success.

    The rules are a chain of our own, entered after every other rule of FORWARD. Docker's own
    bridges are left to its own rules, which keep containers from being reached.
    """
    if (wanted := _missing(bridge)) is None:
        return
    lines = [f":{bridge} - [0:0]", *wanted]
    text = "".join(f"{line}\n" for line in ("*filter", *lines, "COMMIT"))
    _must(["iptables-restore", "--wait", "--noflush"], text)
    entrance, rules = _entrance(bridge), _rules(_FORWARD) or []
    if entrance in rules[:-1]:  # others came after it
        _must(["iptables", "--wait", "-D", _FORWARD, "-j", bridge])
    if entrance not in rules[-1:]:
        _must(["iptables", "--wait", "-A", _FORWARD, "-j", bridge])


def is_let_through(bridge: str) -> bool:
    """Whether let_through() would find nothing to do; cheap, so that it can be asked often."""
    return _missing(bridge) is None


def _missing(bridge: str) -> list[str] | None:
    """The rules of our chain, unless Docker's firewall lets the bridge out or drops nothing."""
    listed = _listed(_IPTABLES).splitlines()
    if _DROPS not in listed or _rules(_DOCKERS) is None:
        return None
    accepted = [f"-o {bridge} {_ANSWERS}", *(f"-i {bridge} -o {out}" for out in _ways_out())]
    wanted = [
        *(f"-A {bridge} {rule} -j ACCEPT" for rule in accepted),
        *(f"-A {bridge} -i {bridge} -o {own} -j RETURN" for own in ("docker+", "br-+")),
        f"-A {bridge} -i {bridge} -j ACCEPT",
    ]
    in_place = listed[-1] == _entrance(bridge) and _rules(bridge) == wanted
    return None if in_place else wanted


def _entrance(bridge: str) -> str:
    return f"-A {_FORWARD} -j {bridge}"


def forget(bridge: str) -> None:
    """Take our chain away; absent is success."""
    if _rules(bridge) is None:
        return
    if _entrance(bridge) in (_rules(_FORWARD) or ()):
        _must(["iptables", "--wait", "-D", _FORWARD, "-j", bridge])
    _must(["iptables", "--wait", "-F", bridge])
    _must(["iptables", "--wait", "-X", bridge])


def look(bridge: str) -> Finding:
    """Whether an open network leads anywhere, as far as the default of each firewall says."""
    if os.geteuid() != 0:
        found = "whether a firewall drops it can be seen by root only"
        return Finding(_NAME, Status.DEGRADED, found, "run `paddock doctor` as root")
    found = "no firewall drops by default what it forwards"
    for chain in _dropping_chains():
        if chain == _IPTABLES and _rules(_DOCKERS) is not None:
            found = f"Docker's firewall is told to let it out, at the end of {_FORWARD}"
        elif bridge in _listed(chain):
            found = f"the chain {chain[-1]} lets it out"
        else:
            return _dropped(chain, bridge)
    return Finding(_NAME, Status.OK, found)


def _dropped(chain: tuple[str, str, str], bridge: str) -> Finding:
    family, table, name = chain
    found = f"the chain {name} of {family} {table} drops by default what it does not know"
    if chain == _IPTABLES:
        fix = (
            f"iptables -I FORWARD -i {bridge} -j ACCEPT && "
            f"iptables -I FORWARD -o {bridge} {_ANSWERS} -j ACCEPT"
        )
    else:
        fix = (
            f"nft insert rule {family} {table} {name} iifname {bridge} accept && "
            f"nft insert rule {family} {table} {name} oifname {bridge} "
            "ct state related,established accept"
        )
    return Finding(_NAME, Status.DEGRADED, f"sandboxes with one reach nothing: {found}", fix)


_IPTABLES = ("ip", "filter", "FORWARD")


def _dropping_chains() -> list[tuple[str, str, str]]:
    """Those that see what is forwarded over IPv4; iptables may have its own in another place."""
    found = []
    code, text = _run(["nft", "-j", "list", "chains"])
    for entry in json.loads(text)["nftables"] if code == 0 else ():
        chain = entry.get("chain", {})
        if (chain.get("hook"), chain.get("policy")) == ("forward", "drop"):
            found.append((chain["family"], chain["table"], chain["name"]))
    if _IPTABLES not in found and _iptables_drops():
        found.append(_IPTABLES)
    return [chain for chain in found if chain[0] in ("ip", "inet")]


def _iptables_drops() -> bool:
    code, text = _run(["iptables", "--wait", "-S", "FORWARD"])
    return code == 0 and _DROPS in text.splitlines()


def _listed(chain: tuple[str, str, str]) -> str:
    if chain == _IPTABLES:
        return _run(["iptables", "--wait", "-S", "FORWARD"])[1]
    return _run(["nft", "list", "chain", *chain])[1]


def _ways_out() -> list[str]:
    """The devices of the default routes: they are no bridges of Docker's, whatever their names."""
    lines = Path("/proc/net/route").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sorted({device for device, to, *_, mask, _, _, _ in fields if to == mask == "00000000"})


def _rules(chain: str) -> list[str] | None:
    """None where there is no such chain, or no iptables at all."""
    code, text = _run(["iptables", "--wait", "-S", chain])
    if code != 0:
        return None
    return [line for line in text.splitlines() if line.startswith("-A ")]


def _must(argv: list[str], text: str = "") -> None:
    code, said = _run(argv, text)
    if code != 0:
        raise Broken(f"`{' '.join(argv)}` could not let the open network out: {said.strip()}")


def _run(argv: list[str], text: str = "") -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return 127, f"{argv[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} did not end within {_TIMEOUT_S:.0f} s"
    return done.returncode, done.stdout
