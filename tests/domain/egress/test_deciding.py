"""What becomes of connections and requests, whatever the rules."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.domain.egress import EgressWish, NetworkMode, SourcedRule
from paddock.domain.egress.addresses import Kind, kind_of, objection
from paddock.domain.egress.combining import Say, combined
from paddock.domain.egress.deciding import (
    Asked,
    judge_connection,
    judge_request,
    may_resolve,
    shadowed,
)
from paddock.domain.egress.rule import parse
from paddock.domain.errors import InvalidRequest

names = st.sampled_from(
    ["a.example", "b.example", "x.a.example", "y.x.a.example", "a.example.evil", "example"]
)
ports = st.sampled_from([22, 80, 443, 8080])
patterns = st.sampled_from(
    ["a.example", "*.a.example", "*.example", "*", "b.example", "10.0.0.0/8", "198.51.100.0/24"]
)
texts = st.builds(
    lambda no, host, port: f"{no}{host}{port}",
    st.sampled_from(["", "!"]),
    patterns,
    st.sampled_from(["", ":443", ":80,443", ":*", ":22"]),
)
policies = st.lists(texts, max_size=8, unique=True).map(lambda each: [parse(text) for text in each])


@pytest.mark.proves("P16")
@given(policies, names, ports)
def test_nothing_is_allowed_but_by_a_rule_that_is_about_it(rules, name, port):
    decision = judge_connection(rules, name, "", port).whole
    if decision.allowed:
        assert decision.rule is not None
        assert decision.rule.allows
        assert decision.rule.is_about(name, "", port)
    first = next((rule for rule in rules if rule.is_about(name, "", port)), None)
    assert decision.rule == first


@pytest.mark.proves("P16")
@given(policies, names, ports)
def test_what_can_be_connected_to_can_be_resolved(rules, name, port):
    if judge_connection(rules, name, "", port).whole.allowed:
        assert may_resolve(rules, name)


@pytest.mark.proves("P16")
@given(policies, names)
def test_a_name_that_resolves_has_a_rule_that_allows_it(rules, name):
    if may_resolve(rules, name):
        assert any(rule.allows and rule.is_about(name, "", rule.ports[0][0]) for rule in rules)


@pytest.mark.proves("P16")
@given(policies, names, ports)
def test_a_denial_put_first_is_final(rules, name, port):
    denied = [parse(f"!{name}"), *rules]
    assert not judge_connection(denied, name, "", port).whole.allowed
    assert not may_resolve(denied, name)


@given(policies, names, ports)
def test_shadowed_rules_change_nothing(rules, name, port):
    hidden = {id(later) for later, _ in shadowed(rules)}
    kept = [rule for rule in rules if id(rule) not in hidden]
    before = judge_connection(rules, name, "", port).whole.allowed
    assert judge_connection(kept, name, "", port).whole.allowed == before


@pytest.mark.proves("P16")
@given(policies, names, ports)
def test_without_rules_about_requests_every_request_is_judged_as_its_connection(rules, name, port):
    whole = judge_connection(rules, name, "", port).whole
    asked = Asked(name, "", port, "POST", "/any/../path")
    assert judge_request(rules, asked).allowed == whole.allowed


def _request(rules, method, path):
    asked = Asked("api.example", "", 80, method, path)
    return judge_request([parse(rule) for rule in rules], asked).allowed


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/items", True),
        ("GET", "/v1/items?page=2", True),
        ("GET", "/v1/a/b/c", True),
        ("GET", "/v1/%69tems", True),
        ("POST", "/v1/items", False),
        ("GET", "/v2/items", False),
        ("GET", "/v1", False),
        ("GET", "/v1/../admin", False),
        ("GET", "/v1/%2e%2e/admin", False),
        ("GET", "/v1/..%2fadmin", False),
        ("GET", "/v1/%252e%252e/admin", False),
        ("GET", "/v1//admin", False),
        ("GET", "/v1/..\\admin", False),
        ("GET", "/v1/\x00", False),
        ("GET", "/v1/caf%C3%A9/a%20b/..data/v1.2/x:y@z", True),
        ("GET", "/v1/?next=/../;x", True),
        ("GET", "/v1/x#/../../admin", False),
        ("GET", "/v1/x%23", False),
        ("GET", "/v1/x%3Fy", False),
        ("GET", "/v1/..;/admin", False),
        ("GET", "/v1/.;x/admin", False),
        ("GET", "/v1/%2e%2e;/admin", False),
        ("GET", "/v1/..%3b/admin", False),
        ("GET", "/v1/..%09/admin", False),
        ("GET", "/v1/..%20/admin", False),
        ("GET", "/v1/.../admin", False),
        ("GET", "/v1/.. /admin", False),
        ("GET", "/v1/..\t/admin", False),
        ("GET", "/v1/%0d%0ax", False),
        ("GET", "/v1/%7f", False),
        ("GET", "/v1/%5c..%5cadmin", False),
        ("GET", "/v1/%c0%ae%c0%ae/admin", False),
        ("GET", "/v1/%e0%80%af/admin", False),
        ("GET", "/v1/caf\xe9", False),
        ("GET", "/v1/%u002e%u002e/admin", False),
        ("GET", "/v1/%%32%65%%32%65/admin", False),
        ("GET", "/v1/%", False),
    ],
)
def test_a_rule_about_requests_takes_no_path_that_could_mean_another(method, path, allowed):
    assert _request(["GET http://api.example/v1/**"], method, path) is allowed


@pytest.mark.proves("P16")
def test_a_denied_path_cannot_be_written_differently():
    rules = ["!http://api.example/admin/**", "api.example"]
    assert _request(rules, "GET", "/public")
    for path in ("/admin/x", "/%61dmin/x", "/public/../admin/x", "//admin/x", "/admin%2fx"):
        assert not _request(rules, "GET", path), path
    for path in ("/admin;/x", "/admin;a=b/x", "/;/admin/x", "/admin%3B/x", "/admin./x"):
        assert not _request(rules, "GET", path), path
    alone = ["!http://api.example/admin", "api.example"]
    for path in ("/admin", "/admin;x", "/admin#x", "/admin%23", "/admin?x", "/admin."):
        assert not _request(alone, "GET", path), path


def test_a_path_with_parameters_goes_wherever_no_rule_is_about_paths():
    assert _request(["api.example"], "GET", "/map;zoom=3/tile#x")
    with pytest.raises(InvalidRequest, match="not a plain one"):
        parse("GET http://api.example/map;zoom=3")


@pytest.mark.proves("P16")
def test_rules_about_requests_open_a_connection_to_plain_http_only():
    opening = judge_connection([parse("GET http://api.example/v1/**")], "api.example", "", 80)
    assert opening.requests
    assert not opening.whole.allowed
    assert not opening.is_hopeless


addresses = st.ip_addresses().map(str)


@pytest.mark.proves("P16")
@given(policies, addresses, ports)
def test_no_rule_allows_metadata_or_an_address_of_nobody(rules, address, port):
    kind = kind_of(ipaddress.ip_address(address))
    why = objection(rules, [address], port)
    if kind in (Kind.METADATA, Kind.NOWHERE):
        assert why
    own = objection(rules, [address], port, own=frozenset({address}))
    exact = any(r.allows and r.network is not None and r.network.num_addresses == 1 for r in rules)
    assert own or exact


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0"),
        *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"),
        *("224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fd00::1"),
        *("fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
        *("64:ff9b::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::", "::127.0.0.1", "fec0::1"),
    ],
)
def test_a_name_leads_to_no_address_of_ours_or_of_a_cloud(address):
    assert objection([parse("*:*"), parse("0.0.0.0/0:*"), parse("::/0")], [address], 80)


@pytest.mark.proves("P16")
def test_one_bad_address_spoils_the_name():
    assert not objection([], ["198.51.100.7"], 443)
    assert "10.0.0.1" in objection([], ["198.51.100.7", "10.0.0.1"], 443)


@pytest.mark.proves("P16")
def test_private_addresses_are_opened_by_a_private_rule_and_for_its_ports_only():
    rules = [parse("10.1.0.0/16:5432")]
    assert not objection(rules, ["10.1.2.3"], 5432)
    assert objection(rules, ["10.1.2.3"], 22)
    assert objection(rules, ["10.2.2.3"], 5432)
    assert objection([parse("!10.1.2.3"), *rules], ["10.1.2.3"], 5432)
    assert objection([parse("169.254.169.254"), parse("169.254.0.0/16")], ["169.254.169.254"], 80)


@pytest.mark.proves("P16")
def test_a_rule_for_requests_to_an_address_leads_no_name_there():
    rules = [parse("a.example"), parse("GET http://10.1.2.3/health")]
    assert "private" in objection(rules, ["10.1.2.3"], 80)
    assert not objection(rules, ["10.1.2.3"], 80, literal=True)
    assert objection(rules, ["10.1.2.3"], 80, own=frozenset({"10.1.2.3"}))
    denied = [parse("!GET http://10.1.2.3/admin"), parse("10.1.0.0/16:80")]
    assert "denied" in objection(denied, ["10.1.2.3"], 80), "a name is no way around it"


@pytest.mark.proves("P16")
def test_what_is_denied_is_so_by_name_too_unless_it_was_allowed_before():
    rest = [parse("*:*"), parse("0.0.0.0/0:*")]
    denied, allowed = parse("!198.51.100.0/24"), parse("198.51.100.7/32:*")
    assert "denied by" in objection([denied, *rest], ["198.51.100.7"], 443)
    assert not objection([allowed, denied, *rest], ["198.51.100.7"], 443)
    assert "denied by" in objection([allowed, denied, *rest], ["198.51.100.8"], 443)
    assert not objection([*rest, denied], ["198.51.100.7"], 443)
    # What is private stays closed, whatever is allowed before.
    assert objection([*rest, parse("!10.1.2.3"), parse("10.1.0.0/16")], ["10.1.2.3"], 443)
    assert not objection([*rest, parse("10.1.0.0/16")], ["10.1.2.3"], 443)


@pytest.mark.proves("P16")
def test_this_host_is_opened_by_its_exact_address_only():
    own = frozenset({"10.1.2.3"})
    assert objection([parse("10.1.0.0/16:11434")], ["10.1.2.3"], 11434, own=own)
    assert not objection([parse("10.1.2.3:11434")], ["10.1.2.3"], 11434, own=own)


def _rules(*says, default=NetworkMode.ALLOWLIST):
    return combined([Say(source, wish) for source, wish in says], default)


@pytest.mark.proves("P16")
def test_the_nearest_mode_counts_and_is_told_with_its_source():
    template, sandbox = EgressWish(NetworkMode.OPEN), EgressWish(NetworkMode.NONE)
    found = _rules(("template base", template), ("sandbox", sandbox))
    assert (found.policy.mode, found.mode_from) == (NetworkMode.NONE, "sandbox")
    found = _rules(("template base", template), ("sandbox", EgressWish()))
    assert (found.policy.mode, found.mode_from) == (NetworkMode.OPEN, "template base")
    assert _rules(("sandbox", EgressWish())).mode_from == "default"


@pytest.mark.proves("P16")
def test_what_is_denied_farther_away_cannot_be_allowed_nearer():
    preset = EgressWish(rules=("a.example", "!tracker.example"))
    sandbox = EgressWish(rules=("tracker.example", "!a.example"))
    found = _rules(("preset p", preset), ("sandbox", sandbox))
    assert [(rule.text, rule.source) for rule in found.policy.rules] == [
        ("!tracker.example", "preset p"),
        ("tracker.example", "sandbox"),
        ("!a.example", "sandbox"),
        ("a.example", "preset p"),
    ]
    assert len(found.warnings) == 2
    assert "tracker.example of the sandbox never decides" in found.warnings[0]


def test_a_denial_that_comes_too_late_for_some_ports_is_warned_about():
    late = EgressWish(rules=("*.example", "!a.example", "!b.example:443", "!c.example:22"))
    found = _rules(("sandbox", late)).warnings
    assert [warning.split(" of the ")[0] for warning in found] == [
        "the rule !b.example:443",
        "the rule !a.example",
    ]
    assert "never decides" in found[0]
    assert "does not hold where *.example" in found[1]
    early = EgressWish(rules=tuple(reversed(late.rules)))
    assert [
        each for each in _rules(("sandbox", early)).warnings if "!a.example:22" not in each
    ] == []


@pytest.mark.proves("P16")
@given(st.lists(texts, max_size=8), names, ports)
def test_a_denial_that_nothing_is_said_about_holds(written, name, port):
    found = _rules(("sandbox", EgressWish(rules=tuple(written))))
    rules = [parse(rule.text) for rule in found.policy.rules]
    told = " ".join(found.warnings)
    for number, rule in enumerate(rules):
        if rule.allows or rule.looks_at_requests or not rule.is_about(name, "", port):
            continue
        if not rule.host.startswith("*") and f"the rule {rule.text} of" not in told:
            allowed = judge_connection(rules, name, "", port).whole.allowed
            assert not allowed or any(r.looks_at_requests for r in rules[:number])


@pytest.mark.proves("P16")
def test_any_number_of_levels_have_a_say_and_a_task_is_the_nearest():
    found = _rules(
        ("preset p", EgressWish(rules=("a.example",))),
        ("template t", EgressWish(NetworkMode.OPEN, rules=("!t.example",))),
        ("app s", EgressWish(rules=("s.example",))),
        ("sandbox", EgressWish(NetworkMode.NONE, rules=("!s.example:22", "b.example"))),
        ("task fix", EgressWish(NetworkMode.ALLOWLIST, rules=("s.example:22", "t.example"))),
    )
    assert (found.policy.mode, found.mode_from) == (NetworkMode.ALLOWLIST, "task fix")
    assert [(rule.text, rule.source) for rule in found.policy.rules] == [
        ("!t.example", "template t"),
        ("!s.example:22", "sandbox"),
        ("s.example:22", "task fix"),
        ("t.example", "task fix"),
        ("b.example", "sandbox"),
        ("s.example", "app s"),
        ("a.example", "preset p"),
    ]
    assert len(found.warnings) == 2


@pytest.mark.proves("P16")
@given(st.lists(texts, max_size=5), st.lists(texts, max_size=5), names, ports)
def test_a_sandbox_never_reaches_what_its_template_denies(far, near, name, port):
    found = _rules(
        ("template t", EgressWish(rules=tuple(far))), ("sandbox", EgressWish(rules=tuple(near)))
    )
    rules = [parse(rule.text) for rule in found.policy.rules]
    if any(not r.allows and r.is_about(name, "", port) for r in map(parse, far)):
        assert not judge_connection(rules, name, "", port).whole.allowed


@pytest.mark.proves("P16")
def test_open_is_everything_but_what_is_denied_farther_away():
    preset = EgressWish(rules=("a.example", "!tracker.example"))
    template = EgressWish(rules=("!t.example",))
    sandbox = EgressWish(NetworkMode.OPEN, preset="", rules=("!own.example",))
    found = _rules(("preset p", preset), ("template t", template), ("sandbox", sandbox))
    assert (found.policy.mode, found.wanted) == (NetworkMode.ALLOWLIST, NetworkMode.OPEN)
    rules = [parse(rule.text) for rule in found.policy.rules]
    for name, allowed in (("tracker.example", False), ("t.example", False), ("x.org", True)):
        for port in (22, 443):
            assert judge_connection(rules, name, "", port).whole.allowed is allowed, name
    assert not objection(rules, ["93.184.216.34"], 22)
    alone = _rules(("preset p", EgressWish(rules=("a.example",))), ("sandbox", sandbox))
    assert (alone.policy.mode, alone.policy.rules) == (NetworkMode.OPEN, ())


def test_a_stored_rule_that_is_not_read_any_more_takes_no_other_along():
    unread = "GET http://a.example/v1;x/**"
    found = _rules(
        ("preset p", EgressWish(rules=(unread, "b.example"))),
        ("sandbox", EgressWish(rules=(f"!{unread}", "c.example"))),
    )
    assert [rule.text for rule in found.policy.rules] == ["!a.example", "c.example", "b.example"]
    assert found.warnings == (
        f"the rule {unread} of the preset p is not readable any more: it allows nothing",
        f"the rule !{unread} of the sandbox is not readable any more: !a.example holds in its "
        "place",
    )


def test_what_was_granted_comes_after_all_rules_and_never_makes_them_too_many():
    granted = [SourcedRule(f"{n}.granted.example", "task tsk_1") for n in range(400)]
    own = EgressWish(rules=("!x.granted.example", *(f"{n}.own.example" for n in range(200))))
    found = combined([Say("sandbox", own)], NetworkMode.ALLOWLIST, granted)
    assert len(found.policy.rules) == 500
    assert found.policy.rules[201:] == tuple(granted[:299])
    assert combined([Say("sandbox", own)], NetworkMode.NONE, granted).policy.rules == ()
