"""Commands that messages tell people to run: each one exists and takes the options it is given."""

import ast
import json
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from paddock.interfaces.cli.app import Lazy, cli
from tests.repository.checkout import ROOT, parsed, python_files

_FILLED = "…"
"""Stands for what a message fills in."""


def messages() -> Iterator[str]:
    """Every text in the package that is no docstring."""
    for path in python_files("src/paddock"):
        tree = parsed(path)
        skipped = {
            id(part)
            for node in ast.walk(tree)
            for part in (node.values if isinstance(node, ast.JoinedStr) else ())
        }
        skipped |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) not in skipped and (text := _text(node)):
                yield text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else _FILLED for part in node.values
    )


def quoted() -> set[str]:
    return {code for text in messages() for code in re.findall(r"`([^`\n]+)`", text)}


def paddock_commands() -> list[str]:
    return sorted(code for code in quoted() if re.match(r"paddock [a-z]", code))


def objection(code: str) -> str:
    """Why `paddock …` would be refused before it does anything; empty when it would not."""
    words = shlex.split(re.sub(rf" --{_FILLED} \S+", "", code))[1:]
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        with click.Context(command) as context:
            found = command.get_command(context, words[0])
        if found is None:
            return f"{command.name} has no command {words[0]}"
        command = found.load() if isinstance(found, Lazy) else found
        words = words[1:]
    return _objection_to(command, words) if words else ""


def _objection_to(command: click.Command, words: list[str]) -> str:
    """As the command itself would say it, without running anything."""
    with click.Context(command, **command.context_settings) as context:
        try:
            values, extra, _ = command.make_parser(context).parse_args(list(words))
        except click.NoSuchOption as error:
            return f"{command.name} has no option {error.option_name}"
        except click.UsageError as error:
            return f"{command.name}: {error.message}"
        needed = [
            param.human_readable_name
            for param in command.get_params(context)
            if isinstance(param, click.Argument) and param.required and not values.get(param.name)
        ]
    if extra or needed:
        return f"{command.name} has too much ({extra}) or lacks {needed}"
    return ""


def test_a_command_that_does_not_exist_is_found():
    assert objection("paddock nonesuch") == "cli has no command nonesuch"
    assert objection("paddock policy --sandbox") == "policy has no option --sandbox"
    assert objection("paddock exec -t NAME -- bash --norc") == ""
    assert len(paddock_commands()) > 50


@pytest.mark.parametrize("code", paddock_commands())
def test_a_command_in_a_message_exists_with_its_options(code):
    assert objection(code) == ""


def test_a_route_in_a_message_exists():
    document = json.loads((ROOT / "docs/reference/openapi.json").read_text())
    routes = [
        re.compile(re.sub(r"\{\w+\}", "[^/]+", f"{verb.upper()} {path}"))
        for path, verbs in document["paths"].items()
        for verb in verbs
    ]
    named = {code for code in quoted() if re.match(r"(GET|PUT|POST|PATCH|DELETE) /v1", code)}
    assert not [code for code in named if not any(route.fullmatch(code) for route in routes)]


def test_a_fix_for_people_names_no_bare_option():
    """`--provider docker` alone cannot be pasted, and not every command has it."""
    bare = {code for code in quoted() if re.match(r"--[a-z-]+ [a-z]", code)}
    assert bare == set()
