"""Whether there is a newer release, asked of a real index that speaks PEP 691 on this machine."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paddock import __version__
from paddock.interfaces.cli.updates import find_index, is_newer
from tests.interfaces.cli.conftest import clean_environment


class Index(ThreadingHTTPServer):
    """A package index with some releases."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = [{"filename": f"paddock_sandbox-{__version__}.tar.gz", "yanked": False}]
        self.asked = []
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()

    @property
    def url(self):
        return f"http://user:s3cret@127.0.0.1:{self.server_port}/simple"

    def offer(self, *names, yanked=False):
        self.files += [{"filename": name, "yanked": yanked} for name in names]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.answers.wait(60)
        body = json.dumps({"meta": {"api-version": "1.0"}, "files": self.server.files}).encode()
        with suppress(ConnectionError):  # who does not wait has left
            self.send_response(self.server.status)
            self.send_header("content-type", "application/vnd.pypi.simple.v1+json")
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def index():
    with Index() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


@pytest.fixture
def paddock(tmp_path):
    def run(*arguments, **variables):
        # `doctor` opens the installation that it finds, and that must not be the user's own.
        own = {"HOME": str(tmp_path), "PADDOCK_LOCAL__DATA_DIR": str(tmp_path / "data")}
        environment = clean_environment(**own, **variables)
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            environment.pop(name, None)
        return subprocess.run(
            [sys.executable, "-m", "paddock", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.mark.proves("I6")
def test_a_newer_release_is_said_and_what_was_withdrawn_or_is_no_release_is_not(index, paddock):
    index.offer(
        "paddock_sandbox-9.2.0-py3-none-any.whl",
        "paddock_sandbox-9.10.0.tar.gz",
        "paddock_sandbox-10.0rc1.zip",
    )
    index.offer("paddock_sandbox-11.0.0.tar.gz", yanked=True)
    said = paddock("version", "--check", PADDOCK_UPDATE_CHECK_URL=index.url)
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"paddock {__version__}\npaddock 9.10.0 is out\n"
    as_json = paddock("version", "--check", "--json", PIP_INDEX_URL=index.url)
    assert json.loads(as_json.stdout)["latest"] == "9.10.0"
    assert json.loads(as_json.stdout)["newer"] is True


def test_nothing_of_this_installation_goes_there(index, paddock):
    assert paddock("version", "--check", UV_DEFAULT_INDEX=index.url).returncode == 0
    ((path, headers),) = index.asked
    assert path == "/simple/paddock-sandbox/"
    assert set(map(str.lower, headers)) <= {
        *("host", "accept", "accept-encoding", "user-agent", "authorization"),
    }
    assert {k.lower(): v for k, v in headers.items()}["user-agent"] == "paddock"
    assert __version__ not in str(headers)


@pytest.mark.proves("I6")
def test_this_one_is_the_newest(index, paddock):
    said = paddock("version", "--check", PADDOCK_UPDATE_CHECK_URL=index.url)
    assert said.stdout == f"paddock {__version__}\nthis is the newest release\n"


@pytest.mark.proves("I6")
def test_without_an_index_and_with_one_that_fails_it_says_so(index, paddock, tmp_path):
    nowhere = paddock("version", "--check", PIP_CONFIG_FILE="/dev/null")
    assert nowhere.returncode != 0
    assert "update_check_url" in nowhere.stderr
    index.status = 503
    failing = paddock("version", "--check", PADDOCK_UPDATE_CHECK_URL=index.url)
    assert failing.returncode != 0
    assert "answered 503" in failing.stderr
    assert "s3cret" not in failing.stderr + failing.stdout


@pytest.mark.proves("I6")
def test_doctor_says_it_quietly_once_a_day_and_only_when_told_to_look(index, paddock, tmp_path):
    index.offer("paddock_sandbox-9.0.0.tar.gz")
    quiet = paddock("doctor", PIP_INDEX_URL=index.url)
    assert index.asked == []
    assert "is out" not in quiet.stderr
    cache = tmp_path / ".cache/paddock/update.json"
    for _ in range(20):  # doctor does not wait for an answer that comes late
        first = paddock("doctor", PADDOCK_UPDATE_CHECK_URL=index.url)
        if cache.exists():
            break
    note = f"note: paddock 9.0.0 is out; this is {__version__}"
    assert note in first.stderr
    asked = len(index.asked)
    assert note in paddock("doctor", PADDOCK_UPDATE_CHECK_URL=index.url).stderr
    assert len(index.asked) == asked
    assert "s3cret" not in cache.read_text()
    kept = json.loads(cache.read_text())
    cache.write_text(json.dumps({**kept, "at": kept["at"] - 90_000}))
    for _ in range(20):
        paddock("doctor", PADDOCK_UPDATE_CHECK_URL="environment", PIP_INDEX_URL=index.url)
        if len(index.asked) > asked:
            break
    assert len(index.asked) > asked


def test_an_index_that_does_not_answer_keeps_nobody_waiting(index, paddock, tmp_path):
    index.answers.clear()
    plain = paddock("doctor")
    said = paddock("doctor", PADDOCK_UPDATE_CHECK_URL=index.url)
    assert said.returncode == plain.returncode
    assert not (tmp_path / ".cache").exists(), "it did not wait until the index failed"
    index.answers.set()


def test_which_index_is_meant(tmp_path):
    home = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://pip.example/simple\n")
    assert find_index("https://set.example", home) == "https://set.example"
    assert find_index("", home) == "https://pip.example/simple"
    assert find_index("environment", {**home, "UV_INDEX_URL": "https://uv.example"}) == (
        "https://uv.example"
    )
    (tmp_path / ".config/uv").mkdir(parents=True)
    (tmp_path / ".config/uv/uv.toml").write_text(
        '[[index]]\nurl = "https://toml.example"\ndefault = true\n'
    )
    (tmp_path / "pip.conf").write_text("not a [config")
    assert find_index("", home) == "https://toml.example"


def test_versions_are_compared_as_numbers():
    assert is_newer("0.10.0", "0.9.9")
    assert not is_newer("1.0", "1.0.0")
    assert not is_newer("", "1.0")
    assert not is_newer("2.0", "2.0.dev1+local")
