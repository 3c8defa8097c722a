"""Where a credential goes in a request, and where it does not."""

import base64
from dataclasses import dataclass

import msgspec
import pytest

from paddock.gateway.brokering import Lack
from paddock.gateway.credentials import Credentials
from paddock.gateway.injecting import Head, Injected, Lacking, guarded, inject
from paddock.gateway.protocol import Credential

SHOWN, VALUE = "pdk-KEY-abc", "v/a l&ue"
KEY = Credential("KEY", SHOWN, ["a.example"], "header", value=VALUE)
HEADER = msgspec.structs.replace(KEY, header="X-Key", format="token {}")


def head(path: bytes = b"/x", **headers: str) -> Head:
    made = tuple((n.replace("_", "-").encode(), v.encode()) for n, v in headers.items())
    return Head("GET", path, made)


def put(credential: Credential, given: Head) -> Injected:
    return inject(given, [credential], now=1000.0)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@dataclass
class Case:
    credential: Credential
    given: Head
    made: Head


def of(way: str, **more: str) -> Credential:
    return msgspec.structs.replace(KEY, way=way, **more)


CASES = {
    "added": Case(HEADER, head(), head(X_Key=f"token {VALUE}")),
    "exchanged": Case(HEADER, head(x_key=f"own {SHOWN}"), head(x_key=f"own {VALUE}")),
    "basic added": Case(of("basic", user="me"), head(), head(Authorization=basic(f"me:{VALUE}"))),
    "basic exchanged": Case(
        of("basic", user="me"),
        head(Authorization=basic(f"you:{SHOWN}")),
        head(Authorization=basic(f"you:{VALUE}")),
    ),
    "registry": Case(of("registry"), head(), head(Authorization=f"Bearer {VALUE}")),
    "registry with a user": Case(
        of("registry", user="ci"), head(), head(Authorization=basic(f"ci:{VALUE}"))
    ),
    "registry in an address": Case(
        of("registry"),
        head(Authorization=basic(f"__token__:{SHOWN}")),
        head(Authorization=basic(f"__token__:{VALUE}")),
    ),
    "query added": Case(
        of("query", parameter="k"), head(b"/x?a=1"), head(b"/x?a=1&k=v%2Fa%20l%26ue")
    ),
    "query alone": Case(of("query", parameter="k"), head(b"/x"), head(b"/x?k=v%2Fa%20l%26ue")),
    "query exchanged": Case(
        of("query", parameter="k"),
        head(f"/x?k={SHOWN}&b=2".encode()),
        head(b"/x?k=v%2Fa%20l%26ue&b=2"),
    ),
    "git": Case(
        of("git"),
        head(b"/r.git/info/refs?service=git-upload-pack", Authorization=basic(f"x:{SHOWN}")),
        head(b"/r.git/info/refs?service=git-upload-pack", Authorization=basic(f"x:{VALUE}")),
    ),
    "git, large files": Case(
        of("git"),
        head(b"/a/r.git/info/lfs/objects/batch", Authorization=basic(f"x:{SHOWN}")),
        head(b"/a/r.git/info/lfs/objects/batch", Authorization=basic(f"x:{VALUE}")),
    ),
    "anywhere": Case(
        of("placeholder"),
        head(f"/x?q={SHOWN}".encode(), X_A=SHOWN, Cookie=f"s={SHOWN}"),
        head(b"/x?q=v%2Fa%20l%26ue", X_A=VALUE, Cookie=f"s={VALUE}"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_goes_where_it_is_bound_to(name: str):
    case = CASES[name]
    assert put(case.credential, case.given) == Injected(case.made, (case.credential,))


@pytest.mark.parametrize(
    ("credential", "given"),
    [
        (HEADER, head(X_Key="of its own")),
        (of("basic", user="me"), head(Authorization="Bearer of-its-own")),
        (of("basic", user="me"), head(Authorization="Basic !!!")),
        (of("query", parameter="k"), head(b"/x?k=own")),
        (of("git"), head(b"/r.git/info/refs")),
        (of("git"), head(b"/api/user", Authorization=basic(f"x:{SHOWN}"))),
        (of("git"), head(b"/r.git/info/refs", Authorization=f"Bearer {SHOWN}")),
        (of("git"), head(b"/r.git/info/refs", Authorization=f"Basic {SHOWN}")),
        (of("git"), head(b"/info/lfs/../../api/user", Authorization=basic(f"x:{SHOWN}"))),
        (of("git"), head(b"/r/info/lfs/%2e%2e/locks", Authorization=basic(f"x:{SHOWN}"))),
        (of("git"), head(b"/api/info/lfs/user", Authorization=basic(f"x:{SHOWN}"))),
        (of("git"), head(b"/api/user;/info/lfs", Authorization=basic(f"x:{SHOWN}"))),
        (of("git"), head(b"/api/..%2fuser/info/refs", Authorization=basic(f"x:{SHOWN}"))),
        (of("placeholder"), head(f"/{SHOWN}".encode())),
        (of("placeholder"), head()),
    ],
)
def test_and_nowhere_else(credential: Credential, given: Head):
    assert put(credential, given) == Injected(given, ())


def test_what_has_no_value_is_missed_only_where_it_is_needed():
    gone = msgspec.structs.replace(of("placeholder"), value="", lacks="it is gone")
    assert put(gone, head()).used == ()
    with pytest.raises(Lacking):
        put(gone, head(X_A=SHOWN))
    old = msgspec.structs.replace(HEADER, expires_at=999.0)
    with pytest.raises(Lacking):
        put(old, head())
    assert put(msgspec.structs.replace(HEADER, expires_at=1001.0), head()).used


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"])
@pytest.mark.parametrize("way", ["header", "basic", "query", "registry", "placeholder"])
def test_a_value_that_would_end_its_line_is_not_put_in(way: str, end: str):
    split = of(way, value=f"tok{end}X: y", header="X-Key", format="{}", parameter="k")
    with pytest.raises(Lacking) as found:
        put(split, head(X_Key=SHOWN))
    assert "more than one line" in found.value.credential.lacks
    assert not found.value.credential.value


def test_what_is_empty_is_not_said_to_have_expired():
    empty = Lack(msgspec.structs.replace(KEY, value=""))
    assert (empty.why, empty.code) == ("the secret KEY is empty", "credential_missing")
    assert Lack(KEY).why == "the secret KEY has expired"


def test_no_password_of_git_goes_with_a_path_that_could_mean_another():
    for path in (b"/o/r.git/info/refs#/../../../api", b"/o/..;/api/info/refs", b"/o;x/r/info/refs"):
        given = head(path, Authorization=basic(f"x:{SHOWN}"))
        assert put(of("git"), given) == Injected(given, ())


def test_a_header_of_the_sandboxs_own_stands_in_place_of_what_is_sent():
    own = msgspec.structs.replace(HEADER, own=True)
    for given in (head(), head(x_key="mine"), head(x_key=f"own {SHOWN}")):
        assert put(own, given) == Injected(head(X_Key=f"token {VALUE}"), (own,))
    with pytest.raises(Lacking):
        put(msgspec.structs.replace(own, value="", placeholder=""), head(x_key="mine"))


def test_of_several_hosts_with_headers_the_nearest_counts_and_comes_last():
    def of_host(host: str, *, own: bool = True) -> Credential:
        return msgspec.structs.replace(HEADER, hosts=[host], own=own, placeholder="")

    domain, below = of_host("*.a.example"), of_host("*.b.a.example")
    exact, bound = of_host("b.a.example"), of_host("b.a.example", own=False)
    held = Credentials.of([domain, exact, below, bound])
    assert held.of_host("b.a.example", 443) == [bound, exact]
    assert held.of_host("c.b.a.example", 443) == [below]
    assert held.of_host("c.a.example", 443) == [domain]
    assert held.of_host("a.example", 443) == held.of_host("c.a.example", 80) == []


def test_answers_are_asked_for_in_a_form_that_can_be_looked_at():
    asked = head(Accept_Encoding="gzip, br", Range="bytes=0-5", If_Range="x", Accept="*/*")
    assert guarded(asked) == head(Accept="*/*", Accept_Encoding="identity")
