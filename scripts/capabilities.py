"""Write docs/reference/capabilities.md: what Paddock can do, and a test that shows it.

The capabilities come from capabilities.toml. The proofs come from the last complete test runs,
whose results the test runner writes to build/results.
"""

import argparse
import enum
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
RESULTS = ROOT / "build" / "results"
TIERS = {"test": "make test", "slow": "make test-slow", "soak": "make soak"}
NOT_YET = "not yet"
ROW = re.compile(r"^\| ([A-Z]\d+) \| .* \| (\[.*|–) \|$", re.M)

Results = Mapping[str, Mapping[str, Any]]
"""By test: its `outcome` (passed, failed or missing), and the capabilities that it `proves`."""


@dataclass(frozen=True, slots=True)
class Capability:
    """A capability of capabilities.toml."""

    id: str
    area: str
    name: str
    missing: str
    """What is still missing, if the capability is partial."""


@dataclass(slots=True)
class Proofs:
    """What the last runs say about one capability. A test counts without its parameters."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    """Components that tests need and the machine lacks."""


def read_capabilities() -> list[Capability]:
    data = tomllib.loads((REFERENCE / "capabilities.toml").read_text())
    return [
        Capability(identifier, area["title"], name, "".join(missing))
        for area in data["area"]
        for identifier, (name, _, *missing) in area["capabilities"].items()
    ]


def read_results(tier: str) -> Results | None:
    """None if the tier was never run completely."""
    path = RESULTS / f"{tier}.json"
    return json.loads(path.read_text()) if path.exists() else None


def collect_proofs(results: Results) -> dict[str, Proofs]:
    proofs: dict[str, Proofs] = defaultdict(Proofs)
    for name, result in results.items():
        for identifier in result["proves"]:
            proof = proofs[identifier]
            if result["outcome"] == "missing":
                proof.missing.add(result["missing"])
            else:
                tests = proof.passed if result["outcome"] == "passed" else proof.failed
                tests.add(name.partition("[")[0])
    for proof in proofs.values():
        proof.passed -= proof.failed  # one set of parameters that fails is a failure
    return proofs


def read_page(page: str) -> dict[str, str]:
    """Return the page's link to a test, by capability; empty if no test shows it yet."""
    return {identifier: link.strip("–") for identifier, link in ROW.findall(page)}


def choose_links(proofs: Mapping[str, Proofs], page: Mapping[str, str]) -> dict[str, str]:
    """Choose a passed test for each capability. A link of the page stays while its test passes."""
    shows = Counter(test for proof in proofs.values() for test in proof.passed)
    links = {}
    for identifier, proof in proofs.items():
        if proof.passed:
            # A test that shows few capabilities says most about each of them.
            best = min(proof.passed, key=lambda test: (shows[test], test))
            current = page.get(identifier, "")
            is_valid = current in {link_to(test) for test in proof.passed}
            links[identifier] = current if is_valid else link_to(best)
    return links


def link_to(test: str) -> str:
    path, *_, name = test.split("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../../{path})"


def render(rows: list[Capability], links: Mapping[str, str]) -> str:
    areas: dict[str, list[Capability]] = defaultdict(list)
    for row in rows:
        areas[row.area].append(row)
    status = {row.id: _status(row, links) for row in rows}
    lines = [
        "# Capabilities",
        "",
        "`make capabilities` writes this page from [capabilities.toml](capabilities.toml), which",
        "explains each capability, and from the last complete test runs. Do not edit it.",
        "",
        "- **proved**: a test that shows it ran and passed.",
        "- **partial**: tests show a part. The row says what is missing.",
        "- **not yet**: no test shows it.",
        "",
        "| area | proved | partial | not yet | of |",
        "|---|---|---|---|---|",
    ]
    for area, members in {**areas, "**all**": rows}.items():
        counts = Counter(status[row.id] for row in members)
        cells = (counts["proved"], counts["partial"], counts[NOT_YET], len(members))
        lines.append(f"| {area} | {' | '.join(map(str, cells))} |")
    for area, members in areas.items():
        lines += [
            "",
            f"## {area}",
            "",
            "| id | capability | status | a test |",
            "|---|---|---|---|",
        ]
        for row in members:
            shown = status[row.id]
            shown = f"partial: {row.missing}" if shown == "partial" else shown
            lines.append(f"| {row.id} | {row.name} | {shown} | {links.get(row.id, '–')} |")
    return "\n".join(lines) + "\n"


def _status(row: Capability, links: Mapping[str, str]) -> str:
    if row.id not in links:
        return NOT_YET
    return "partial" if row.missing else "proved"


class Kind(enum.Enum):
    """How the page differs from the last runs. Only a wrong claim is an error."""

    WRONG = "wrong"
    UNVERIFIED = "unverified"
    """The tests could not run here: a component is missing, or their tier was not run."""
    UNDERSTATED = "understated"


def compare(
    page: Mapping[str, str], proofs: Mapping[str, Proofs], *, complete: bool
) -> Iterator[tuple[Kind, str, str]]:
    """The differences: kind, capability and an explanation."""
    for identifier in sorted({*page, *proofs}):
        proof = proofs.get(identifier, Proofs())
        if page.get(identifier) and not proof.passed:
            if proof.failed:
                yield Kind.WRONG, identifier, f"failed: {', '.join(sorted(proof.failed))}"
            elif proof.missing or not complete:
                reasons = ", ".join(sorted(proof.missing)) or "its tier was not run"
                yield Kind.UNVERIFIED, identifier, f"not verified here: {reasons}"
            else:
                yield Kind.WRONG, identifier, "no test shows it any more"
        elif proof.passed and not page.get(identifier):
            test = min(proof.passed)
            yield Kind.UNDERSTATED, identifier, f"shown by {test}, but the page says not yet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    results = {tier: read_results(tier) for tier in TIERS}
    if results["test"] is None:
        sys.exit(f"There is no complete run of `{TIERS['test']}`. Run it first.")
    proofs = collect_proofs({n: r for tier in results.values() for n, r in (tier or {}).items()})
    path = REFERENCE / "capabilities.md"
    page = read_page(path.read_text()) if path.exists() else {}
    complete = all(each is not None for each in results.values())
    differences = list(compare(page, proofs, complete=complete))
    for kind, identifier, why in differences:
        if check or kind is Kind.UNVERIFIED:
            sys.stdout.write(f"{identifier}: {why}\n")
    if check:
        if any(kind is Kind.WRONG for kind, _, _ in differences):
            sys.exit("docs/reference/capabilities.md claims too much: run `make capabilities`.")
        return
    kept = {each: page[each] for kind, each, _ in differences if kind is Kind.UNVERIFIED}
    path.write_text(render(read_capabilities(), {**choose_links(proofs, page), **kept}))


if __name__ == "__main__":
    main()
