"""Write docs/reference/capabilities.md: what Paddock can do, and the tests that prove it.

The capabilities come from capabilities.toml, the proofs from a real collection of the tests: every
collected test that carries `@pytest.mark.proves("L1", ...)`, inherited and generated ones included.
"""

import argparse
import io
import sys
import tomllib
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
COUNT = 208
SHOWN_OPEN = 4
"""A cell with more proofs than this is folded."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One row of the page."""

    id: str
    area: str
    name: str
    means: str


@dataclass(frozen=True, slots=True, order=True)
class Proof:
    """A test, without its parameters."""

    test: str
    path: str
    group: str
    """The test's class, or nothing."""


class ProofCollector:
    """A pytest plugin that notes which collected test proves what."""

    def __init__(self) -> None:
        self.proofs: dict[str, set[Proof]] = defaultdict(set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if isinstance(item, pytest.Function):
                self._note(item)

    def _note(self, item: pytest.Function) -> None:
        path = item.path.relative_to(ROOT).as_posix()
        group = item.cls.__name__ if item.cls else ""
        proof = Proof(item.originalname, path, group)
        for marker in item.iter_markers("proves"):
            for identifier in marker.args:
                self.proofs[identifier].add(proof)


def read_capabilities(path: Path = REFERENCE / "capabilities.toml") -> list[Capability]:
    data = tomllib.loads(path.read_text())
    rows = [
        Capability(identifier, area["title"], name, means)
        for area in data["area"]
        for identifier, (name, means) in area["capabilities"].items()
    ]
    if len(rows) != COUNT:
        sys.exit(f"{path.name} has {len(rows)} capabilities; there are {COUNT}")
    return rows


def collect_proofs(tests: Path = ROOT / "tests") -> dict[str, set[Proof]]:
    """Collect the tests as pytest would run them, slow ones too."""
    collector = ProofCollector()
    said = io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", str(tests)]
    with redirect_stdout(said):
        code = pytest.main(arguments, plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        fault = said.getvalue().partition("= ERRORS =")[2] or said.getvalue()
        sys.exit(f"{fault}\nthe tests could not be collected, so nothing was written")
    return collector.proofs


def check_ids(rows: list[Capability], proofs: dict[str, set[Proof]]) -> None:
    """Stop when a test claims to prove something that does not exist."""
    unknown = sorted(set(proofs) - {row.id for row in rows})
    if not unknown:
        return
    claims = [f"  {i!r} in {p.path}::{p.test}" for i in unknown for p in sorted(proofs[i])]
    sys.exit("unknown capability ids in @pytest.mark.proves:\n" + "\n".join(claims))


def render_proofs(proofs: set[Proof]) -> str:
    if not proofs:
        return "not yet"
    by_test: dict[str, list[Proof]] = defaultdict(list)
    for proof in sorted(proofs):
        by_test[proof.test].append(proof)
    cells = [_render_test(test, group) for test, group in by_test.items()]
    if len(cells) <= SHOWN_OPEN:
        return "<br>".join(cells)
    return f"<details><summary>{len(cells)} tests</summary>{'<br>'.join(cells)}</details>"


def _render_test(test: str, proofs: list[Proof]) -> str:
    name = test.removeprefix("test_").replace("_", " ")
    if len(proofs) == 1:
        return f"[{name}](../../{proofs[0].path})"
    places = ", ".join(f"[{p.group or Path(p.path).stem}](../../{p.path})" for p in proofs)
    return f"{name} ({places})"


def render(rows: list[Capability], proofs: dict[str, set[Proof]]) -> str:
    areas: dict[str, list[Capability]] = defaultdict(list)
    for row in rows:
        areas[row.area].append(row)
    proved = sum(1 for row in rows if proofs.get(row.id))
    lines = [
        "# Capabilities",
        "",
        "Written by `make capabilities` from [capabilities.toml](capabilities.toml) and from the",
        "tests that carry `@pytest.mark.proves(...)`. Do not edit it; a test compares.",
        "",
        f"**{proved} of {len(rows)}** have at least one proving test.",
        "",
        "| area | proved | of |",
        "|---|---|---|",
    ]
    for area, members in areas.items():
        done = sum(1 for row in members if proofs.get(row.id))
        lines.append(f"| {area} | {done} | {len(members)} |")
    for area, members in areas.items():
        lines += ["", f"## {area}", "", "| id | capability | what it means | proved by |"]
        lines.append("|---|---|---|---|")
        for row in members:
            cells = (row.id, row.name, row.means, render_proofs(proofs.get(row.id, set())))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    rows, proofs = read_capabilities(), collect_proofs()
    check_ids(rows, proofs)
    page, text = REFERENCE / "capabilities.md", render(rows, proofs)
    if not arguments.check:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        sys.exit("docs/reference/capabilities.md is out of date: run make capabilities")


if __name__ == "__main__":
    main()
