"""Which of the host's package sources a Debian gets."""

from pathlib import Path

import pytest

from paddock.adapters.providers.local.templates.apt_sources import of_host

DEB822 = """\
Types: deb deb-src
# a comment in between
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates trixie
Components: main
 contrib
Signed-By: /k/debian.gpg

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://vendor.example/apt
Suites: nodistro
Components: main
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://security.example/debian bookworm-security main # why
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian cloud-bookworm main
deb https://name:word@private.example/debian bookworm main
deb
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "apt/sources.list").write_text(ONE_LINE)
    (tmp_path / "apt/sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    return tmp_path


def test_the_hosts_lines_of_the_release_are_used_and_no_others(host: Path) -> None:
    assert of_host("bookworm", host / "apt", host / "os-release") == [
        "deb [arch=amd64 signed-by=/k.gpg] http://security.example/debian bookworm-security main",
        "deb [signed-by=/k/debian.gpg] http://mirror.example/debian bookworm main contrib",
        "deb [signed-by=/k/debian.gpg] http://mirror.example/debian bookworm-updates main contrib",
    ]


def test_another_release_has_no_use_for_them(host: Path) -> None:
    assert of_host("trixie", host / "apt", host / "os-release") == []
    assert of_host("bookworm", host / "apt", host / "none") == []
