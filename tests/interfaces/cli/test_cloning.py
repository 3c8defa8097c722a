"""`paddock sandbox run --repo`: cloned outside, used inside, and no password on the way."""

import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paddock.interfaces.cli.cloning import Repository


def git(place: Path, *words: str) -> None:
    author = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": "/dev/null"}
    author |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    command = ["git", "-C", str(place), *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **author})


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """With two commits on `main` and another file on `side`."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main", "work")
    work = tmp_path / "work"
    for text in ("first", "second"):
        (work / "file").write_text(f"{text}\n")
        git(work, "add", "file")
        git(work, "commit", "--quiet", "--message", text)
    git(work, "checkout", "--quiet", "-b", "side")
    (work / "extra").write_text("extra\n")
    git(work, "add", "extra")
    git(work, "commit", "--quiet", "--message", "extra")
    git(work, "checkout", "--quiet", "main")
    return f"file://{work}"


@pytest.mark.proves("L14", "S14")
def test_the_command_runs_in_a_shallow_clone(cli, repository):
    done = cli.run("--repo", repository, "--", "sh", "-c", "pwd; ls -a; cat file .git/shallow")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "/home/user/project"
    assert {".git", "file"} <= set(lines)
    assert "extra" not in lines
    assert "second" in lines
    assert len(lines[-1]) == 40, "it is not shallow"


@pytest.mark.proves("S14")
def test_another_branch_and_another_place_can_be_asked_for(cli, repository):
    asked = ("--repo", repository, "--branch", "side", "--workdir", "/tmp/here")
    done = cli.run(*asked, "--", "sh", "-c", "pwd; cat extra")
    assert done.stdout == b"/tmp/here\nextra\n"


@pytest.mark.proves("H9", "S14")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--repo", "file:///no/such/repository"), b"file:///no/such/repository could not be"),
        (("--branch", "none"), b"at branch none could not be cloned"),
        (("--repo", "ext::sh -c 'touch /tmp/owned'"), b"transport 'ext' not allowed"),
    ],
)
def test_what_cannot_be_cloned_is_said_before_anything_is_made(cli, repository, options, says):
    asked = options if "--repo" in options else ("--repo", repository, *options)
    done = cli.run(*asked, "--", "true")
    assert done.returncode == 1
    assert says in done.stderr
    assert cli.left() == []
    assert not Path("/tmp/owned").exists()


class _Refuses(BaseHTTPRequestHandler):
    """A host of repositories that knows none of those who ask."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.proves("H9", "S14")
def test_wrong_credentials_are_said_before_anything_is_made(cli):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refuses) as host:
        serving = threading.Thread(target=host.serve_forever)
        serving.start()
        try:
            place = f"127.0.0.1:{host.server_port}/x.git"
            known = cli.run("--repo", f"http://me:s3cr3t@{place}", "--", "true")
            nobody = cli.run("--repo", f"http://{place}", "--", "true")
        finally:
            host.shutdown()
            serving.join()
    assert (known.returncode, nobody.returncode) == (1, 1)
    assert f"http://{place} could not be cloned: ".encode() in known.stderr
    assert b"Authentication failed" in known.stderr
    assert b"s3cr3t" not in known.stderr
    assert b"could not read Username" in nobody.stderr
    assert b"your access" in nobody.stderr
    assert cli.left() == []


@pytest.mark.proves("K9")
def test_a_password_in_the_address_is_in_no_message(cli):
    done = cli.run("--repo", "http://me:s3cr3t@127.0.0.1:1/x.git", "--", "true")
    assert done.returncode == 1
    assert b"http://127.0.0.1:1/x.git could not be cloned" in done.stderr
    assert b"s3cr3t" not in done.stderr


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://me:secret@host/x.git", "https://host/x.git"),
        ("https://token@host:8080/x.git", "https://host:8080/x.git"),
        ("https://a:b@c@host/x.git", "https://host/x.git"),
        ("https://host/x.git", "https://host/x.git"),
        ("git@host:x.git", "git@host:x.git"),
        ("ssh://git@host/x.git", "ssh://git@host/x.git"),
    ],
)
def test_a_password_is_taken_out_of_the_address(url, plain):
    assert Repository(url).plain_url == plain
