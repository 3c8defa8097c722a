"""The package sources that this host uses, as lines for a Debian of the same release."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

APT, RELEASE = Path("/etc/apt"), Path("/etc/os-release")


def of_host(suite: str, apt: Path = APT, release: Path = RELEASE) -> list[str]:
    """One-line entries; none when the host is something else, whose sources would not fit.

    Lines with a password in the address stay outside: sandboxes would see them.
    """
    if f"VERSION_CODENAME={suite}" not in _lines(release):
        return []
    entries: list[str] = []
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.list"))):
        entries += _one_line_entries(_lines(path), suite)
    for path in sorted((apt / "sources.list.d").glob("*.sources")):
        entries += _deb822_entries(_lines(path), suite)
    return list(dict.fromkeys(entries))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _one_line_entries(lines: list[str], suite: str) -> Iterator[str]:
    for line in lines:
        words = line.partition("#")[0].split()
        plain = line.partition("]")[2].split() if "[" in line else words[1:]
        if words[:1] == ["deb"] and len(plain) > 1 and _fits(plain[0], plain[1], suite):
            yield " ".join(words)


def _deb822_entries(lines: list[str], suite: str) -> Iterator[str]:
    for stanza in _stanzas(lines):
        if "deb" not in stanza.get("types", "").split() or stanza.get("enabled") == "no":
            continue
        key = stanza.get("signed-by", "")
        options = f"[signed-by={key}] " if key.startswith("/") and " " not in key else ""
        for address in stanza.get("uris", "").split():
            for name in stanza.get("suites", "").split():
                if _fits(address, name, suite):
                    yield f"deb {options}{address} {name} {stanza.get('components', '')}".strip()


def _stanzas(lines: list[str]) -> Iterator[dict[str, str]]:
    stanza: dict[str, str] = {}
    field = ""
    for line in [*lines, ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if stanza:
                yield stanza
            stanza, field = {}, ""
        elif line[0].isspace():
            stanza[field] = f"{stanza.get(field, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            field = name.strip().lower()
            stanza[field] = value.strip()


def _fits(address: str, name: str, suite: str) -> bool:
    belongs = name == suite or name.startswith(f"{suite}-")
    return belongs and "@" not in urlsplit(address).netloc
