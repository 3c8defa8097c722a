"""A release is one version everywhere: package, metadata, API document, changelog."""

import json
import re
import tomllib

import paddock
from paddock.interfaces.cli import updates
from tests.repository.checkout import ROOT, markdown_files, python_files

VERSION = paddock.__version__
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    document = json.loads((ROOT / "docs/reference/openapi.json").read_text())
    assert project["version"] == document["info"]["version"] == VERSION


def test_the_changelog_begins_with_what_is_to_come_and_goes_down_from_this_version():
    headings = _HEADING.findall((ROOT / "CHANGELOG.md").read_text())
    names = [name for name, _ in headings]
    assert names[0] == "Unreleased"
    released = [tuple(map(int, name.split("."))) for name in names[1:]]
    assert released == sorted(released, reverse=True)
    assert all(day for _, day in headings[1:]), "a release has its day"
    current = tuple(map(int, VERSION.split(".")))
    assert not released or released[0] <= current <= (*released[0][:2], released[0][2] + 1)


def test_every_advice_to_install_names_our_distribution_and_no_strangers():
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    advice = re.compile(r"(?:pip|pipx|uv tool|uv pip) install '?(paddock[\w-]*)|`(paddock[\w-]*)\[")
    pages = [*markdown_files(), *python_files("src/paddock"), ROOT / "README.md"]
    changes = ROOT / "CHANGELOG.md"
    named = {
        "".join(groups)
        for page in pages
        if page != changes
        for groups in advice.findall(page.read_text())
    }
    assert name != "paddock", "on PyPI that is another project"
    assert named == {name}


def test_the_update_check_asks_for_our_distribution():
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    assert name == updates.DISTRIBUTION
