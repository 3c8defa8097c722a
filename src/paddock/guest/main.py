"""The packed guest's command line."""

from __future__ import annotations

import socket
import sys

from . import door
from .accounting import open_own_files
from .config import GuestConfig
from .server import serve

_OPTIONS = (
    "socket",
    "listen",
    "state-dir",
    "sandbox-id",
    "token-file",
    "user",
    "workdir",
    "env-file",
    "memory-limit",
    "pids-limit",
)
USAGE = """usage: python3 -I -S guest.zip (--socket PATH | --listen HOST:PORT) [options]
  --state-dir DIR    where runs and processes are kept (default /var/lib/paddock)
  --sandbox-id ID    whose guest this is
  --token-file FILE  holds the access token; needed with --listen
  --user NAME        default user of commands (default user)
  --workdir DIR      where commands start (default the user's home)
  --env-file FILE    NAME=VALUE lines for every command
  --memory-limit N   bytes, and
  --pids-limit N     processes that all commands may have together: in gVisor, which keeps neither
"""


def main(arguments: list[str]) -> None:
    options = _parse(arguments)
    if "memory-limit" in options and "pids-limit" in options:
        from . import limits

        limits.keep(int(options["memory-limit"]), int(options["pids-limit"]))
    config = GuestConfig(
        sandbox_id=options.get("sandbox-id", ""),
        token=_read(options["token-file"]).strip() if "token-file" in options else "",
        env=_read_env(options["env-file"]) if "env-file" in options else {},
        user=options.get("user", "user"),
        workdir=options.get("workdir", ""),
        state_dir=options.get("state-dir", "/var/lib/paddock"),
        accounting=open_own_files(),
        packed=True,
    )
    serve(config, _listen(options))


def _parse(arguments: list[str]) -> dict[str, str]:
    """argparse alone would take a tenth of the time the guest has to start."""
    options: dict[str, str] = {}
    rest = iter(arguments)
    for name in rest:
        key, joined, value = name[2:].partition("=")
        if not name.startswith("--") or key not in _OPTIONS:
            raise SystemExit(f"{name} is not an option\n{USAGE}")
        given = value if joined else next(rest, None)
        if given is None:
            raise SystemExit(f"{name} needs a value\n{USAGE}")
        options[key] = given
    if ("socket" in options) == ("listen" in options):
        raise SystemExit(f"give one of --socket and --listen\n{USAGE}")
    return options


def _listen(options: dict[str, str]) -> socket.socket:
    if "socket" in options:
        return door.listen(options["socket"])
    host, _, port = options["listen"].rpartition(":")
    host = host.strip("[]")
    if not port.isdigit():
        raise SystemExit(f"--listen takes HOST:PORT, not {options['listen']}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen(1024)
    return listener


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(1 << 20)


def _read_env(path: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in _read(path).splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    main(sys.argv[1:])
