"""Debian, built for real."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.adapters.providers.local.storage import Storage, open_storage
from paddock.adapters.providers.local.templates import BuiltTemplate, TemplateStore
from paddock.adapters.providers.local.templates.debian import Reporter
from paddock.domain.errors import InvalidRequest, Unavailable
from paddock.domain.template import SourceKind, Template, TemplateSource
from tests.harness import disk

from ..storage.disks import unmounted_afterwards
from .conftest import left_over, no_setup

CACHE = disk.TEMPLATES


@pytest.fixture(params=["copy"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def debian(*packages: str, suite: str = "bookworm") -> Template:
    return Template("own", TemplateSource(SourceKind.DEBIAN, suite, packages))


def test_progress_rises_from_stage_to_stage_and_within_them() -> None:
    seen: list[float] = []
    reporter = Reporter(lambda text, fraction: seen.append(fraction or 0.0))
    lines = ["I: running apt-get update...", "Get:1 lists", "I: downloading packages with apt..."]
    lines += ["0 upgraded, 4 newly installed, 0 to remove", *(f"Get:{n} p" for n in range(4))]
    lines += ["I: extracting archives...", "I: installing essential packages..."]
    lines += [f"{verb} p" for verb in ("Unpacking", "Setting up") for _ in range(4)]
    lines += ["I: installing remaining packages inside the chroot...", "3 newly installed"]
    lines += [f"{verb} p" for verb in ("Get:", "Unpacking", "Setting up") for _ in range(3)]
    lines += ["I: cleaning package lists and apt cache...", "I: success in 3 seconds"]
    for line in lines:
        reporter(line)
    assert seen == sorted(seen)
    assert len(set(seen)) > 15
    assert seen[-1] == 0.9


@pytest.mark.parametrize("name", ["--customize-hook=id", "UPPER", "a,b", "", "x y"])
async def test_what_is_no_package_name_is_refused(store: TemplateStore, name: str) -> None:
    with pytest.raises(InvalidRequest, match="no name of a Debian package"):
        await store.ensure(debian(name), setup_runner=no_setup)


async def test_what_is_no_release_is_refused(store: TemplateStore) -> None:
    with pytest.raises(InvalidRequest, match="Debian release"):
        await store.ensure(debian(suite="--help"), setup_runner=no_setup)


async def test_without_mmdebstrap_the_way_to_install_it_is_told(
    store: TemplateStore, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rm").symlink_to("/bin/rm")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(Unavailable) as caught:
        await store.ensure(debian("git"), setup_runner=no_setup)
    assert caught.value.remediation == "apt install mmdebstrap"
    assert left_over(storage) == []


@pytest.mark.slow
async def test_without_a_network_the_reason_is_told(
    store: TemplateStore, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="cannot be fetched") as caught:
        await store.ensure(debian("git"), setup_runner=no_setup)
    assert "apt-get update" in caught.value.remediation
    assert left_over(storage) == []


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    data_dir = tmp_path_factory.mktemp("base") / "data"
    with unmounted_afterwards(data_dir):
        yield open_storage(data_dir, pool_size_mib=4000)


@pytest.fixture(scope="module")
async def base(pool: Storage) -> BuiltTemplate:
    """Built once for the machine; afterwards it comes out of the cache in seconds."""
    store = TemplateStore(pool, pool.pool.parent, cache=CACHE)
    return await store.ensure(store.recipe("base"), setup_runner=no_setup)


def inside(base: BuiltTemplate, command: str, user: str = "root") -> str:
    """Run it in the root file system, with what a sandbox would mount and nothing of the host."""
    env = [f"{name}={value}" for name, value in (*base.env, ("TERM", "xterm-256color"))]
    script = f"""
        set -e
        mount -t overlay -o lowerdir={base.lower},upperdir=$1/u,workdir=$1/w overlay $1/m
        mount -t proc proc $1/m/proc
        mount --bind /dev/null $1/m/dev/null 2>/dev/null || mknod -m 666 $1/m/dev/null c 1 3
        mknod -m 666 $1/m/dev/urandom c 1 9
        hostname sandbox
        exec chroot $1/m su {user} -s /bin/bash -c "$2"
    """
    scratch = base.lower.parent.parent.parent / "scratch"
    for name in ("u", "w", "m"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--uts",
                "env",
                "-i",
                *env,
                "sh",
                "-c",
                script,
                "-",
                str(scratch),
                command,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run(["rm", "-rf", str(scratch)], check=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@pytest.mark.proves("P11")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("command", "user", "expected"),
    [
        ("python --version", "user", "Python 3."),
        ("python3 -c 'import ssl, sqlite3, venv; print(1)'", "user", "1"),
        ("python3 -m venv /tmp/v && /tmp/v/bin/python -m pip --version", "user", "pip "),
        ("git --version", "user", "git version"),
        ("curl --version", "user", "curl "),
        ("make --version", "user", "GNU Make"),
        ("rsync --version", "user", "rsync  version"),
        (
            "cd $(mktemp -d) && git init -q && git commit -q --allow-empty -m x"
            " && git log --format='%an <%ae>'",
            "user",
            "sandbox <sandbox@localhost>",
        ),
        ("id -un; sudo -n id -un", "user", "user\nroot"),
        ("id", "user", "uid=1000(user) gid=1000(user) groups=1000(user)"),
        ("node -e 'console.log(parseInt(process.versions.node) >= 20)'", "user", "true"),
        ("node -p 1+1", "root", "2"),
        ("npm -v && npx -v", "user", "1"),
        ("npm -v", "root", "1"),
        ("npm config get prefix", "user", "/home/user/.local"),
        ("rg --version", "user", "ripgrep"),
        ("echo '[3]' | jq '.[0]'", "user", "3"),
        ("tput colors", "user", "256"),
        ("ssh -V 2>&1; less --version; unzip -v; xz --version; ip -V", "user", "OpenSSH"),
        ("ps -e | head -1", "user", "PID"),
        ("locale charmap", "user", "UTF-8"),
        (
            "hostname; cat /etc/hostname; getent hosts sandbox",
            "user",
            "sandbox\nsandbox\n127.0.0.1",
        ),
        ("cat /etc/resolv.conf /etc/machine-id | wc -c", "user", "0"),
        ("ls /var/lib/apt/lists | grep -c Packages || true", "root", "0"),
        ("grep -q '^deb ' /etc/apt/sources.list && echo usable", "user", "usable"),
        ("bash -lc 'echo $PATH'", "user", "/home/user/.local/bin:"),
    ],
)
async def test_the_base_template_has_what_agents_need(
    base: BuiltTemplate, command: str, user: str, expected: str
) -> None:
    assert expected in inside(base, command, user)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_user_of_the_base_template_installs_programs_of_npm_without_root(
    base: BuiltTemplate,
) -> None:
    package = '{"name": "hello", "version": "1.0.0", "bin": {"hello": "hello.js"}}'
    script = (
        "mkdir /tmp/hello && cd /tmp/hello"
        f" && echo '{package}' > package.json"
        " && printf '#!/usr/bin/env node\\nconsole.log(40 + 2)' > hello.js"
        " && npm install --silent -g . && hello"
    )
    assert inside(base, script, "user").endswith("42")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_base_template_is_small_and_has_no_devices(base: BuiltTemplate) -> None:
    size = subprocess.run(
        ["du", "-sm", str(base.lower)], capture_output=True, text=True, check=True
    )
    assert int(size.stdout.split()[0]) < 500
    find = ["find", str(base.lower), "-type", "b", "-o", "-type", "c"]
    assert subprocess.run(find, capture_output=True, text=True, check=True).stdout == ""


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_package_that_does_not_exist_is_named(
    store: TemplateStore, storage: Storage
) -> None:
    with pytest.raises(InvalidRequest, match="no-such-package"):
        await store.ensure(debian("no-such-package"), setup_runner=no_setup)
    assert left_over(storage) == []
