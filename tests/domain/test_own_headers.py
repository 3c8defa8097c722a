"""Headers of a sandbox's own: what is meant, what is kept back, and what is refused."""

import pytest

from paddock.domain.broker.headers import MOST, OwnHeader, checked, hosts_of
from paddock.domain.errors import InvalidRequest


def one(header: str = "X-A", value: str = "a", host: str = "api.example.org") -> OwnHeader:
    return checked([OwnHeader(host, header, value=value)])[0]


def test_a_form_and_a_value_are_told_apart():
    made = one("Authorization", "Bearer abc.def")
    assert (made.format, made.value, made.is_secret) == ("Bearer {}", "abc.def", True)
    assert checked([made]) == (made,)
    assert one("Authorization", "abc").format == "{}"
    made = one("X-Upstream", "Bearer abcdef0123456789abcdef")
    assert (made.format, made.value) == ("Bearer {}", "abcdef0123456789abcdef")
    assert (made.is_secret, checked([made])) == (True, (made,))
    assert one("Cookie", "a=b; c=d").value == "a=b; c=d"
    assert one("X-Greeting", "hello there").format == "{}"


@pytest.mark.parametrize(
    ("header", "value", "is_secret"),
    [
        *(("Authorization", "x", True), ("X-Api-Key", "x", True), ("Cookie", "a=b", True)),
        *(("X-Environment", "production", False), ("User-Agent", "agent/1.0 (me)", False)),
        *(("X-Pat", "hunter2hunter2", True), ("X-Upstream", "Bearer hunter", True)),
        ("X-Upstream", "Bearer abcdef0123456789abcdef", True),
        ("X-Gateway", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", True),
        ("X-Account", "GitLab glpat-abcdefghijklm", True),
        ("X-Phrase", "correct horse battery staple", True),
        *(("X-Number", "4929 1234 1234 1234", True), ("X-Version", "2026-11-16", False)),
        *(("X-Id", "0123456789abcdef0123", True), ("X-Url", "https://example.org/a-b-c-1", False)),
    ],
)
def test_what_must_not_come_back(header, value, is_secret):
    assert one(header, value).is_secret is is_secret


def test_the_last_of_a_name_and_host_counts():
    made = checked(
        [
            OwnHeader("API.example.org", "X-A", value="1"),
            OwnHeader("api.example.org", "x-a", value="2"),
            OwnHeader("*.example.org", "X-A", value="3"),
        ]
    )
    assert [(each.host, each.value) for each in made][-1] == ("*.example.org", "3")
    assert [each.value for each in made] == ["2", "3"]
    assert hosts_of(made) == ["*.example.org", "api.example.org"]


@pytest.mark.parametrize(
    "wrong",
    [
        *(OwnHeader(host, "X-A", value="a") for host in ("*", "*.org", "10.0.0.1", "!a.example")),
        *(
            OwnHeader("a.example", name, value="a")
            for name in ("", "Host", "A B", "Content-Length")
        ),
        *(OwnHeader("a.example", "X-A", value=v) for v in ("", "a\r\nb", "ü", "x" * 8193)),
        OwnHeader("a.example", "X-A", value="a", secret="B"),
        OwnHeader("a.example", "X-A", format="{} {}", secret="B"),
    ],
    ids=lambda wrong: f"{wrong.host} {wrong.header} {wrong.value[:9]!r} {wrong.format}",
)
def test_what_is_none_is_refused(wrong):
    with pytest.raises(InvalidRequest):
        checked([wrong])


def test_there_are_only_so_many():
    many = [OwnHeader("a.example", f"X-{number}", value="a") for number in range(MOST + 1)]
    assert len(checked(many[:-1])) == MOST
    with pytest.raises(InvalidRequest, match=str(MOST)):
        checked(many)
