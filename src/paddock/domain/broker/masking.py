"""Values taken out of what others tell, before it is kept."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, AnyStr

from paddock.domain.broker.forms import SHORTEST, forms, in_names
from paddock.domain.egress.names import normal

_TOKEN = 16
"""Of what is only taken for a secret because of where it stands, the least that is masked."""
_HEAD = 16
"""Of a value, what is searched for to find where it may begin."""
_TRIES = 32
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE", re.I)


class Mask:
    """Values that are not to be kept, in whatever form they come, and what stands for each."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._shown: dict[str, str] = {}
        for value, shown in (values or {}).items():
            for each in _usable(value):
                self._shown.update({form.decode("utf-8", "replace"): shown for form in forms(each)})
        self._needles = {
            form.encode("utf-8", "replace"): shown
            for form, shown in self._shown.items()
            if "\n" not in form  # lines are told one by one, and stay lines
        }

    def __bool__(self) -> bool:
        return bool(self._shown)

    def plus(self, values: Mapping[str, str]) -> "Mask":
        """With these as well."""
        made = Mask(values)
        made._shown = {**self._shown, **made._shown}
        made._needles = {**self._needles, **made._needles}
        return made

    def raw(self, data: bytes) -> bytes:
        """Of the same length; the very same where there is nothing in it."""
        # Most of what is told holds nothing, and a plain search is ten times as fast as any other.
        there = [needle for needle in self._needles if needle in data]
        if not there:
            return data

        def fitted(hit: "re.Match[bytes]") -> bytes:
            size = len(hit[0])
            return self._needles[hit[0]].encode()[:size].ljust(size, b"*")

        return re.sub(b"|".join(map(re.escape, _longest_first(there))), fitted, data)

    def told(self, data: Any) -> Any:
        """Of whatever is in it, names included."""
        return _masked(data, self) if self._shown else data

    def text(self, said: str) -> str:
        there = [form for form in self._shown if form in said]
        if not there:
            return said
        # All at once: of a value that begins with another nothing is left over, and what stands
        # for one is not looked into for the next.
        found = "|".join(map(re.escape, _longest_first(there)))
        return re.sub(found, lambda hit: self._shown[hit[0]], said)

    def beginning_at_end(self, data: bytes) -> int:
        """How many of the last bytes could be the beginning of a value."""
        return max((_begun(needle, data) for needle in self._needles), default=0)


NO_MASK = Mask()


class NameMask:
    """The same for the names of hosts, where a program may write a value in small letters, and
    take it apart: a label has 63 characters, and neither slashes nor dots."""

    def __init__(self, values: Mapping[str, str], guessed: Mapping[str, str] | None = None) -> None:
        """Of what is only `guessed` to be secret, the name of a host is what it looks like."""
        hosts = {each for each in (guessed or {}).items() if _is_host(each[0])}
        self._shown = {
            form: shown
            for value, shown in values.items()
            if (value, shown) not in hosts
            for each in _usable(value)
            for form in in_names(each)
        }

    def text(self, said: str) -> str:
        """The very same where there is nothing in it."""
        places = [at for at, each in enumerate(said) if each.isascii() and each.isalnum()]
        plain = "".join(said[at] for at in places).lower()
        there = [form for form in self._shown if form in plain]
        if not there:
            return said
        parts, end = [], 0
        for hit in re.finditer("|".join(_longest_first(there)), plain):
            parts += [said[end : places[hit.start()]], self._shown[hit[0]]]
            end = places[hit.end() - 1] + 1
        return "".join(parts) + said[end:]


def _is_host(value: str) -> bool:
    """A plain name with dots, as in `KEYCLOAK_HOST=keycloak.example.com`."""
    _, dot, last = value.rpartition(".")
    return bool(dot) and value.isascii() and last.isalpha() and normal(value) == value


def masked(told: Any, values: Mapping[str, str]) -> Any:
    """The same with every value exchanged for what stands for it, keys included."""
    return Mask(values).told(told)


def secret_values(env: Mapping[str, str]) -> dict[str, str]:
    """Of variables, those that are called like secrets, each with its name in brackets."""
    return {
        value: f"({name})"
        for name, value in env.items()
        if _SECRET_NAME.search(name) and len(value) >= _TOKEN
    }


def strings_in(data: bytes) -> Iterator[str]:
    """Of a file that a log-in made: everything in it that could open something."""
    try:
        found = json.loads(data)
    except ValueError:
        return
    yield from (each for each in _strings(found) if len(each) >= _TOKEN and " " not in each)


def _strings(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, Mapping):
        for each in found.values():
            yield from _strings(each)
    elif isinstance(found, list):
        for each in found:
            yield from _strings(each)


def _longest_first(found: list[AnyStr]) -> list[AnyStr]:
    return sorted(found, key=len, reverse=True)


def _begun(needle: bytes, data: bytes) -> int:
    """How many of the last bytes are the beginning of this one.

    Of a value that repeats itself it may be more than are: to hold back too much does no harm, and
    to compare everywhere would take the square of its length.
    """
    head = needle[:_HEAD]
    tail = data[max(0, len(data) - len(needle) + 1) :]
    at = tail.find(head)
    for _ in range(_TRIES):
        if at < 0 or needle.startswith(tail[at:]):
            break
        at = tail.find(head, at + 1)
    if at >= 0:
        return len(tail) - at
    sizes = range(min(len(head) - 1, len(tail)), 0, -1)
    return next((size for size in sizes if tail.endswith(head[:size])), 0)


def _usable(value: str) -> Iterator[bytes]:
    """Of one with several lines each that is long enough, too: lines are told one by one."""
    if len(value) < SHORTEST:
        return
    lines = value.splitlines()
    yield value.encode("utf-8", "replace")
    if len(lines) > 1:
        yield from (line.encode("utf-8", "replace") for line in lines if len(line) >= _TOKEN)


def _masked(told: Any, mask: Mask) -> Any:
    if isinstance(told, str):
        return mask.text(told)
    if isinstance(told, Mapping):
        return {_masked(key, mask): _masked(each, mask) for key, each in told.items()}
    if isinstance(told, list | tuple):
        return [_masked(each, mask) for each in told]
    return told
