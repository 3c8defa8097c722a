"""Login shells: version managers' functions, and nothing of what profile files do otherwise."""

import asyncio
import os

import pytest

from paddock.adapters.providers.local.provider import LocalProvider
from paddock.services.shells import asked_for, login
from paddock.wiring.providers import layered
from tests.control_plane import disposable
from tests.engines import local_config
from tests.interfaces.api.test_terminal import terminal

# As its installer does it: at the end of a file whose first lines turn away who is not interactive.
INSTALL = """
cat >> ~/.bashrc <<'END'
echo a greeting; echo a complaint >&2; read -r swallowed
nvm() { echo "nvm $#: $*"; cat; [ "$1" != fail ] || return 9; }
export FROM_BASHRC=yes PATH=$HOME/.nvm/bin:$PATH
END
mkdir -p ~/.nvm/bin && printf '#!/bin/sh\\necho node of nvm\\n' > ~/.nvm/bin/node
chmod +x ~/.nvm/bin/node
"""


@pytest.fixture(scope="module")
async def plane(need):
    if os.geteuid() != 0:
        need("root", "the local provider makes namespaces and mounts")
    provider = await LocalProvider.open(local_config())
    await provider.prepare("base")
    async with disposable(provider=lambda _: layered(provider)) as made:
        yield made


@pytest.fixture(scope="module")
async def box(plane):
    made = (await plane.admin.post("/v1/sandboxes", {})).body
    ran = await plane.admin.post(
        f"/v1/sandboxes/{made['id']}/exec", {"cmd": ["sh", "-ec", INSTALL]}
    )
    assert (ran["exit_code"], ran["stderr"]) == (0, "")
    return made


async def run(plane, box, cmd, **more):
    ran = await plane.admin.post(
        f"/v1/sandboxes/{box['id']}/exec", {"cmd": cmd, "login": True, **more}
    )
    assert ran.status == 200, ran.body
    return ran["exit_code"], ran["stdout"], ran["stderr"]


@pytest.mark.proves("E11")
async def test_a_function_of_bashrc_is_a_command_and_its_arguments_are_untouched(plane, box):
    words = ["nvm", "use", "*", "$(id) 'q'\n"]
    assert await run(plane, box, words, stdin="input\n") == (
        0,
        "nvm 3: use * $(id) 'q'\n\ninput\n",
        "",
    )
    assert (await run(plane, box, ["nvm", "fail"]))[0] == 9
    plain = await plane.admin.post(f"/v1/sandboxes/{box['id']}/exec", {"cmd": ["nvm", "use"]})
    assert plain.status == 400 or plain["exit_code"] == 127


@pytest.mark.proves("E11")
@pytest.mark.parametrize("shell", [["sh", "-c"], ["bash", "-lc"], ["/bin/bash", "-c"]], ids=str)
async def test_a_script_for_a_shell_is_run_by_the_login_shell(plane, box, shell):
    script = "nvm use 20 </dev/null && echo $FROM_BASHRC; exit 4"
    assert await run(plane, box, [*shell, script]) == (4, "nvm 2: use 20\nyes\n", "")


@pytest.mark.proves("E11")
async def test_a_program_found_by_the_profile_runs_with_its_input_and_code(plane, box):
    assert await run(plane, box, ["node"]) == (0, "node of nvm\n", "")
    assert await run(plane, box, ["cat"], stdin="whole\ninput\n") == (0, "whole\ninput\n", "")
    code, out, err = await run(plane, box, ["no-such-program"])
    assert (code, out, "not found" in err) == (127, "", True)


async def test_what_was_set_of_the_path_stays_behind_what_the_profile_adds(plane, box):
    mine = "/opt/mine:/usr/bin:/bin"
    _, out, _ = await run(plane, box, ["printenv", "PATH"], env={"PATH": mine})
    added, _, rest = out.strip().partition(f":{mine}")
    assert "/home/user/.nvm/bin" in added.split(":")
    assert rest == ""
    assert (await run(plane, box, ["printenv", "PADDOCK_PATH"]))[0] == 1


async def test_sigterm_ends_it_whether_it_is_a_program_or_a_function(plane, box):
    path = f"/v1/sandboxes/{box['id']}/commands"
    for cmd in (["sleep", "100"], ["sh", "-c", "f() { sleep 100; }; f; echo never"]):
        started = await plane.admin.post(path, {"cmd": cmd, "login": True})
        assert started["cmd"] == cmd
        await asyncio.sleep(0.5)
        async with asyncio.timeout(10):
            await plane.admin.post(f"{path}/{started['id']}/kill?grace_s=30")
            while (ended := await plane.admin.get(f"{path}/{started['id']}"))["ended_at"] is None:
                await asyncio.sleep(0.05)
        assert ended["exit_code"] in (143, -15), cmd


@pytest.mark.proves("E11", "E5")
async def test_a_terminal_has_the_functions_too(plane, box):
    async with terminal(plane, box) as screen:
        await screen.shows(b"a greeting")
        await screen.socket.send_bytes(b"\nnvm ls </dev/null; exit 6\n")
        await screen.shows(b"nvm 1: ls")
        assert (await screen.tells("exit"))["exit_code"] == 6


def test_what_was_asked_for_is_what_is_shown():
    for words in (("nvm", "use"), ("a",), ("sh", "-c", "x y", "sh")):
        assert asked_for(login(words)) == words
    assert asked_for(login(("bash", "-lc", "x && y"))) == ("sh", "-c", "x && y")
    assert asked_for(("/bin/sh", "-c", "x")) == ("/bin/sh", "-c", "x")
