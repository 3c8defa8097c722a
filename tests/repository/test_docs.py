"""The documentation is complete, fresh, and points at things that exist."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields

import pytest

from paddock.domain.reason import Reason
from paddock.domain.sandbox import SandboxState
from paddock.interfaces.cli.app import run as run_command_line
from paddock.ports.provider import Capabilities, Isolation, PauseKind, SandboxSpec
from paddock.settings import keys as setting_keys
from tests.repository.checkout import (
    ROOT,
    markdown_files,
    parsed,
    python_files,
    relative,
    without_code,
)
from tests.repository.test_fix_lines import objection

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    """The anchor that a heading gets on the usual forges."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return kept.replace(" ", "-")


def anchors(markdown: str) -> set[str]:
    prose = re.sub(r"^```.*?^```", "", markdown, flags=re.M | re.S)
    named = re.findall(r'<a id="([^"]+)"></a>', prose)
    return {*named, *(slug(heading) for heading in re.findall(r"^#+ (.+)$", prose, re.M))}


def commands(markdown: str) -> list[str]:
    """The lines of shell blocks, without prompts, comments and output."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", markdown, re.M | re.S)
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
    return [re.split(r"\s+#", line)[0] for line in lines if line and not line.startswith("#")]


def test_generated_pages_are_fresh():
    command = [sys.executable, "scripts/docs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# The links of the capabilities page come from test runs; scripts/capabilities.py --check sees them.
LINKING = [page for page in markdown_files() if page.name != "capabilities.md"]


@pytest.mark.parametrize("page", LINKING, ids=relative)
def test_links_lead_somewhere(page):
    dead = []
    for groups in LINK.findall(without_code(page.read_text())):
        target = groups[0] or groups[1]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            dead.append(target)
    assert not dead


@pytest.mark.parametrize("page", markdown_files(), ids=relative)
def test_make_targets_in_the_docs_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    said = [*commands(page.read_text()), *re.findall(r"`([^`\n]+)`", page.read_text())]
    words = [line.split() for line in said if re.match(r"(\w+=\S+ )*make ", line)]
    named = {word for line in words for word in line if re.fullmatch(r"[a-z-]+", word)} - {"make"}
    assert named <= targets


def paddock_commands() -> set[tuple[str, ...]]:
    """The words of every `paddock …` that people are told to type, before options and values."""
    found = set()
    for page in markdown_files():
        said = [*commands(page.read_text()), *re.findall(r"`([^`\n]+)`", page.read_text())]
        for line in said:
            match = re.match(r"(?:\.venv/bin/)?paddock((?: [a-z][a-z0-9-]*)*)", line)
            if match and line.split()[0] in ("paddock", ".venv/bin/paddock"):
                found.add(tuple(shlex.split(match[1])))
    return found


@pytest.mark.parametrize("words", sorted(paddock_commands()), ids=" ".join)
def test_commands_in_the_docs_exist(words, capsys):
    assert run_command_line(no_toolbox, [*words, "--help"]) == 0, capsys.readouterr().err
    usage = re.match(r"Usage: paddock((?: [a-z][a-z0-9-]*)*)", capsys.readouterr().out)
    assert usage
    command = tuple(usage[1].split())
    assert command == words[: len(command)]
    assert command or not words


def no_toolbox(*_):
    raise AssertionError("--help needs no provider")


@pytest.mark.parametrize("page", markdown_files(), ids=relative)
def test_python_in_the_docs_imports_what_exists(page):
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        if not re.search(r"^(from|import) ", block, re.M):
            continue
        tree = compile(
            block, relative(page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("page", markdown_files(), ids=relative)
def test_every_page_has_one_title(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    assert len(re.findall(r"^# ", prose, re.M)) == 1


def test_every_page_can_be_found_from_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    missing = {page for page in pages - {"README.md"} if f"({page})" not in index}
    assert not {page for page in missing if not page.startswith("adr/")}


def test_the_changelog_has_a_place_for_what_comes_next():
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("states", list(Reason)),
        ("states", list(SandboxState)),
        ("provider-port", [field.name for field in fields(Capabilities)]),
        ("provider-port", [field.name for field in fields(SandboxSpec)]),
        ("provider-port", [*Isolation, *PauseKind]),
        ("settings", [key for key, _ in setting_keys()]),
    ],
    ids=["reasons", "states", "capabilities", "spec", "kinds", "settings"],
)
def test_nothing_is_undocumented(page, words):
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    assert not [word for word in words if f"| `{word}` |" not in text]


def guest_methods() -> set[str]:
    """The last part of every path that the guest answers to, from its modules' tables."""
    tables = [
        function
        for path in python_files("src/paddock/guest")
        for function in parsed(path).body
        if isinstance(function, ast.FunctionDef) and function.name == "methods"
    ]
    words = {
        key.value
        for table in tables
        for node in ast.walk(table)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    return {word.split("/")[-1] for word in words if word[0].isupper()}


def test_every_method_of_the_guest_is_in_its_protocol():
    page = (ROOT / "docs" / "reference" / "guest-protocol.md").read_text()
    missing = {name for name in guest_methods() if not re.search(rf"`(\w+ /)?{name}`", page)}
    assert guest_methods()
    assert not missing


def test_every_dependency_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    own, development = project["project"], project["dependency-groups"]["dev"]
    extras = [name for names in own["optional-dependencies"].values() for name in names]
    wanted = {*own["dependencies"], *extras, *development} - {"paddock-sandbox[otel]"}
    page = (ROOT / "docs" / "explanation" / "dependencies.md").read_text()
    names = [re.split(r"[<>=!~\[; ]", line)[0] for line in wanted]
    assert not [name for name in names if f"`{name}`" not in page]


def block_commands() -> list[str]:
    """Every `paddock …` in a shell block, without what surrounds it in its line."""
    found = set()
    for page in markdown_files():
        for line in commands(page.read_text()):
            for part in re.split(r"\s*(?:\|\||&&|[|;])\s*|\$\(", _unquoted(line)):
                if re.match(r"(?:\S+=\S* )*(?:\.venv/bin/)?paddock [a-z]", part):
                    found.add(re.sub(r"^.*?paddock ", "paddock ", part).rstrip(')"\\ '))
    return sorted(found)


def _unquoted(line: str) -> str:
    """With what is quoted as one harmless word: it belongs to another program."""
    return re.sub(r"\s*[<>]\s*\S+", "", re.sub(r"'[^']*'|\"[^\"$]*\"", "QUOTED", line))


@pytest.mark.parametrize("code", block_commands())
def test_commands_in_shell_blocks_take_their_options(code):
    assert objection(code) == ""
