"""Which server is meant, and what lets us in: arguments, variables, a file, this machine's own."""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paddock.domain.errors import InvalidRequest

URL_VARIABLE = "PADDOCK_URL"
TOKEN_VARIABLE = "PADDOCK_TOKEN"  # noqa: S105 - the name of a variable
FILE = Path("paddock") / "client.toml"
_USUAL_PORT = "7070"
_USUAL_DATA = "/var/lib/paddock"
_SCHEMES = ("http", "https")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Place:
    """A server's address and a token for it; an empty one is for servers that ask for none."""

    url: str
    token: str = field(default="", repr=False)
    hint: str = ""
    """Where a token was looked for and not found."""
    owner: int | None = None
    """The uid of the server that wrote the token, if it comes from a data directory. The token is
    sent to no other server."""


def find_place(url: str = "", token: str = "", environ: Mapping[str, str] | None = None) -> Place:
    """The server that is meant. What is said nearer goes first: arguments, PADDOCK_URL and
    PADDOCK_TOKEN, `client.toml` in the user's configuration, then the server of this machine.

    A token from a file goes only to the server that the file is about. For a data directory that
    is the server that wrote it, on any port.
    """
    env = os.environ if environ is None else environ
    token = token or env.get(TOKEN_VARIABLE, "")
    kept = _kept(env)
    url = _checked(url or env.get(URL_VARIABLE, "") or kept.get("url", "") or _local(env))
    if token:
        return Place(url, token)
    if kept.get("token") and _checked(kept.get("url", "") or _local(env)) == url:
        return Place(url, kept["token"])
    if urlsplit(url).hostname not in _LOOPBACK:
        return Place(url, hint=f"set {TOKEN_VARIABLE}, or write {_file(env)}")
    return _of_this_machine(url, env)


def is_said(environ: Mapping[str, str] | None = None) -> bool:
    """Whether somebody said which server is meant; otherwise it is this machine's, if one runs."""
    env = os.environ if environ is None else environ
    return bool(env.get(URL_VARIABLE, "") or _kept(env).get("url", ""))


def _of_this_machine(url: str, env: Mapping[str, str]) -> Place:
    path = Path(env.get("PADDOCK_SERVER__DATA_DIR", "") or _USUAL_DATA) / "admin-token"
    try:
        with path.open() as file:
            return Place(url, file.read().strip(), owner=os.fstat(file.fileno()).st_uid)
    except OSError as error:
        hint = f"set {TOKEN_VARIABLE}; the first one is in DATA-DIR/admin-token"
        return Place(url, hint=f"{hint} ({path}: {error.strerror})")


def _local(env: Mapping[str, str]) -> str:
    return f"http://127.0.0.1:{env.get('PADDOCK_SERVER__PORT', '') or _USUAL_PORT}"


def _file(env: Mapping[str, str]) -> Path:
    home = (
        env.get("XDG_CONFIG_HOME", "") or Path(env.get("HOME", "") or "~").expanduser() / ".config"
    )
    return Path(home) / FILE


def _kept(env: Mapping[str, str]) -> dict[str, str]:
    """What the user wrote down once; the token in it must be nobody else's to read."""
    path = _file(env)
    try:
        content = tomllib.loads(path.read_text())
        others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except OSError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} is not TOML: {error}", remediation="correct it") from error
    if unknown := set(content) - {"url", "token"}:
        raise InvalidRequest(
            f"{path} has {', '.join(sorted(unknown))}", remediation="it may have url and token"
        )
    if "token" in content and others:
        raise InvalidRequest(
            f"{path} holds a token and others can read it", remediation=f"chmod 600 {path}"
        )
    return {name: str(value) for name, value in content.items()}


def _checked(url: str) -> str:
    why = ""
    try:
        parts = urlsplit(url)
        has_more = parts.query or parts.fragment or url.split() != [url]
        if parts.port != 0 and parts.scheme in _SCHEMES and parts.hostname and not has_more:
            return url.rstrip("/")
    except ValueError as error:
        why = f": {error}"
    raise InvalidRequest(
        f"{url!r} is no server's address{why}", remediation="write it as http://127.0.0.1:7070"
    )
