"""Whatever bytes the gateway's parsers are given, they accept nothing that others read otherwise.

Longer runs are by hand: CONTRIBUTING.md says how.
"""

import itertools
import ssl
import struct

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.egress import names
from paddock.domain.egress.deciding import Asked, judge_connection, judge_request, may_resolve
from paddock.domain.egress.rule import LONGEST, kept, parse
from paddock.domain.errors import InvalidRequest
from paddock.gateway import dns
from paddock.gateway.client_hello import ClientHello, is_retried
from paddock.gateway.redacting import Matcher
from paddock.gateway.requests import Denied, Malformed, Request, Requests
from paddock.gateway.responses import Responses, Unreadable
from paddock.gateway.sniffing import Spoken, spoken
from tests.harness.fuzz import fuzzed

NAME = "allowed.example"
CUTS = st.lists(st.integers(0, 4000), max_size=6)


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def hello(name: str = NAME) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


HELLO = hello()


def server_name(data: bytes) -> str:
    """Of a ClientHello in records, by RFC 8446; no name of OpenSSL's is asked for here."""
    message = b""
    while data and (len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big")):
        assert data[0] == 0x16
        size = int.from_bytes(data[3:5], "big")
        message, data = message + data[5 : 5 + size], data[5 + size :]
    at = 4 + 2 + 32
    at += 1 + message[at]
    at += 2 + int.from_bytes(message[at : at + 2], "big")
    at += 1 + message[at]
    end = at + 2 + int.from_bytes(message[at : at + 2], "big")
    at += 2
    while at < end:
        kind, size = struct.unpack_from("!HH", message, at)
        if kind == 0:
            return message[at + 9 : at + 4 + size].decode("latin-1")
        at += 4 + size
    return ""


MUTATIONS = st.lists(
    st.tuples(st.integers(0, 700), st.integers(0, 3), st.binary(max_size=8)), max_size=4
)


def mutated(data: bytes, mutations: list[tuple[int, int, bytes]]) -> bytes:
    """Some bytes exchanged for others."""
    for at, dropped, put_in in mutations:
        at %= len(data) + 1
        data = data[:at] + put_in + data[at + dropped :]
    return data


@pytest.mark.proves("P16")
@fuzzed(100)
@given(MUTATIONS, CUTS)
def test_a_client_hello_that_is_accepted_has_the_name_that_was_judged(mutations, cuts):
    said = mutated(HELLO, mutations)
    judged: list[str] = []
    reading = ClientHello(lambda name: judged.append(name) or True)
    outcomes = [reading.feed(piece) for piece in in_pieces(said, cuts)]
    if True not in outcomes:
        return
    assert said[0] == 0x16
    assert judged == [server_name(said)]
    assert reading.size <= len(said)


def test_a_name_that_is_not_ascii_is_refused_without_a_word_in_the_log(capfd):
    said = HELLO.replace(NAME.encode(), b"\x94" * len(NAME))
    assert ClientHello(lambda _name: True).feed(said) is False
    assert capfd.readouterr().err == ""


@fuzzed(100)
@given(st.binary(max_size=300), CUTS, st.booleans())
def test_any_bytes_are_a_client_hello_or_none_and_fail_in_no_other_way(data, cuts, is_second):
    reading = ClientHello(lambda _name: True, is_second=is_second)
    outcomes = [reading.feed(piece) for piece in in_pieces(data, cuts)]
    assert set(outcomes) <= {None, False}
    assert is_retried(data) in (True, False, None)
    if data and data[0] in range(0x14, 0x19):
        assert spoken(data) is Spoken.TLS
    assert reading.refusal()[:1] == b"\x15"


TOKENS = st.sampled_from(
    [
        *(b"GET ", b"POST ", b"/x", b"http://b.example/", b" HTTP/1.1", b" HTTP/1.0", b"\r\n"),
        *(b"\n", b"Host: a.example", b"Host: b.example", b"Content-Length: 5", b"Content-Length: "),
        *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Connection: close", b": "),
        *(
            b"0\r\n\r\n",
            b"5\r\nhello\r\n",
            b"hello",
            b"\r\n\r\n",
            b" ",
            b"\t",
            b"\0",
            b"\x80",
            b";",
        ),
        *(b"Connection: Upgrade\r\nUpgrade: websocket", b"Expect: 100-continue", b"X: y", b"\r"),
    ]
)
TEXT = st.lists(TOKENS | st.binary(max_size=4), max_size=14).map(b"".join)
FRAMED = st.builds(
    lambda first, rest: b"GET /x HTTP/1.1\r\nHost: a.example\r\n" + first + b"\r\n\r\n" + rest,
    st.lists(TOKENS, max_size=4).map(b"\r\n".join),
    TEXT,
)


def read_by_h11(sent: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Method, target and host of each request, as another parser reads them."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    if not sent:
        return []  # to h11 this would be the end
    server.receive_data(sent)
    found = []
    while isinstance(event := server.next_event(), h11.Event):
        if isinstance(event, h11.Request):
            hosts = [value for name, value in event.headers if name == b"host"]
            assert len(hosts) == 1
            found.append((event.method, event.target, hosts[0]))
        if isinstance(event, h11.EndOfMessage):
            server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            server.send(h11.EndOfMessage())
            if (server.our_state, server.their_state) != (h11.DONE, h11.DONE):
                break
            server.start_next_cycle()
    return found


@pytest.mark.proves("P16")
@fuzzed(100)
@given(TEXT | FRAMED, CUTS)
def test_what_goes_on_of_requests_is_read_by_others_as_it_was_judged(said: bytes, cuts: list[int]):
    judged: list[tuple[bytes, bytes, bytes]] = []

    def judge(request: Request) -> None:
        if request.host not in ("", "a.example"):
            raise Denied(request.host)
        judged.append((request.method.encode(), request.path.encode("latin-1"), b"a.example"))

    requests, sent = Requests(judge, "a.example"), b""
    try:
        for piece in in_pieces(said, cuts):
            output = requests.feed(piece)
            sent += output.data
            if output.upgraded:
                break
    except (Malformed, Denied):
        pass
    found = read_by_h11(sent)
    assert found == judged[: len(found)]
    assert sent.count(b"Host: a.example\r\n") <= len(judged)


ANSWERS = st.builds(
    lambda head, body: b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body,
    st.lists(TOKENS | st.just(b"X: the-value"), max_size=4).map(b"\r\n".join),
    TEXT | st.just(b"it is the-value"),
)


@pytest.mark.proves("K9")
@fuzzed(100)
@given(TEXT | ANSWERS, CUTS, st.sampled_from(["GET", "HEAD"]))
def test_what_goes_on_of_answers_is_framed_as_others_read_it(said, cuts, method):
    matcher = Matcher({b"the-value": b"shown"})
    answers, got = Responses(lambda: matcher), b""
    answers.expect(method)
    try:
        for piece in in_pieces(said, cuts):
            got += answers.feed(piece)
        got += answers.end()
    except Unreadable:
        return
    assert b"the-value" not in got
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    client.send(h11.Request(method=method, target="/", headers=[("host", "a.example")]))
    client.send(h11.EndOfMessage())
    if not got or method == "HEAD":
        return  # headers about a body that does not come are left alone
    client.receive_data(got)
    events = []
    while isinstance(event := client.next_event(), h11.Event):
        events.append(event)
        if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            break
    heads = [event for event in events if isinstance(event, h11.Response)]
    assert len(heads) <= 1
    if answers.is_idle:
        assert isinstance(events[-1], h11.EndOfMessage)


LABELS = st.lists(st.binary(max_size=70), max_size=6)


@pytest.mark.proves("P16")
@fuzzed(100)
@given(
    LABELS,
    st.tuples(*[st.sampled_from([0, 1, 2, 0x100, 0x8000, 0xFFFF])] * 6),
    st.binary(max_size=12),
    MUTATIONS,
)
def test_dns_messages_ask_for_one_plain_name_or_none(labels, header, rest, mutations):
    name = b"".join(bytes([len(each) & 0xFF]) + each for each in labels)
    packet = mutated(struct.pack("!6H", *header) + name + b"\0" + rest, mutations)
    asked: list[str] = []
    said = dns.answer(packet, lambda each: asked.append(each) or "198.18.0.9")
    assert len(asked) <= 1
    assert all(names.normal(each) == each for each in asked)
    if not said:
        return
    assert said[:2] == packet[:2]
    assert said[2] & 0x80, "an answer"
    code, records = said[3] & 15, struct.unpack_from("!H", said, 6)[0]
    assert records == (1 if code == 0 and said[-4:] == bytes([198, 18, 0, 9]) else 0)
    assert len(said) <= len(packet) + 16


PARTS = st.sampled_from(
    [
        *("!", "*", "*.", "a.example", "A.Example.", "10.0.0.0/8", "[::1]", "127.1", "0x7f.1", ":"),
        *("443", "80,443", "1-9", "*", "0", "65536", "GET ", "get,head ", "http://", "https://"),
        *("/x", "/**", "/../", "//", "%2F", ";", " ", "\t", "\n", "é", "\u3002", "@", "?", "#"),
    ]
)


@pytest.mark.proves("P16")
@fuzzed(100)
@given(st.lists(PARTS | st.text(max_size=3), max_size=7).map("".join))
def test_a_rule_is_refused_or_means_what_its_own_text_says(text: str):
    stored = kept(text)
    try:
        rule = parse(text)
    except InvalidRequest as error:
        assert error.remediation
        assert stored is None or not stored.allows
        return
    assert len(rule.text) <= LONGEST
    assert parse(rule.text) == rule == stored
    assert (rule.network is None) == bool(rule.host)
    assert all(1 <= first <= last <= 65535 for first, last in rule.ports)
    assert not (rule.is_https and rule.looks_at_requests)
    denial = parse(text if text.strip().startswith("!") else f"!{text.strip()}")
    for port in (80, 443, 8443):
        for name, address in (("a.example", ""), ("b.a.example", ""), ("", "10.1.2.3")):
            decided = judge_connection([denial], name, address, port)
            assert not decided.whole.allowed
            assert not judge_request([denial], Asked(name, address, port, "GET", "/x")).allowed
            if rule.allows and judge_connection([rule], name, address, port).whole.allowed and name:
                assert may_resolve([rule], name)
