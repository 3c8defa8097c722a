"""What README shows, done with the real programs against a real server on real sandboxes."""

import asyncio
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paddock import AsyncSandbox
from paddock import Server as Sdk
from tests.interfaces.cli.conftest import clean_environment
from tests.interfaces.cli.remote.conftest import PADDOCK, Cli, Screen, take_terminal
from tests.repository.checkout import ROOT
from tests.wiring_server import Server, server

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
async def plane(need):
    if os.geteuid() != 0:
        need("root", "the local provider makes namespaces and mounts")
    async with server() as made:
        yield made


def environment(plane: Server) -> dict[str, str]:
    token = (plane.data / "admin-token").read_text().strip()
    return clean_environment(PADDOCK_URL=plane.url, PADDOCK_TOKEN=token)


def section(title: str, language: str) -> str:
    page = (ROOT / "README.md").read_text()
    part = page.partition(f"### {title}\n")[2].partition("\n##")[0]
    match = re.search(rf"^```{language}\n(.*?)^```", part, re.M | re.S)
    assert match
    return match[1]


def shell(plane: Server, script: str, place: Path) -> subprocess.CompletedProcess[str]:
    """With `paddock` as a person has it in the PATH. A line of `paddock` alone needs no shell."""
    name, *arguments = shlex.split(script)
    is_plain = name == "paddock" and not re.search(r"[|&;<>$`*\n]", re.sub(r"'[^']*'", "", script))
    program = place / "paddock"
    program.write_text(f'#!/bin/sh\nexec {" ".join(PADDOCK)} "$@"\n')
    program.chmod(0o755)
    env = environment(plane)
    return subprocess.run(
        [*PADDOCK, *arguments] if is_plain else ["sh", "-ec", script],
        env={**env, "PATH": f"{place}:{env['PATH']}"},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.proves("C1")
async def test_what_readme_shows_on_the_command_line(plane, tmp_path):
    lines = section("From the command line", "sh").splitlines()
    said = {}
    for line in lines:
        done = await asyncio.to_thread(shell, plane, line, tmp_path)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        said[line] = done.stdout
    assert said[lines[0]] == "42\n"
    assert said["paddock create --name demo"] == "demo\n"
    assert (tmp_path / "note.txt").read_text() == "hello\n"
    assert [line.split()[0] for line in said["paddock ls"].splitlines()] == [
        "NAME",
        "demo-two",
        "demo",
    ]
    link = next(text for line, text in said.items() if "open" in line)
    assert link.startswith("http://8000-sbx-")
    left = await asyncio.to_thread(shell, plane, "paddock ls -q", tmp_path)
    assert left.stdout == ""


async def test_what_readme_shows_in_python(plane, tmp_path):
    script = tmp_path / "snippet.py"
    script.write_text(section("From Python", "python"))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, script],
        env=environment(plane),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("hello world\n\n['todo.txt']\n", "")


async def test_what_readme_shows_over_http(plane, tmp_path):
    first, *lines = section("Over HTTP", "sh").splitlines()
    first = first.replace("http://127.0.0.1:7070", plane.url)
    said = []
    for number, line in enumerate(lines):
        token = first.replace("my-laptop", f"my-laptop-{number}")
        done = await asyncio.to_thread(shell, plane, f"{token}\n{line}", tmp_path)
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    assert said[0]["state"] == "running"
    assert said[1]["stdout"] == "Linux\n"
    assert said[2]["state"] == "deleted"


def script(count: int) -> str:
    return f"""
i=0
while [ $i -lt {count} ]; do
    echo "line $i äöü"; i=$((i+1)); [ $((i % 10)) -ne 0 ] || sleep 0.01
done
echo end >&2; exit 7
"""


def whole(count: int) -> bytes:
    return "".join(f"line {number} äöü\n" for number in range(count)).encode()


@pytest.mark.proves("E12")
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.soak)])
async def test_a_stream_goes_on_after_the_server_was_killed_with_no_byte_lost_or_doubled(
    plane, kills
):
    token = (plane.data / "admin-token").read_text().strip()
    expected = whole(1000 * kills)
    async with Sdk(plane.url, token) as sdk, await AsyncSandbox.create(server=sdk) as box:
        command = await box.commands.start(["sh", "-c", script(1000 * kills)])
        said, killed = {"stdout": b"", "stderr": b""}, 0
        async for piece in command:
            assert piece.offset == len(said[piece.stream])
            said[piece.stream] += piece.data
            if killed < kills and len(said["stdout"]) > (killed + 1) * len(expected) // 5:
                killed += 1
                await plane.kill()
                await plane.start()
        assert killed == kills
        assert said == {"stdout": expected, "stderr": b"end\n"}
        assert (await command.wait()).exit_code == 7


@pytest.mark.proves("E12")
async def test_exec_on_the_command_line_survives_it_too(plane):
    cli = Cli(plane.url, (plane.data / "admin-token").read_text().strip())
    name = (await asyncio.to_thread(cli.text, "create")).strip()
    process = cli.start("exec", name, "--", "sh", "-c", script(1000), bufsize=0)
    assert await asyncio.to_thread(process.stdout.readline) == b"line 0 \xc3\xa4\xc3\xb6\xc3\xbc\n"
    await plane.kill()
    await asyncio.sleep(0.5)
    await plane.start()
    out, err = await asyncio.to_thread(process.communicate, timeout=60)
    assert b"line 0 \xc3\xa4\xc3\xb6\xc3\xbc\n" + out == whole(1000)
    assert (err, process.returncode) == (b"end\n", 7)
    await asyncio.to_thread(cli.text, "rm", name)


@pytest.mark.proves("E5", "E6")
async def test_a_terminal_is_there_again_after_a_restart(plane):
    cli = Cli(plane.url, (plane.data / "admin-token").read_text().strip())
    name = (await asyncio.to_thread(cli.text, "create")).strip()
    master, slave = pty.openpty()
    process = cli.start(
        "exec",
        "-it",
        name,
        "--",
        "bash",
        "--norc",
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    screen = Screen(process, master)
    try:
        await asyncio.to_thread(screen.until, r"[#$] ?$")
        screen.type("place=here\n")
        await asyncio.to_thread(screen.until, r"here\r\n")
        await plane.kill()
        await plane.start()
        # Keys that are hit before the terminal is connected again may be lost.
        while not await asyncio.to_thread(screen.shows, "on 42"):
            screen.type("echo on $((6 * 7))\n")
        screen.type("echo still $place; exit 3\n")
        await asyncio.to_thread(screen.until, "still here")
        await asyncio.to_thread(screen.rest)
        assert await asyncio.to_thread(process.wait, 20) == 3
    finally:
        screen.close()
    await asyncio.to_thread(cli.text, "rm", name)
