"""What could not be removed is named, and changes the exit code, whatever the command did."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paddock.domain.errors import Unavailable
from paddock.interfaces.cli.app import run
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.toolbox import Opened, Progress, Recipes, Report, Toolbox
from paddock.ports.provider import Ref
from paddock.testing.reference import TEMPLATE, ReferenceProvider


class Stubborn(ReferenceProvider):
    """Refuses to remove anything until it is told to give in."""

    gives_in = False

    async def destroy(self, ref: Ref) -> None:
        if not self.gives_in:
            raise Unavailable("the disk is on fire", remediation="put it out")
        await super().destroy(ref)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Stubborn]:
    provider = Stubborn(tmp_path)
    yield provider
    provider.gives_in = True

    async def clear() -> None:
        async for seen in provider.find({}):
            await provider.destroy(seen.ref)

    run_async(clear())


def paddock(provider: ReferenceProvider, *arguments: str) -> int:
    """The command line in this process, on a provider that wiring does not know."""

    @asynccontextmanager
    async def opened(_wish: str, _progress: Progress) -> AsyncIterator[Opened]:
        async def nothing(_template: str) -> None:
            return None

        yield Opened(provider, prepare=nothing)

    async def inspect(_wish: str) -> Report:
        raise AssertionError("nobody asked")

    async def conform(*_: object) -> None:
        raise AssertionError("nobody asked")

    async def serve(*_: object) -> None:
        raise AssertionError("nobody asked")

    async def recipes(_wish: str) -> Recipes:
        raise AssertionError("nobody asked")

    tools = Toolbox(opened, inspect, conform, serve, recipes, recipes)
    return run(lambda *_: tools, arguments)


@pytest.mark.proves("L14", "C9")
@pytest.mark.parametrize("code", [0, 5])
def test_a_sandbox_that_cannot_be_removed_is_named_and_the_exit_code_is_1(stubborn, capfd, code):
    command = ("--", "sh", "-c", f"echo out; exit {code}")
    assert paddock(stubborn, "sandbox", "run", "--template", TEMPLATE, *command) == 1
    said = capfd.readouterr()
    assert said.out == "out\n"
    found = re.fullmatch(
        r"error: sandbox (reference/\S+) was not removed: the disk is on fire\n"
        r"  fix: paddock sandbox rm (reference/\S+)\n",
        said.err,
    )
    assert found
    assert found[1] == found[2]


@pytest.mark.proves("C4", "C5")
def test_json_says_the_same_with_the_same_code(stubborn, capfd):
    asked = ("sandbox", "run", "-o", "json", "--template", TEMPLATE, "--", "true")
    assert paddock(stubborn, *asked) == 1
    said = capfd.readouterr()
    assert said.out == ""
    error = json.loads(said.err)["error"]
    assert "was not removed: the disk is on fire" in error["message"]
    assert error["remediation"].startswith("paddock sandbox rm reference/")


def test_what_is_kept_on_purpose_is_no_failure(stubborn, capfd):
    asked = ("sandbox", "run", "--keep", "--template", TEMPLATE, "--", "true")
    assert paddock(stubborn, *asked) == 0
    assert capfd.readouterr().err.startswith("kept reference/")


def test_a_provider_without_templates_of_its_own_says_so(stubborn, capfd):
    assert paddock(stubborn, "template", "list") == 1
    assert "provider reference keeps no templates of its own" in capfd.readouterr().err
