"""Rules as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.egress.rule import ANY_PORT, WEB, kept, parse
from paddock.domain.errors import InvalidRequest

labels = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
hosts = st.lists(labels, min_size=2, max_size=4).map(".".join)
ports = st.integers(1, 65535)


@pytest.mark.parametrize(
    ("text", "host", "ports"),
    [
        ("api.example.com", "api.example.com", WEB),
        ("API.Example.COM.", "api.example.com", WEB),
        ("*.example.org:443", "*.example.org", ((443, 443),)),
        ("git.example.com:22,443", "git.example.com", ((22, 22), (443, 443))),
        ("x.example:8000-8100", "x.example", ((8000, 8100),)),
        ("x.example:*", "x.example", ANY_PORT),
        ("*", "*", WEB),
        ("https://api.example.com", "api.example.com", ((443, 443),)),
        ("https://api.example.com/", "api.example.com", ((443, 443),)),
        ("bücher.example", "xn--bcher-kva.example", WEB),
        ("localhost", "localhost", WEB),
    ],
)
def test_a_host_is_read_with_its_ports(text, host, ports):
    rule = parse(text)
    assert (rule.host, rule.ports, rule.allows) == (host, ports, True)


def test_a_denial_without_ports_is_for_all_of_them():
    assert parse("!tracker.example.com").ports == ANY_PORT
    assert parse("!tracker.example.com:443").ports == ((443, 443),)
    assert not parse("! tracker.example.com").allows


def test_networks_are_read_with_and_without_ports():
    assert str(parse("10.1.0.0/16:5432").network) == "10.1.0.0/16"
    assert str(parse("10.1.2.3").network) == "10.1.2.3/32"
    assert str(parse("[fd00::/8]:443").network) == "fd00::/8"
    assert str(parse("fd00::/8").network) == "fd00::/8"


def test_requests_are_read_with_methods_and_path():
    rule = parse("get,POST http://api.example.com:8080/v1/**")
    assert (rule.methods, rule.path, rule.ports) == (("GET", "POST"), "/v1/**", ((8080, 8080),))
    assert not parse("http://api.example.com").looks_at_requests


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("x" * 600, "too long"),
        ("a b", "neither a host nor a request"),
        ("a\nb", "not printable"),
        ("ftp://example.com", "neither a host nor a request"),
        ("*.", "whole labels"),
        ("foo*.example.com", "whole labels"),
        ("a.*.example.com", "whole labels"),
        ("a..b", "no host name"),
        ("-a.example", "no host name"),
        ("127.1", "no host name"),
        ("0x7f.1", "no host name"),
        ("2130706433", "no host name"),
        ("10.1.0.1/16", "host bits set"),
        ("10.0.0.0/40", "/40"),
        ("example.com:0", "no port"),
        ("example.com:65536", "no port"),
        ("example.com:9-1", "ends before it begins"),
        ("example.com:http", "no port"),
        ("GET https://example.com/v1", "look into TLS"),
        ("https://example.com/v1", "look into TLS"),
        ("G-E-T http://example.com/", "no methods"),
        ("GET http://10.0.0.0/8", ""),
        ("GET http://example.com/a b", "neither"),
        ("GET http://example.com/../x", "path"),
        ("GET http://example.com/%2e%2e/x", "path"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_wrong(text, said):
    if text == "GET http://10.0.0.0/8":
        assert parse(text).path == "/8"  # a path: a request goes to one address
        return
    with pytest.raises(InvalidRequest) as caught:
        parse(text)
    assert said in caught.value.message
    assert caught.value.remediation


@given(st.text(max_size=80))
def test_any_text_is_a_rule_or_refused(text):
    try:
        rule = parse(text)
    except InvalidRequest:
        return
    assert bool(rule.host) != (rule.network is not None)
    assert parse(rule.text) == rule


@given(hosts, ports, st.booleans())
def test_a_rule_is_about_its_host_and_port_and_nothing_else(host, port, wild):
    rule = parse(f"{'*.' if wild else ''}{host}:{port}")
    assert rule.is_about(host, "", port) is not wild
    assert rule.is_about(f"sub.{host}", "", port) is wild
    assert rule.is_about(f"a.b.{host}", "", port) is wild
    other = port % 65535 + 1
    assert not rule.is_about(host, "", other)
    assert not rule.is_about(f"x{host}", "", port)
    assert not rule.is_about(f"{host}.evil.example", "", port)
    assert not rule.is_about("", "198.51.100.7", port)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.example:443", "a.example:443"),
        ("GET http://a.example/v1;x/**", None),
        ("not a rule", None),
        ("!GET http://a.example/v1;x/**", "!a.example"),
        ("! http://a.example:8080/v1;x", "!a.example:8080"),
        ("!GET http://a.example/v1", "!GET http://a.example/v1"),
        ("!not a rule", "!*"),
        ("!http://a.example:0/x", "!*"),
    ],
)
def test_a_stored_rule_that_is_not_read_any_more_allows_nothing_and_denies_no_less(text, found):
    rule = kept(text)
    assert (rule.text if rule else None) == found
