"""What an upstream is told about the way a request has come."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.domain.errors import InvalidRequest
from paddock.interfaces.preview import Reply
from paddock.interfaces.preview.forwarding import Forwarding, counted_as
from tests.interfaces.preview.running import HOST, OK, answering, fetch, get, to_port

CLIENT = "203.0.113.9"


def told(origin) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in origin.block.decode().splitlines())


def test_a_direct_client_is_named_and_believed_nothing():
    origin = Forwarding().direct(CLIENT, "App.preview.localhost:7070")
    assert told(origin) == {
        "X-Forwarded-For": CLIENT,
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "app.preview.localhost:7070",
        "X-Forwarded-Port": "7070",
        "Forwarded": f'for={CLIENT};host="app.preview.localhost:7070";proto=http',
    }
    assert (origin.client, origin.host) == (CLIENT, "app.preview.localhost")


def test_an_ipv6_client_is_quoted_where_it_has_to_be():
    said = told(Forwarding().direct("2001:db8::1", "[2001:db8::2]:80"))
    assert said["X-Forwarded-For"] == "2001:db8::1"
    assert said["Forwarded"] == 'for="[2001:db8::1]";host="[2001:db8::2]";proto=http'


@pytest.mark.parametrize(
    ("url", "host", "proto", "port", "authority"),
    [
        ("https://preview.example", "a.preview.example", "https", "443", "a.preview.example"),
        ("https://x:8443", "a.x", "https", "8443", "a.x:8443"),
        ("https://x:8443", "a.x:7070", "https", "8443", "a.x:8443"),
        ("http://x:8080", "a.x", "http", "8080", "a.x:8080"),
        ("", "a.x", "http", "80", "a.x"),
    ],
)
def test_a_public_url_says_scheme_and_port(url, host, proto, port, authority):
    said = told(Forwarding(public_url=url).direct(CLIENT, host))
    assert (said["X-Forwarded-Proto"], said["X-Forwarded-Port"]) == (proto, port)
    assert said["X-Forwarded-Host"] == authority


def test_a_trusted_proxy_is_believed_and_added():
    forwarding = Forwarding(["10.0.0.0/8"])
    origin = forwarding.relayed(
        "10.0.0.1",
        "app.preview.example",
        {
            b"x-forwarded-for": b"198.51.100.7, 203.0.113.9, 10.0.0.2",
            b"x-forwarded-proto": b"https",
            b"x-forwarded-host": b"app.preview.example:8443",
        },
    )
    assert told(origin) == {
        "X-Forwarded-For": "198.51.100.7, 203.0.113.9, 10.0.0.2, 10.0.0.1",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "app.preview.example:8443",
        "X-Forwarded-Port": "8443",
        "Forwarded": 'for=198.51.100.7;host="app.preview.example:8443";proto=https, '
        "for=203.0.113.9, for=10.0.0.2, for=10.0.0.1",
    }
    # What the client itself had written on the left is not believed.
    assert origin.client == CLIENT
    assert origin.scheme == "https"


def test_a_proxy_that_speaks_only_the_standard_is_understood():
    origin = Forwarding(["::1"]).relayed(
        "::1",
        "127.0.0.1:7070",
        {b"forwarded": b'for="[2001:db8::9]:4711";proto=https;host="a.test", for=10.0.0.1'},
    )
    said = told(origin)
    assert said["Forwarded"].endswith('host="a.test", for=10.0.0.1, for="[::1]"')
    assert said["X-Forwarded-For"] == "[2001:db8::9]:4711, 10.0.0.1, ::1"
    assert (said["X-Forwarded-Proto"], said["X-Forwarded-Host"]) == ("https", "a.test")
    assert origin.host == "a.test"
    assert origin.client == "10.0.0.1"


def test_a_proxy_that_says_nothing_counts_as_the_client():
    origin = Forwarding(["127.0.0.1"]).relayed("127.0.0.1", "a.test:7070", {})
    assert told(origin)["X-Forwarded-For"] == "127.0.0.1"
    assert origin.client == "127.0.0.1"


def test_nonsense_of_a_trusted_proxy_changes_nothing():
    origin = Forwarding(["127.0.0.1"]).relayed(
        "127.0.0.1",
        "a.test",
        {
            b"x-forwarded-proto": b"gopher",
            b"x-forwarded-host": b"b/c",
            b"x-forwarded-port": b"99999999",
            b"x-forwarded-for": b"unknown",
        },
    )
    assert (origin.scheme, origin.authority) == ("http", "a.test")


@settings(deadline=None)
@given(st.dictionaries(
    st.sampled_from([b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host",
                     b"x-forwarded-port", b"forwarded"]),
    st.binary(max_size=40).filter(lambda value: not set(value) & set(b"\r\n\0")),
))  # fmt: skip
def test_whatever_a_proxy_says_the_block_stays_five_lines(given_):
    origin = Forwarding(["127.0.0.1"]).relayed("127.0.0.1", "a.test", given_)
    assert origin.block.count(b"\r\n") == 5
    assert origin.block.count(b"\n") == 5


@pytest.mark.parametrize("network", ["10.0.0.0/33", "proxy.test", ""])
def test_a_network_that_is_none_is_refused(network):
    with pytest.raises(InvalidRequest, match="trusted_proxies"):
        Forwarding([network])


@pytest.mark.parametrize("url", ["preview.example", "ftp://x", "https://", "https://x:port"])
def test_a_public_url_that_is_none_is_refused(url):
    with pytest.raises(InvalidRequest, match="public_url"):
        Forwarding(public_url=url)


def test_an_ipv6_network_counts_as_one_client():
    assert counted_as("2001:db8::1") == counted_as("2001:db8::ffff") != counted_as("2001:db9::1")
    assert counted_as("203.0.113.9") == "203.0.113.9"


SPOOFED = (
    "X-Forwarded-For: 1.2.3.4",
    "X_Forwarded_For: 1.2.3.4",
    "x-forwarded_for: 1.2.3.4",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: evil.test",
    "X-Forwarded-Port: 1",
    "X-Real-IP: 1.2.3.4",
    "Forwarded: for=1.2.3.4",
)


async def test_a_client_cannot_pretend(serve):
    async with answering(OK) as upstream:
        front = serve(to_port(upstream.port))
        await fetch(front.port, get("/", *SPOOFED, "Connection: X-Forwarded-For"))
    head = upstream.requests[0].decode()
    assert "1.2.3.4" not in head and "evil" not in head
    assert head.count("X-Forwarded-For: 127.0.0.1\r\n") == 1
    assert f"X-Forwarded-Host: {HOST}\r\nX-Forwarded-Port: 80\r\n" in head


async def test_a_trusted_proxy_can_and_the_owner_sees_the_client(serve):
    seen = []

    def resolve(head):
        seen.append((head.peer, head.client, head.scheme, head.host, head.url))
        return Reply(200)

    front = serve(resolve, trusted_proxies=("127.0.0.1/32",))
    lines = (f"X-Forwarded-For: {CLIENT}", "X-Forwarded-Proto: https", f"X-Forwarded-Host: {HOST}")
    await fetch(front.port, get("/a", *lines, host="127.0.0.1:7070"))
    await fetch(front.port, get("/b"))
    assert seen == [
        ("127.0.0.1", CLIENT, "https", HOST, f"https://{HOST}/a"),
        ("127.0.0.1", "127.0.0.1", "http", HOST, f"http://{HOST}/b"),
    ]
