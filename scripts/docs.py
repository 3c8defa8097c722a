"""Write the parts of the documentation that come from the code.

A page has the place `<!-- name:begin -->` … `<!-- name:end -->`; what stands between is replaced.
"""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import thresholds

from paddock.adapters.providers import registry
from paddock.domain import task
from paddock.domain.errors import PaddockError
from paddock.domain.sandbox import TRANSITIONS
from paddock.interfaces.api.app import describe
from paddock.interfaces.cli.app import Lazy, cli
from paddock.ports.provider import Capabilities, Provider

ROOT = Path(__file__).resolve().parents[1]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def states() -> str:
    return _machine(TRANSITIONS, "creating", "deleted", nearly_always=("failed", "deleting"))


def task_states() -> str:
    ends = ("failed", "cancelled")
    return _machine(task.TRANSITIONS, "pending", "completed", nearly_always=ends)


def _machine(
    moves: Mapping[Any, Iterable[str]], first: str, last: str, *, nearly_always: tuple[str, ...]
) -> str:
    """As a picture, without what can be said of nearly every state, and as a table with it."""
    arrows = [
        f"    {source} --> {target}"
        for source, targets in moves.items()
        for target in sorted(targets)
        if target not in nearly_always or source in nearly_always
    ]
    diagram = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *arrows]
    diagram += [f"    {last} --> [*]", "```"]
    rows = [(f"`{state}`", _codes(sorted(targets)) or "–") for state, targets in moves.items()]
    return "\n".join(diagram) + "\n\n" + table(("state", "can become"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def errors() -> str:
    rows = [
        (f"`{error.code}`", f"`{error.__name__}`", inspect.getdoc(error) or "", _again(error))
        for error in _tree(PaddockError)
    ]
    return table(("code", "error", "meaning", "try again?"), rows)


def _again(error: type[PaddockError]) -> str:
    return "yes" if error.retryable else "no"


def _tree(root: type[PaddockError]) -> list[type[PaddockError]]:
    return [root, *(error for child in root.__subclasses__() for error in _tree(child))]


def provider_methods() -> str:
    parts = [inspect.getdoc(Provider) or ""]
    for name, member in vars(Provider).items():
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        kind = "async def" if inspect.iscoroutinefunction(member) else "def"
        parts.append(f"### {name}\n\n```python\n{kind} {name}{_signature(member)}\n```")
        parts.append(inspect.getdoc(member) or "")
    return "\n\n".join(part for part in parts if part)


def _signature(method: Callable[..., object]) -> str:
    signature = _plain(str(inspect.signature(method)))
    return signature.replace("(self, ", "(").replace("(self)", "()")


def _plain(signature: str) -> str:
    """Names without their modules; `<Reason.USER: 'user'>` as it is written in the code."""
    signature = re.sub(r"<([\w.]+): [^>]*>", r"\1", signature)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", signature)


def providers() -> str:
    able = {name: _said_of(name) for name in registry.names()}
    return registry.capability_table(able).rstrip() if able else "*No provider is registered yet.*"


def _said_of(name: str) -> Capabilities:
    """What the class says it can do at best; a host may allow less, and `doctor` says so."""
    said = getattr(registry.load(name), "CAPABILITIES", None)
    if not isinstance(said, Capabilities):
        sys.exit(f"provider {name} has no CAPABILITIES on its class; the table needs them")
    return said


def command_line() -> str:
    parts = []
    for command, path in _commands(cli, "paddock"):
        context = click.Context(command, info_name=path, terminal_width=96)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts)


def _commands(command: click.Command, path: str) -> Iterator[tuple[click.Command, str]]:
    loaded = command.load() if isinstance(command, Lazy) else command
    if not isinstance(loaded, click.Group):
        yield loaded, path
        return
    for name, child in sorted(loaded.commands.items()):
        yield from _commands(child, f"{path} {name}")


def decisions() -> str:
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    titles = {page.name: page.read_text().split("\n", 1)[0].removeprefix("# ") for page in pages}
    pairs = [(name, *title.split(": ", 1)) for name, title in titles.items() if name[:4] != "0000"]
    return table(("", "decision"), [(f"[{number}]({name})", said) for name, number, said in pairs])


def limits() -> str:
    """Every threshold that callers meet, from the one constant that the code uses."""
    rows = [
        (f'<a id="{each.anchor}"></a>{each.says}', each.shown, f"`{each.place}`", each.changed)
        for each in thresholds.THRESHOLDS
    ]
    return table(("what", "value", "constant", "changed by"), rows)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "providers": ("README.md", providers),
    "states": ("docs/reference/states.md", states),
    "task-states": ("docs/reference/states.md", task_states),
    "errors": ("docs/reference/errors.md", errors),
    "commands": ("docs/reference/cli.md", command_line),
    "decisions": ("docs/adr/README.md", decisions),
    "methods": ("docs/reference/provider-port.md", provider_methods),
    "limits": ("docs/reference/limits.md", limits),
}


def replace_part(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if begin not in text or end not in text:
        sys.exit(f"the page has no place for {name!r}: {begin} … {end}")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n\n{content}\n\n{end}{rest.split(end, 1)[1]}"


def fresh_pages() -> dict[Path, str]:
    """Every page with generated parts, as it should be."""
    pages: dict[Path, str] = {}
    for name, (page, generate) in PARTS.items():
        path = ROOT / page
        pages[path] = replace_part(pages.get(path) or path.read_text(), name, generate())
    pages[ROOT / "docs/reference/openapi.json"] = openapi()
    return pages


def openapi() -> str:
    return json.dumps(describe(), indent=2, ensure_ascii=False) + "\n"


def _content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = {path: text for path, text in fresh_pages().items() if _content(path) != text}
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"out of date: {names}: run make docs")
    for path, text in stale.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
