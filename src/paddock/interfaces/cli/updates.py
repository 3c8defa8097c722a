"""Whether there is a newer release: looked up where somebody said to look, and nowhere else."""

import asyncio
import configparser
import hashlib
import json
import os
import re
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from paddock import __version__
from paddock.domain.errors import Broken, InvalidRequest, PaddockError, Unavailable

ENVIRONMENT = "environment"
"""As the setting: the index that pip or uv is configured with."""
DISTRIBUTION = "paddock-sandbox"
"""The name of the distribution. On PyPI, `paddock` is a different project."""
_COMMAND = "paddock"
_FRESH_S = 86400.0
_DEADLINE_S = 5.0
_LARGEST = 8 << 20
_ACCEPT = "application/vnd.pypi.simple.v1+json"
_FINAL = re.compile(r"\d+(\.\d+)*")
_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")


def find_index(setting: str, environ: Mapping[str, str] = os.environ) -> str:
    """Where to look; InvalidRequest when nobody has said."""
    if setting and setting != ENVIRONMENT:
        return setting
    found = next((environ[name] for name in _VARIABLES if environ.get(name)), "")
    found = found or _of_pip(environ) or _of_uv(environ)
    if found:
        return found.rpartition("=")[2] if found.startswith(_COMMAND + "=") else found
    raise InvalidRequest(
        "no package index is known, so nobody can be asked for a newer version",
        remediation="set update_check_url, or PIP_INDEX_URL, to the address of an index",
    )


def _of_pip(environ: Mapping[str, str]) -> str:
    home = Path(environ.get("HOME", "~")).expanduser()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", Path("/etc/pip.conf")]
    if named := environ.get("PIP_CONFIG_FILE"):
        places.insert(0, Path(named))
    for place in places:
        parser = configparser.ConfigParser(interpolation=None)
        with suppress(OSError, configparser.Error, UnicodeDecodeError):
            parser.read_string(place.read_text())
            if found := parser.get("global", "index-url", fallback=""):
                return found
    return ""


def _of_uv(environ: Mapping[str, str]) -> str:
    home = Path(environ.get("HOME", "~")).expanduser()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    for place in (config / "uv" / "uv.toml", Path("/etc/uv/uv.toml")):
        with suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            content = tomllib.loads(place.read_text())
            named = [each for each in content.get("index", []) if each.get("default")]
            if found := content.get("index-url") or (named[0]["url"] if named else ""):
                return str(found)
    return ""


async def latest(index: str) -> str:
    """The newest final release that the index has (PEP 691), "" when it has none.

    Nothing of this installation goes there: not its version, not what it runs on.
    """
    place = f"{index.rstrip('/')}/{DISTRIBUTION}/"
    shown = urlsplit(index).hostname or "the index"
    headers = {"accept": _ACCEPT, "user-agent": _COMMAND}
    try:
        async with (
            asyncio.timeout(_DEADLINE_S),
            aiohttp.ClientSession(headers=headers) as session,
            session.get(place) as response,
        ):
            content = await response.content.read(_LARGEST)
            if response.status != 200:
                raise Unavailable(
                    f"{shown} answered {response.status} when asked for releases of {DISTRIBUTION}",
                    remediation="check update_check_url",
                )
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise Unavailable(
            f"{shown} could not be asked for releases: {type(error).__name__}",
            remediation="check update_check_url, or try again later",
        ) from error
    return _newest(content, shown)


def _newest(content: bytes, shown: str) -> str:
    try:
        listed: dict[str, Any] = json.loads(content)
        offered = [each for each in listed["files"] if not each.get("yanked")]
        # PEP 700 has a list of versions, which does not say what was withdrawn.
        versions = {_version_in(str(each["filename"])) for each in offered}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(
            f"{shown} does not answer as PEP 691 says: {type(error).__name__}",
            remediation="name an index that has the JSON form of the simple API",
        ) from error
    return max(versions - {""}, key=_order, default="")


def _version_in(filename: str) -> str:
    """Of a wheel or an sdist; only final releases count."""
    stem = re.sub(r"\.(whl|tar\.gz|zip)$", "", filename)
    parts = stem.split("-")
    found = parts[1] if len(parts) > 1 else ""
    return found if _FINAL.fullmatch(found) else ""


def _order(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def is_newer(found: str, current: str = __version__) -> bool:
    return bool(found) and bool(_FINAL.fullmatch(current)) and _order(found) > _order(current)


@asynccontextmanager
async def looking(
    setting: str, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[Callable[[], str]]:
    """While this is open it is looked up; `notice()` says what was found so far, and never waits.

    An empty setting asks nobody.
    """
    if not setting:
        yield lambda: ""
        return
    task = asyncio.create_task(_notice(setting, environ), name="update notice")
    try:
        yield lambda: task.result() if task.done() and not task.cancelled() else ""
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def tell(
    setting: str, say: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> None:
    """Say it when there is something to say, whenever that is known."""
    if setting and (found := await _notice(setting, environ)):
        say(found)


async def _notice(setting: str, environ: Mapping[str, str]) -> str:
    """At most once a day the index is asked, also when it did not answer."""
    try:
        index = find_index(setting, environ)
        cache = _cache(environ)
        found = _remembered(cache, index)
        if found is None:
            found = await _asked(index)
            _remember(cache, index, found)
    except (PaddockError, OSError):
        return ""
    return f"paddock {found} is out; this is {__version__}" if is_newer(found) else ""


async def _asked(index: str) -> str:
    try:
        return await latest(index)
    except PaddockError:
        return ""


def _cache(environ: Mapping[str, str]) -> Path:
    home = Path(environ.get("HOME", "~")).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "paddock" / "update.json"


def _remembered(cache: Path, index: str) -> str | None:
    try:
        kept = json.loads(cache.read_text())
        age_s = time.time() - float(kept["at"])
        fresh = 0 <= age_s < _FRESH_S and kept["index"] == _digest(index)
        return str(kept["latest"]) if fresh else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(cache: Path, index: str, found: str) -> None:
    cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = cache.with_suffix(f".{os.getpid()}")
    # Not the address: it may hold a password.
    fresh.write_text(json.dumps({"at": time.time(), "index": _digest(index), "latest": found}))
    fresh.rename(cache)


def _digest(index: str) -> str:
    return hashlib.sha256(index.encode()).hexdigest()
