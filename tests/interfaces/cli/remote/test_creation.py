"""`paddock create` and `run` while the server builds the template: progress, Ctrl-C, `rm`."""

import asyncio
import os
import signal

import pytest

from tests.adapters.providers.local import tiny
from tests.interfaces.cli.remote.conftest import Cli
from tests.wiring_server import server


@pytest.fixture(scope="module")
async def plane(need):
    if os.geteuid() != 0:
        need("root", "the local provider makes namespaces and mounts")
    async with server() as made:
        tiny.build(made.data.parent / "tiny")
        yield made


@pytest.fixture
def cli(plane):
    return Cli(plane.url, (plane.data / "admin-token").read_text().strip())


async def add(plane, name, setup):
    source = {"kind": "directory", "reference": str(plane.data.parent / "tiny")}
    wish = {"name": name, "source": source, "setup": [setup]}
    assert (await plane.admin.post("/v1/templates", wish)).status == 201


async def until_told(process, text):
    """What it has written to stderr by then."""
    said = b""
    while text not in said:
        line = await asyncio.to_thread(process.stderr.readline)
        assert line, said
        said += line
    return said


async def test_the_first_run_shows_how_the_template_is_built(plane, cli):
    await add(plane, "shown", "sleep 1.5")
    done = await asyncio.to_thread(cli, "run", "--template", "shown", "--", "echo", "hi")
    assert (done.returncode, done.stdout) == (0, b"hi\n")
    assert "… running the set-up commands\n… set-up: sleep 1.5\n" in done.stderr.decode()
    again = await asyncio.to_thread(cli, "run", "--template", "shown", "--", "echo", "hi")
    assert (again.stdout, again.stderr) == (b"hi\n", b"")
    assert (await plane.admin.delete("/v1/templates/shown")).status == 204


async def test_an_interrupted_create_says_what_remains_and_rm_cancels_it_at_once(plane, cli):
    await add(plane, "endless", "sleep 1000")
    process = cli.start("create", "--name", "waits", "--template", "endless")
    await until_told(process, b"set-up: sleep 1000")
    process.send_signal(signal.SIGINT)
    _, told = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 130
    assert b"the server continues to create waits; `paddock rm waits` cancels it" in told
    assert (await plane.admin.get("/v1/sandboxes/waits"))["state"] == "creating"
    removed = await asyncio.to_thread(cli, "rm", "waits")
    assert (removed.returncode, removed.stdout) == (0, b"waits removed\n")
    assert cli.names() == set()


async def test_an_interrupted_run_cancels_its_creation(plane, cli):
    await add(plane, "endless-too", "sleep 1001")
    process = cli.start("run", "--name", "gone", "--template", "endless-too", "--", "true")
    await until_told(process, b"set-up: sleep 1001")
    process.send_signal(signal.SIGINT)
    _, told = await asyncio.to_thread(process.communicate, timeout=20)
    assert process.returncode == 130
    assert told.endswith(b"interrupted: sandbox gone was removed\n")
    assert cli.names() == set()
    removed = await plane.admin.delete("/v1/templates/endless-too")
    assert removed.status == 204, "its build was cancelled, because nobody waited for it any more"


async def test_template_commands_act_on_the_server(plane, cli):
    root = str(plane.data.parent / "tiny")
    added = await asyncio.to_thread(cli, "template", "add", "small", "--from-dir", root)
    assert (added.returncode, added.stdout, added.stderr) == (0, b"small added\n", b"")
    (seen,) = [
        each for each in cli.answer("template", "ls")["templates"] if each["name"] == "small"
    ]
    assert (seen["built"], seen["owner"]) == (False, "installation")
    built = await asyncio.to_thread(cli, "template", "build", "small")
    assert (built.returncode, built.stdout) == (0, b"small built\n")
    assert "… looking at the source" in built.stderr.decode()
    (row,) = [line for line in cli.text("template", "ls").splitlines() if line.startswith("small")]
    assert row.split()[:5] == ["small", "installation", "directory", root, "yes"]
    assert cli.text("run", "--template", "small", "--", "echo", "used") == "used\n"
    assert cli.text("template", "rm", "small") == "small removed\n"
    assert (await plane.admin.get("/v1/templates/small")).status == 404


async def test_a_template_is_made_of_a_snapshot_of_the_server(plane, cli):
    made = await plane.admin.post("/v1/sandboxes", {"name": "source"})
    assert made.status == 201
    cli.text("exec", "source", "--", "sh", "-c", "echo kept > /home/user/file")
    cli.text("snapshot", "create", "source", "--name", "tuesday")
    refused = cli("template", "add", "of-none", "--from-snapshot", "wednesday")
    assert refused.returncode == 1
    assert b"wednesday" in refused.stderr
    assert cli.text("template", "add", "kept", "--from-snapshot", "tuesday") == "kept added\n"
    assert cli.text("run", "--template", "kept", "--", "cat", "/home/user/file") == "kept\n"
    await plane.admin.delete("/v1/sandboxes/source?force=true")


async def test_a_directory_that_is_not_on_the_server_is_refused_at_once(plane, cli):
    refused = cli("template", "add", "of-nothing", "--from-dir", "/not/there")
    assert refused.returncode == 1
    assert b"/not/there does not exist" in refused.stderr
