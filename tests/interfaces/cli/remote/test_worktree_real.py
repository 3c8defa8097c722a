"""A worktree's commands in a real sandbox, which is made for it without a word."""

import asyncio
import os

import pytest

from tests.interfaces.cli.remote.conftest import Cli
from tests.interfaces.cli.remote.test_worktree import Tree, git
from tests.wiring_server import server

pytestmark = pytest.mark.timeout(400)
INSTALL = """cat >> ~/.bashrc <<'END'
nvm() { echo "nvm $*, in $(pwd)"; }
END"""


@pytest.fixture(scope="module")
async def plane(need):
    if os.geteuid() != 0:
        need("root", "the local provider makes namespaces and mounts")
    async with server() as made:
        yield made


@pytest.mark.proves("C8", "E11")
async def test_the_first_command_makes_the_sandbox_and_version_managers_are_there(plane, tmp_path):
    cli = Cli(plane.url, (plane.data / "admin-token").read_text().strip())
    (tmp_path / "shop" / "app").mkdir(parents=True)
    (tmp_path / "shop" / "app" / "main.py").write_text("print('hello')\n")
    git(tmp_path, "init", "-q", "shop")
    git(tmp_path / "shop", "add", "-A")
    git(tmp_path / "shop", "commit", "-qm", "one")
    shop = Tree(cli, tmp_path / "shop", "")

    def use() -> None:
        first = shop("here", "python3", "main.py", below="app")
        assert (first.returncode, first.stdout) == (0, "hello\n"), first.stderr
        shop.text("here", "--", "sh", "-c", INSTALL)
        said = shop.text("here", "nvm", "use", "22", below="app")
        assert said == "nvm use 22, in /home/user/project/app\n"
        assert shop.text("here", "--", "nvm current && id -un", below="app").endswith("\nuser\n")
        assert shop("here", "--no-login", "--", "nvm", "use").returncode != 0
        shop.text("here", "--", "touch", "made")
        refused = shop("worktree", "rm", "--keep", below="app")
        assert (refused.returncode, ": made" in refused.stderr) == (1, True)
        shop.text("here", "--", "rm", "made")
        assert shop.text("worktree", "rm", "--keep").endswith(" removed\n")
        assert cli.names() == set()

    await asyncio.to_thread(use)
