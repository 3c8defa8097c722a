"""Which server a client means, and what it says when there is none."""

import pytest

from paddock import AsyncSandbox, InvalidRequest, Server, Unauthenticated, Unavailable
from paddock.interfaces.client.place import find_place


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".config" / "paddock").mkdir(parents=True)
    data = tmp_path / "data"
    data.mkdir()
    (data / "admin-token").write_text("tok_admin\n")
    return tmp_path


def environ(home, **more):
    return {"HOME": str(home), "PADDOCK_SERVER__DATA_DIR": str(home / "data"), **more}


def write(home, text, mode=0o600):
    file = home / ".config" / "paddock" / "client.toml"
    file.write_text(text)
    file.chmod(mode)


def test_the_server_of_this_machine_needs_no_configuration(home):
    place = find_place(environ=environ(home))
    assert (place.url, place.token) == ("http://127.0.0.1:7070", "tok_admin")
    assert "tok_admin" not in repr(place)
    assert place.owner == (home / "data" / "admin-token").stat().st_uid


def test_what_is_said_nearer_goes_first(home):
    write(home, 'url = "https://far.example/"\ntoken = "tok_file"\n')
    place = find_place(environ=environ(home))
    assert (place.url, place.token) == ("https://far.example", "tok_file")
    said = environ(home, PADDOCK_URL="http://near.example", PADDOCK_TOKEN="tok_env")
    assert find_place(environ=said).token == "tok_env"
    assert find_place("http://nearest.example", "tok_given", said).token == "tok_given"


def test_a_token_goes_only_to_the_server_that_it_is_for(home):
    write(home, 'url = "https://far.example"\ntoken = "tok_file"\n')
    said = environ(home, PADDOCK_URL="https://evil.example")
    assert find_place(environ=said).token == ""
    local = environ(home, PADDOCK_URL="http://127.0.0.1:7070")
    assert find_place(environ=local).token == "tok_admin"


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("url = ", 0o600, "is not TOML"),
        ('host = "x"', 0o600, "has host"),
        ('token = "x"', 0o644, "others can read it"),
        ('url = "ftp://x"', 0o600, "no server's address"),
        ('url = "http://127.0.0.1:99999"', 0o600, "Port out of range"),
        ('url = "http://127.0.0.1:7o70"', 0o600, "Port could not be"),
        ('url = "http://127.0.0.1:0"', 0o600, "no server's address"),
        ('url = "http://[::1"', 0o600, "Invalid IPv6"),
        ('url = "http://a b:7070"', 0o600, "no server's address"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(home, text, mode, says):
    write(home, text, mode)
    with pytest.raises(InvalidRequest, match=says):
        find_place(environ=environ(home))


async def test_no_server_is_said_at_once_with_what_to_do():
    async with Server("http://127.0.0.1:9", "x") as server:
        with pytest.raises(Unavailable, match="no server answers at http://") as caught:
            await AsyncSandbox.create(server=server)
    assert "paddock up" in caught.value.remediation


async def test_a_token_that_is_not_known_is_said(running):
    async with Server(running.url, "tok_wrong") as server:
        with pytest.raises(Unauthenticated):
            await AsyncSandbox.connect("x", server=server)
