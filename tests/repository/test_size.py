"""The tail of our sizes: most things are small; what is not stands in a list that only shrinks."""

import ast
import textwrap
import tomllib
from pathlib import Path

import pytest

from tests.repository.checkout import ROOT, python_files
from tests.repository.sizes import LIMITS, _nesting, measure, port_methods

EXCEPTIONS = tomllib.loads((Path(__file__).parent / "size_exceptions.toml").read_text())


@pytest.fixture(scope="module")
def tail() -> dict[str, dict[str, int]]:
    """What exceeds a limit, by rule and name."""
    ports = [names for path in python_files("src/paddock/ports") for names in port_methods(path)]
    found: dict[str, dict[str, int]] = {rule: {} for rule in LIMITS}
    for path in python_files("src", "scripts", "bench"):
        is_port = path.is_relative_to(ROOT / "src" / "paddock" / "ports")
        for size in measure(path, ports):
            if size.value > LIMITS[size.rule] and not (is_port and size.rule == "public methods"):
                found[size.rule][size.name] = size.value
    return found


@pytest.mark.parametrize("rule", LIMITS)
def test_nothing_new_is_too_large(tail, rule):
    allowed = EXCEPTIONS.get(rule, {})
    grown = {name: size for name, size in tail[rule].items() if size > allowed.get(name, 0)}
    lines = "".join(f'\n"{name}" = {size}' for name, size in grown.items())
    assert not grown, (
        f"more than {LIMITS[rule]} {rule}: make it smaller, not the list longer{lines}"
    )


@pytest.mark.parametrize("rule", LIMITS)
def test_the_list_of_exceptions_only_shrinks(tail, rule):
    needless = set(EXCEPTIONS.get(rule, {})) - set(tail[rule])
    assert not needless, "small enough by now, or gone: take it out of size_exceptions.toml"


def test_every_exception_belongs_to_a_rule():
    assert set(EXCEPTIONS) <= set(LIMITS)


@pytest.mark.parametrize(
    ("code", "depth"),
    [
        ("pass", 0),
        ("if a:\n  b", 1),
        ("if a:\n  b\nelif c:\n  d\nelif e:\n  f\nelse:\n  g", 1),
        ("if a:\n  b\nelse:\n  for c in d:\n    e", 2),
        ("with a:\n  try:\n    b\n  except C:\n    while d:\n      e", 3),
        ("def inner():\n  if a:\n    if b:\n      c", 0),
    ],
)
def test_nesting_counts_blocks_within_blocks(code, depth):
    assert _nesting(ast.parse(textwrap.dedent(code)).body) == depth
