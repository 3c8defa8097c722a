"""Bindings: what is meant, and what is refused."""

import pytest

from paddock.domain.broker import Binding, Way
from paddock.domain.broker.binding import completed, dialect_of, host_rule, plain_place, url_inside
from paddock.domain.broker.masking import masked
from paddock.domain.broker.models import Dialect
from paddock.domain.errors import InvalidRequest


def bound(way: Way = Way.HEADER, **more: object) -> Binding:
    wish = {"hosts": ("api.example.com",), **more}
    return completed(Binding("team", "team", "API_KEY", way, **wish))


def test_what_goes_without_saying():
    made = bound()
    assert (made.header, made.format, made.env) == ("Authorization", "Bearer {}", "API_KEY")
    assert bound(header="X-Api-Key").format == "{}"
    assert bound(Way.GIT).user == bound(Way.BASIC).user == "x-access-token"
    assert bound(Way.REGISTRY).user == ""
    assert completed(made) == made


def test_a_host_is_one_for_tls_unless_a_port_is_named():
    assert host_rule("Api.Example.com").is_about("api.example.com", "", 443)
    assert not host_rule("api.example.com").is_about("api.example.com", "", 80)
    assert host_rule("api.example.com:8443").is_about("api.example.com", "", 8443)
    assert host_rule("*.example.com").is_about("a.b.example.com", "", 443)
    assert not host_rule("*.example.com").is_about("example.com", "", 443)


@pytest.mark.parametrize(
    "hosts", [(), ("*",), ("*.com",), ("10.0.0.1",), ("!a.example",), ("https://a.example",)]
)
def test_hosts_that_are_none(hosts: tuple[str, ...]):
    with pytest.raises(InvalidRequest):
        bound(hosts=hosts)


def test_bound_to_no_host_says_so():
    with pytest.raises(InvalidRequest, match="API_KEY would be bound to no host"):
        bound(hosts=())


def test_whom_it_is_for():
    assert bound().is_for("sbx_1", "demo")
    some = bound(sandboxes=("demo", "sbx_2"))
    assert some.is_for("sbx_1", "demo")
    assert some.is_for("sbx_2", "other")
    assert not some.is_for("sbx_3", "third")


def routed(route: str, **more: object) -> Binding:
    return bound(Way.MODEL, hosts=(), route=route, **more)


def test_a_known_route_needs_nothing_but_its_name():
    made = routed("anthropic")
    assert (made.hosts, made.base_url) == (("api.anthropic.com",), "https://api.anthropic.com")
    assert made.env == "ANTHROPIC_API_KEY"
    assert url_inside(made) == ("ANTHROPIC_BASE_URL", "http://anthropic.models.paddock.internal")
    assert url_inside(routed("openai"))[1].endswith(".internal/v1")
    assert url_inside(routed("openrouter"))[1].endswith(".internal/api/v1")
    assert dialect_of("gemini") is Dialect.GEMINI
    assert completed(made) == made


def test_a_route_of_ones_own_goes_to_its_base_url():
    made = routed("my-llm", base_url="https://llm.example.com:8443/v1/")
    assert (made.hosts, made.base_path) == (("llm.example.com:8443",), "/v1")
    assert url_inside(made) == ("MY_LLM_BASE_URL", "http://my-llm.models.paddock.internal")
    assert (made.env, dialect_of("my-llm")) == ("MY_LLM_API_KEY", Dialect.OPENAI)
    proxied = routed("openai", base_url="https://proxy.example.com/openai/v1")
    assert url_inside(proxied)[1] == "http://openai.models.paddock.internal"


def test_values_are_masked_wherever_they_are_told():
    told = {"a-secret": ["x a-secret y", {"n": 1, "deep": ("a-secret",)}], "none": None}
    shown = {"(KEY)": ["x (KEY) y", {"n": 1, "deep": ["(KEY)"]}], "none": None}
    assert masked(told, {"a-secret": "(KEY)", "x": "too short"}) == shown


def test_of_a_value_that_begins_with_another_nothing_is_left_over():
    values = {"secret": "(A)", "secret-and-more": "(B) secret"}
    assert masked("secret-and-more, secret", values) == "(B) secret, (A)"


@pytest.mark.parametrize("place", ["127.0.0.1:11434", "localhost:1234", "ollama", "192.168.1.5:80"])
def test_a_route_over_plain_http_may_lead_to_a_name_or_an_address(place):
    made = completed(routed("local", base_url=f"http://{place}/v1/"))
    assert (made.is_plain, made.hosts, made.base_path) == (True, (place,), "/v1")
    assert plain_place(place)[1] == int(place.partition(":")[2] or 80)


@pytest.mark.parametrize("place", ["1.2.3:80", "x:0", "x:70000", "-x", "user@x", "256.1.1.1"])
def test_a_place_that_is_none_is_refused(place):
    with pytest.raises(InvalidRequest) as refused:
        completed(routed("local", base_url=f"http://{place}/v1"))
    assert refused.value.remediation
