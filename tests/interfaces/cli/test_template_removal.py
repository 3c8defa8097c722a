"""Built templates are taken away again, by the real program, on a real store and a real engine."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from paddock.domain.ids import new_ulid
from tests.adapters.providers.local import tiny
from tests.interfaces.cli.conftest import Cli, _install, _uninstall
from tests.interfaces.cli.test_docker import engine as engine

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def own_data(installation) -> Iterator[Path]:
    """A store that no other test builds in or prunes."""
    path = _install()
    yield Path(path) / "data"
    _uninstall(path)


@pytest.fixture
def cli(own_data) -> Iterator[Cli]:
    made = Cli(own_data)
    yield made
    made.changes = {}
    for ref in made.left():
        made("sandbox", "rm", ref)


@pytest.fixture
def name() -> str:
    return f"t{new_ulid()[-10:]}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Nobody else's: the content of a build is what it is found by."""
    made = tiny.build(tmp_path / "root")
    (made / "etc/unique").write_text(new_ulid())
    return made


def shelf(cli) -> set[str]:
    """The builds on the disk, and what is half removed."""
    return {path.name for path in (cli.data / "pool/templates").iterdir()}


def kept(cli, name: str) -> str:
    """A sandbox of the template, which stays."""
    command = ("sandbox", "run", "--keep", "--template", name, "--label", cli.label, "--", "true")
    done = cli(*command)
    assert done.returncode == 0, done.stderr
    (ref,) = cli.left()
    return ref


def test_a_template_goes_with_its_build_and_the_disk_is_freed(cli, name, root):
    before = shelf(cli)
    cli("template", "add", name, "--from-dir", str(root), "--setup", "echo x > /x")
    assert cli("template", "build", name).returncode == 0
    assert len(shelf(cli) - before) == 2, "the root and what was set up on it"
    removed = cli.answer("template", "rm", name)
    assert removed["freed_bytes"] > 100_000
    assert shelf(cli) == before
    assert name not in {each["name"] for each in cli.answer("template", "list")["templates"]}
    assert cli("template", "rm", name).returncode == 1


def test_one_that_a_sandbox_or_a_snapshot_was_made_of_stays_and_says_so(cli, name, root):
    before = shelf(cli)
    cli("template", "add", name, "--from-dir", str(root))
    ref = kept(cli, name)
    (digest,) = shelf(cli) - before
    refused = cli("template", "rm", name)
    assert refused.returncode == 1
    assert f"'{name}' is in use by sandbox {ref.partition('/')[2]}".encode() in refused.stderr
    assert cli("sandbox", "exec", ref, "--", "cat", "/etc/unique").returncode == 0
    assert cli("sandbox", "snapshot", "create", ref).returncode == 0
    assert cli("sandbox", "rm", ref).returncode == 0
    assert b"in use by snapshot" in cli("template", "rm", digest).stderr
    cli("template", "prune", "--all")
    assert digest in shelf(cli)
    (snapshot,) = cli.answer("sandbox", "snapshot", "list")["snapshots"]
    assert cli("sandbox", "snapshot", "rm", snapshot["ref"]).returncode == 0
    assert cli("template", "rm", name).returncode == 0
    assert digest not in shelf(cli)


def test_a_build_is_removed_by_its_digest_and_built_again_on_use(cli, name, root):
    before = shelf(cli)
    cli("template", "add", name, "--from-dir", str(root))
    cli("template", "build", name)
    (digest,) = shelf(cli) - before
    assert cli("template", "rm", digest).returncode == 0
    assert shelf(cli) == before
    assert cli("sandbox", "run", "--template", name, "--", "true").returncode == 0
    (recipe,) = [
        each for each in cli.answer("template", "list")["templates"] if each["name"] == name
    ]
    assert cli("template", "rm", recipe["digest"]).returncode == 0
    assert shelf(cli) == before


def test_prune_takes_what_no_recipe_leads_to(cli, name, root):
    cli("template", "add", name, "--from-dir", str(root))
    cli("template", "build", name)
    first = shelf(cli)
    (root / "etc/unique").write_text(new_ulid())
    cli("template", "add", name, "--from-dir", str(root))
    cli("template", "build", name)
    (stale,) = [each["digest"] for each in cli.answer("template", "prune")["removed"]]
    assert stale in first
    assert len(shelf(cli)) == len(first)
    assert cli.answer("template", "prune")["removed"] == []
    assert cli("template", "rm", name).returncode == 0


def test_one_that_comes_with_paddock_is_not_removed(cli):
    refused = cli("template", "rm", "base")
    assert refused.returncode == 1
    assert b"built in and cannot be removed" in refused.stderr


def test_the_image_on_the_engine_goes_too_unless_a_sandbox_stands_on_it(cli, engine, name, root):
    def images() -> list[str]:
        command = ["docker", "--host", engine, "images", f"paddock/{name}", "--quiet"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    with TemporaryDirectory(prefix="pdk-", dir="/tmp") as run_root:
        cli.changes = {
            "PADDOCK_DOCKER__HOST": engine,
            "PADDOCK_DOCKER__INSTALLATION": f"cli-{name}",
            "PADDOCK_DOCKER__RUN_ROOT": run_root,
        }
        on_docker = ("--provider", "docker")
        cli("template", "add", name, "--from-dir", str(root), *on_docker)
        run = ("sandbox", "run", "--keep", "--template", name, *on_docker, "--", "true")
        assert cli(*run).returncode == 0
        assert len(images()) == 1
        refused = cli("template", "rm", name, *on_docker)
        assert b"sandboxes of the docker provider stand on paddock/" in refused.stderr
        (seen,) = cli.answer("sandbox", "list", *on_docker)["sandboxes"]
        assert cli("sandbox", "rm", seen["ref"]).returncode == 0
        assert cli("template", "rm", name, "--provider", "local").returncode == 0
        assert images() == []
