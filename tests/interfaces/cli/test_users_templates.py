"""Templates of a user in the engine's group who is not root: the real program, a real engine."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import open_storage
from paddock.adapters.providers.local.templates import TemplateStore
from paddock.adapters.providers.local.templates.recipes import BUILT_IN
from paddock.domain.ids import new_ulid
from tests.adapters.providers.local import tiny
from tests.harness import disk
from tests.interfaces.cli.conftest import PADDOCK, clean_environment
from tests.interfaces.cli.test_docker import engine as engine

pytestmark = [pytest.mark.timeout(600)]
SOMEBODY = 64_321


@dataclass
class User:
    """Somebody with a home and the engine's group, and no other right."""

    home: Path
    host: str
    settings: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"t{new_ulid()[-10:]}")
    """Of templates, so that tests do not meet on the engine."""

    @property
    def command(self) -> list[str]:
        group = Path(self.host.removeprefix("unix://")).stat().st_gid
        who = [f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", f"--groups={group}"]
        return [shutil.which("setpriv") or "setpriv", *who, "--", *PADDOCK]

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.home),
            "PADDOCK_DOCKER__HOST": self.host,
            "PADDOCK_DOCKER__INSTALLATION": f"user-{self.name}",
            "PADDOCK_DOCKER__RUN_ROOT": str(self.home / "run"),
        }
        return clean_environment(**{**own, **self.settings})

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )

    def does(self, *arguments: str) -> str:
        done = self(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def docker(self, *arguments: str) -> str:
        command = ["docker", "--host", self.host, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def images(self) -> list[str]:
        listed = self.docker(
            "images", f"paddock/{self.name}", "--format", "{{.Repository}}:{{.Tag}}"
        )
        return listed.split()

    def built(self) -> list[str]:
        mark = f"label=paddock.installation=user-{self.name}"
        return self.docker("ps", "--all", "--quiet", "--filter", mark).split()


@pytest.fixture
def user(engine: str, need) -> Iterator[User]:
    if os.geteuid() != 0 or not engine.startswith("unix://"):
        need("root", "only root can become somebody else, with an engine on this host")
    socket = Path(engine.removeprefix("unix://"))
    if PADDOCK[0].startswith("/root"):
        need("a Python that other users may run", f"{sys.executable} is closed to them")
    if socket.parent != Path("/var/run"):
        socket.parent.chmod(0o755)
    home = Path(tempfile.mkdtemp(prefix="pdk-", dir="/var/tmp"))
    os.chown(home, SOMEBODY, SOMEBODY)
    made = User(home, engine)
    yield made
    for image in made.images():
        made.docker("rmi", "--force", image)
    shutil.rmtree(home)


@pytest.fixture
def small_root(user: User) -> Path:
    """One program, and files that belong to others than who has built them."""
    return tiny.build(user.home / "root")


@pytest.mark.proves("P6")
@pytest.mark.slow
def test_base_works_by_its_name(user: User) -> None:
    disk.furnish(disk.new_directory() / "data", "base")
    cache = shutil.copytree(disk.TEMPLATES, user.home / "cache")  # the original is root's
    user.settings["PADDOCK_LOCAL__TEMPLATE_CACHE"] = str(cache)
    command = "id -un; stat -c %U:%a ~ /etc/shadow /usr/bin/sudo; python --version; node --version"
    said = user.does("sandbox", "run", "--provider", "docker", "--", "sh", "-c", command)
    assert said.splitlines()[:4] == ["user", "user:755", "root:640", "root:4755"]
    assert "Python 3.11" in said
    assert "v24." in said
    assert not (user.home / ".local/share/paddock/templates/archives").exists()


@pytest.mark.slow
def test_templates_are_listed_added_built_once_and_removed(user: User, small_root: Path) -> None:
    add = ("template", "add", user.name, "--from-dir", str(small_root))
    user.does(*add, "--setup", "echo made > /made; id -u", "--setup", "chown 7:8 /made")
    assert (user.home / f".local/share/paddock/templates/{user.name}.json").exists()
    listed = json.loads(user.does("template", "list", "-o", "json"))["templates"]
    assert {each["name"] for each in listed} == {*BUILT_IN, user.name}
    first = user("template", "build", user.name)
    assert first.returncode == 0, first.stderr
    assert "set-up: chown 7:8 /made" in first.stderr
    again = user("template", "build", user.name)
    assert "set-up:" not in again.stderr, "it is built once"
    root, set_up = sorted(user.images(), key=_layers(user))
    inside = ("run", "--rm", "--network=none", "--entrypoint=/bin/sh")
    assert user.docker(*inside, set_up, "-c", "stat -c %u:%g /made; cat /made") == "7:8\nmade\n"
    assert user.docker(*inside, root, "-c", "stat -c %u /home/user; ls /made || :") == "1000\n"
    assert user.built() == []


def _layers(user: User):
    def count(image: str) -> int:
        return len(json.loads(user.docker("inspect", image))[0]["RootFS"]["Layers"])

    return count


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_a_tar_is_taken_with_its_owners(user: User, small_root: Path, compress: str | None) -> None:
    archive = user.home / "root.tar"
    packed = [f"--use-compress-program={compress}"] if compress else []
    tar = ["tar", "--create", "--file", str(archive), *packed, "--directory", str(small_root), "."]
    subprocess.run(tar, check=True)
    user.does("template", "add", user.name, "--from-tar", str(archive))
    user.does("template", "build", user.name)
    (image,) = user.images()
    run = ("run", "--rm", "--network=none", "--entrypoint=/bin/stat", image)
    assert user.docker(*run, "-c", "%u", "/home/user") == "1000\n"


def test_an_image_in_a_directory_is_loaded(user: User, small_root: Path) -> None:
    imported = subprocess.run(
        f"tar -C {small_root} -c . | docker --host {user.host} import - {user.name}",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    layout = f"oci:{user.home}/layout:latest"
    copy = ["skopeo", "--insecure-policy", "copy", "--quiet", "--src-daemon-host", user.host]
    subprocess.run([*copy, f"docker-daemon:{user.name}:latest", layout], check=True)
    user.docker("rmi", imported)
    subprocess.run(["chmod", "-R", "a+rX", f"{user.home}/layout"], check=True)
    user.does("template", "add", user.name, "--from-image", layout)
    user.does("template", "build", user.name)
    assert len(user.images()) == 1


@pytest.mark.proves("P11")
def test_a_set_up_command_that_fails_is_shown_and_leaves_nothing(
    user: User, small_root: Path
) -> None:
    add = ("template", "add", user.name, "--from-dir", str(small_root))
    user.does(*add, "--setup", "true", "--setup", "echo no such thing; exit 3")
    done = user("template", "build", user.name)
    assert done.returncode == 1
    assert "set-up command 'echo no such thing; exit 3' ended with 3" in done.stderr
    assert "no such thing" in done.stderr.split("its last lines:")[1]
    assert len(user.images()) == 1, "only what it was to be built on"
    assert user.built() == []


def test_what_a_killed_build_leaves_is_swept(user: User, small_root: Path) -> None:
    add = ("template", "add", user.name, "--from-dir", str(small_root))
    user.does(*add, "--setup", "echo begun; sleep 600")
    building = subprocess.Popen(
        [*user.command, "template", "build", user.name],
        env=user.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not user.built():
        assert building.poll() is None
    building.send_signal(signal.SIGKILL)
    building.wait()
    user.does("sandbox", "list", "--provider", "docker")
    assert user.built() == []


def test_a_directory_that_cannot_be_written_to_is_named(user: User) -> None:
    user.settings["PADDOCK_LOCAL__DATA_DIR"] = "/proc/nowhere"
    done = user("template", "build", "base", "--provider", "docker")
    assert done.returncode == 1
    assert "templates are kept in /proc/nowhere/templates" in done.stderr
    assert "set local.data_dir (PADDOCK_LOCAL__DATA_DIR) or XDG_DATA_HOME" in done.stderr


def test_a_host_without_apt_is_told_the_ways_out(user: User) -> None:
    programs = user.home / "bin"
    programs.mkdir()
    for name in ("rm", "sh", "tar", "zstd"):
        (programs / name).symlink_to(shutil.which(name) or "")
    recipe = {"name": user.name, "source": {"kind": "debian", "reference": "bookworm"}}
    kept = user.home / ".local/share/paddock/templates"
    kept.mkdir(parents=True)
    (kept / f"{user.name}.json").write_text(json.dumps(recipe))
    subprocess.run(["chown", "-R", str(SOMEBODY), str(user.home / ".local")], check=True)
    user.settings["PATH"] = str(programs)
    done = user("template", "build", user.name, "--provider", "docker")
    assert done.returncode == 1
    assert "no apt-get and no dpkg-deb" in done.stderr
    assert "docker:python:3-slim" in done.stderr
    assert "local.template_cache" in done.stderr


@pytest.mark.slow
def test_a_debian_is_built_without_root_and_its_archive_is_root_s_as_well(
    user: User, tmp_path: Path
) -> None:
    recipe = {"name": user.name, "source": {"kind": "debian", "reference": "bookworm"}}
    kept = user.home / ".local/share/paddock/templates"
    kept.mkdir(parents=True)
    (kept / f"{user.name}.json").write_text(json.dumps(recipe))
    subprocess.run(["chown", "-R", str(SOMEBODY), str(user.home / ".local")], check=True)
    built = user("template", "build", user.name, "--provider", "docker")
    assert built.returncode == 0, built.stderr
    for step in ("downloading packages", "installing the essential packages", "keeping a copy"):
        assert step in built.stderr
    (image,) = user.images()
    look = "stat -c '%U:%G %a' /etc/shadow /usr/bin/chage /home/user; dpkg --audit; ls /"
    said = user.docker("run", "--rm", "--network=none", image, "/bin/sh", "-c", look).splitlines()
    assert said[:3] == ["root:shadow 640", "root:shadow 2755", "user:user 755"]
    assert "paddock-build" not in said
    assert user.built() == []
    (archive,) = (kept / "archives").iterdir()
    storage = open_storage(tmp_path / "data", driver="copy")
    try:
        build = asyncio.run(TemplateStore(storage, tmp_path / "data").import_from(archive))
        assert (build.lower / "etc/hostname").read_text() == "sandbox\n"
        assert (build.lower / "usr/bin/chage").stat().st_mode & 0o7777 == 0o2755
        assert (build.lower / "home/user").stat().st_uid == 1000
        assert dict(build.env)["LANG"] == "C.UTF-8"
    finally:
        storage.close()
    assert sorted(path.name for path in kept.iterdir()) == sorted(
        [".locks", "archives", f"{user.name}.json"]
    ), "no scratch is left"
