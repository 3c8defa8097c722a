"""What sandboxes may reach, over HTTP: who may say it, how it adds up, and what is refused."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from paddock.domain.egress import EgressPolicy, NetworkMode
from paddock.domain.template import SourceKind, Template, TemplateSource
from paddock.ports.egress import Flow, FlowBatch
from paddock.ports.provider import Observation, Ref, SandboxSpec
from paddock.services.provider_templates import Kept
from paddock.testing.broken.defect import claiming
from paddock.testing.reference import ReferenceProvider
from tests.control_plane import disposable


class Enforcing(ReferenceProvider):
    """Keeps the policy that it was last given, by sandbox."""

    def __init__(self, *given, **more) -> None:
        super().__init__(*given, **more)
        self.policies: dict[str, EgressPolicy] = {}

    async def create(self, key: str, spec: SandboxSpec) -> Observation:
        made = await super().create(key, SandboxSpec(template=spec.template, labels=spec.labels))
        self.policies[made.ref.id] = spec.egress
        return made

    async def set_egress(self, ref: Ref, policy: EgressPolicy) -> None:
        self.policies[ref.id] = policy


Lists = claiming(Enforcing, egress=True, live_egress=True, allowlist=True)


@pytest.fixture
async def plane():
    async with disposable(provider=Lists) as made:
        yield made


def enforced(plane) -> EgressPolicy:
    (provider,) = (each for _, each in plane.services.providers)
    while not isinstance(provider, Enforcing):
        provider = provider._inner
    (policy,) = provider.policies.values()
    return policy


def texts(plane) -> list[str]:
    return [rule.text for rule in enforced(plane).rules]


async def make(plane, **more):
    body = {"name": "box", "template": "plain", **more}
    answer = await plane.admin.post("/v1/sandboxes", body)
    assert answer.status == 201, answer.body
    return answer


@pytest.mark.proves("P16")
async def test_closed_by_default_means_the_presets_rules(plane):
    box = await make(plane)
    assert box["egress"] == {"mode": "allowlist"}
    assert enforced(plane).mode is NetworkMode.ALLOWLIST
    assert {rule.source for rule in enforced(plane).rules} == {"preset development"}
    preset = await plane.admin.get("/v1/egress/presets/development")
    assert texts(plane) == preset["rules"]
    assert (await plane.admin.get("/v1/egress/presets"))["items"] == ["development"]


@pytest.mark.proves("P16")
async def test_a_provider_without_an_allowlist_is_closed_and_refuses_one():
    async with disposable() as plane:
        box = await plane.admin.post("/v1/sandboxes", {"name": "box", "template": "plain"})
        assert box["egress"] == {"mode": "none"}
        answer = await plane.admin.post(
            "/v1/sandboxes", {"template": "plain", "egress": {"mode": "allowlist"}}
        )
        assert (answer.status, answer.error["code"]) == (501, "unsupported"), answer.body
        answer = await plane.admin.post("/v1/sandboxes/box/egress/allow", {"rules": ["a.example"]})
        assert answer.error["code"] == "unsupported"


class Strong:
    """Templates that say how their sandboxes are isolated."""

    def recipe(self, name: str) -> Template:
        return Template(name, TemplateSource(SourceKind.DIRECTORY, "/"), runtime="runsc")


@pytest.mark.proves("P16")
@pytest.mark.parametrize("said", [{"runtime": "runsc"}, {}])
async def test_gvisor_is_closed_by_default_and_an_allowlist_is_refused_before_it_is_made(
    plane, said
):
    """Whether the runtime is asked for or its template's."""
    if not said:
        plane.services.providers.templates["reference"] = Kept(Strong(), None)
    box = await make(plane, **said)
    assert box["egress"] == {"mode": "none"}
    assert enforced(plane).mode is NetworkMode.NONE
    answers = (
        await plane.admin.post(
            "/v1/sandboxes", {"template": "plain", "egress": {"mode": "allowlist"}, **said}
        ),
        await plane.admin.post("/v1/sandboxes/box/egress/allow", {"rules": ["a.example"]}),
    )
    for answer in answers:
        assert (answer.status, answer.error["code"]) == (501, "unsupported"), answer.body
        assert "runsc has a network of its own" in answer.error["message"]


@pytest.mark.proves("P16")
async def test_template_app_and_sandbox_add_up_and_say_where_each_rule_is_from(plane):
    put = plane.admin.call
    await put(
        "PUT", "/v1/templates/plain/egress", {"preset": "", "rules": ["t.example", "!bad.example"]}
    )
    await put("PUT", "/v1/apps/shop/egress", {"rules": ["shop.example"]})
    await make(plane, app="shop", egress={"rules": ["own.example", "bad.example"]})
    standing = await plane.admin.get("/v1/sandboxes/box/egress")
    assert [(rule["rule"], rule["source"]) for rule in standing["rules"]] == [
        ("!bad.example", "template plain"),
        ("own.example", "sandbox"),
        ("bad.example", "sandbox"),
        ("shop.example", "app shop"),
        ("t.example", "template plain"),
    ]
    assert "bad.example of the sandbox never decides" in standing["warnings"][0]
    assert texts(plane) == [rule["rule"] for rule in standing["rules"]]
    await put("PUT", "/v1/apps/shop/egress", {"rules": ["other.example"]})
    assert "other.example" in texts(plane)
    assert (await plane.admin.delete("/v1/apps/shop/egress")).status == 204
    assert "other.example" not in texts(plane)
    assert (await plane.admin.get("/v1/apps/shop/egress")).status == 404


@pytest.mark.parametrize("place", ["apps/shop", "templates/plain", "egress/presets/mine"])
async def test_rules_that_shadow_each_other_are_warned_about_wherever_they_are_set(plane, place):
    path = f"/v1/{place}" + ("" if "presets" in place else "/egress")
    rules = ["*.a.example", "b.a.example:443", "c.example"]
    answer = await plane.admin.call("PUT", path, {"rules": rules})
    assert answer["rules"] == rules
    (warning,) = answer["warnings"]
    assert "b.a.example:443" in warning
    assert "*.a.example" in warning
    assert "comes first and covers it" in warning
    assert (await plane.admin.get(path))["warnings"] == [warning]
    # What they deny holds before anything is allowed, wherever it stands.
    answer = await plane.admin.call("PUT", path, {"rules": ["*.a.example", "!b.a.example"]})
    assert answer["warnings"] == []


async def test_a_preset_is_edited_and_comes_back(plane):
    await make(plane)
    answer = await plane.admin.call(
        "PUT", "/v1/egress/presets/development", {"rules": ["mirror.example"]}
    )
    assert answer.status == 200
    assert texts(plane) == ["mirror.example"]
    await plane.admin.delete("/v1/egress/presets/development")
    assert len(texts(plane)) > 20


async def test_allowing_puts_rules_first_and_is_audited(plane):
    box = await make(plane, egress={"mode": "none"})
    answer = await plane.admin.post("/v1/sandboxes/box/egress/allow", {"rules": ["A.example:443"]})
    assert answer["mode"] == "allowlist"
    assert texts(plane) == ["A.example:443"]
    tried = await plane.admin.post("/v1/sandboxes/box/egress/test", {"url": "https://a.example/x"})
    assert tried.body == {
        "allowed": True,
        "asked": False,
        "host": "a.example",
        "port": 443,
        "rule": "A.example:443",
        "source": "sandbox",
    }
    tried = await plane.admin.post("/v1/sandboxes/box/egress/test", {"url": "b.example:22"})
    assert (tried["allowed"], tried["rule"]) == (False, None)
    audit = (await plane.admin.get("/v1/audit"))["items"]
    (entry,) = [each for each in audit if each["action"] == "egress.changed"]
    assert entry["subject"] == box["id"]
    assert entry["detail"]["rules"] == ["A.example:443"]


@pytest.mark.parametrize("mode", ["allowlist", "open"])
async def test_a_trial_knows_what_no_rule_can_allow(plane, mode):
    rules = ["169.254.169.254:80", "10.1.2.3:80"] if mode == "allowlist" else []
    await make(plane, egress={"mode": mode, "rules": rules})
    places = {"169.254.169.254": False, "10.1.2.3": True, "10.9.9.9": mode == "open"}
    for address, allowed in places.items():
        tried = await plane.admin.post("/v1/sandboxes/box/egress/test", {"url": f"{address}:80"})
        assert tried["allowed"] is allowed, address


@pytest.mark.proves("P16")
@pytest.mark.parametrize(
    "rules",
    [["a b"], ["10.0.0.1/8"], ["GET https://a.example/x"], [""], ["x" * 501], ["a.example"] * 501],
)
async def test_rules_that_cannot_be_read_change_nothing(plane, rules):
    await make(plane)
    before = enforced(plane)
    for method, path in (
        ("POST", "/v1/sandboxes/box/egress/allow"),
        ("PUT", "/v1/sandboxes/box/egress"),
        ("PUT", "/v1/templates/plain/egress"),
        ("PUT", "/v1/apps/shop/egress"),
        ("PUT", "/v1/egress/presets/development"),
    ):
        answer = await plane.admin.call(method, path, {"rules": rules})
        assert answer.status in (400, 422), (path, answer.body)
        assert answer.error["remediation"]
    assert enforced(plane) == before
    answer = await plane.admin.post("/v1/sandboxes", {"egress": {"rules": rules}})
    assert answer.status in (400, 422)


@pytest.mark.proves("P16")
async def test_private_networks_templates_and_presets_are_the_operators(plane):
    tenant = await plane.team("tenants")
    made = await tenant.post("/v1/sandboxes", {"name": "theirs", "template": "plain"})
    assert made.status == 201, made.body
    for rule in ("10.1.0.0/16:5432", "192.168.1.1", "127.0.0.1:80"):
        answer = await tenant.post("/v1/sandboxes/theirs/egress/allow", {"rules": [rule]})
        assert (answer.status, answer.error["code"]) == (403, "forbidden"), rule
    body = {"template": "plain", "egress": {"rules": ["10.1.0.0/16:5432"]}}
    assert (await tenant.post("/v1/sandboxes", body)).status == 403
    for path in ("/v1/templates/plain/egress", "/v1/egress/presets/development"):
        assert (await tenant.call("PUT", path, {"rules": []})).status == 403
        assert (await tenant.delete(path)).status == 403
    answer = await tenant.call("PUT", "/v1/apps/shop/egress", {"rules": ["a.example"]})
    assert answer.status == 200
    assert (await plane.admin.get("/v1/apps/shop/egress")).status == 404
    answer = await plane.admin.post(f"/v1/sandboxes/{made['id']}/egress/allow", {"rules": ["a.b"]})
    assert answer.status == 404


class Told:
    """A gateway that tells the same until it is acknowledged."""

    def __init__(self, *flows: Flow) -> None:
        self.batch = FlowBatch("g1", 1, flows)

    async def close_ports(self, ports: frozenset[int]) -> None:
        """It has none."""

    async def drain(self, stored: Mapping[str, int]) -> FlowBatch | None:
        return None if stored.get("g1") == 1 else self.batch


async def test_what_gateways_saw_is_on_record_once(plane):
    box = await make(plane)
    flow = Flow(
        "ref", box["id"], "a.example", 443, True, "a.example", "sandbox", "", 3, 10, 20, 1.0, 2.0
    )
    denied = Flow(
        "ref",
        box["id"],
        "b.example",
        0,
        False,
        "",
        "",
        "no rule allows the name",
        1,
        0,
        0,
        1.0,
        2.0,
    )
    log = replace(plane.rounds.egress_log, sources={"g": Told(flow, denied)})
    assert await log.take("g") == 2
    assert await log.take("g") == 0
    told = (await plane.admin.get(f"/v1/events?subject={box['id']}&kind=egress.allowed"))["items"]
    assert [(each["data"]["host"], each["data"]["connections"]) for each in told] == [
        ("a.example", 3)
    ]
    assert told[0]["data"]["of"] == "sandbox"
    told = (await plane.admin.get(f"/v1/events?subject={box['id']}&kind=egress.denied"))["items"]
    assert told[0]["data"]["why"] == "no rule allows the name"
    assert told[0]["data"]["port"] is None


async def test_a_rule_that_an_older_version_stored_stops_nothing(plane):
    """It read parameters of paths, which servers read in two ways."""
    box = await make(plane, egress={"preset": "", "rules": ["a.example"]})
    unread = "GET http://b.example/v1;x"
    services = plane.services
    stored = await services.store.read(lambda tx: tx.sandboxes.get("", box["id"]))
    older = replace(stored.egress, rules=(unread, *stored.egress.rules))
    await services.store.write(lambda tx: tx.sandboxes.replace(replace(stored, egress=older)))
    kept = {"mode": None, "preset": None, "rules": [f"!{unread}"], "on_block": None}
    await services.store.write(lambda tx: tx.values.put("egress.template.plain", kept))
    await services.egress.apply()
    assert texts(plane) == ["!b.example", "a.example"]
    standing = await plane.admin.get(f"/v1/sandboxes/{box['id']}/egress")
    assert len(standing["warnings"]) == 2
    more = await plane.admin.post(
        f"/v1/sandboxes/{box['id']}/egress/allow", {"rules": ["c.example"]}
    )
    assert more.status == 200, more.body
    assert texts(plane) == ["!b.example", "c.example", "a.example"]


@pytest.mark.proves("P16")
async def test_open_does_not_open_what_an_operator_denies(plane):
    template = "/v1/templates/plain/egress"
    await plane.admin.call("PUT", template, {"rules": ["!bad.example"]})
    await make(plane, egress={"mode": "open", "preset": ""})
    assert enforced(plane).mode is NetworkMode.ALLOWLIST
    assert texts(plane) == ["!bad.example", "*:*", "0.0.0.0/0:*"]
    await plane.admin.delete(template)
    assert enforced(plane) == EgressPolicy(NetworkMode.OPEN), "it is open as it was made"
    await plane.admin.call("PUT", template, {"rules": ["!late.example"]})
    assert texts(plane)[0] == "!late.example"
    await plane.admin.call("PUT", "/v1/sandboxes/box/egress", {"mode": "open"})
    assert texts(plane)[0] == "!late.example"


async def test_to_begin_with_nothing_leaves_the_denials_of_template_and_app(plane):
    await plane.admin.call("PUT", "/v1/templates/plain/egress", {"rules": ["!bad.example"]})
    await plane.admin.call("PUT", "/v1/apps/shop/egress", {"rules": ["!worse.example"]})
    own = {"preset": "", "rules": ["bad.example", "worse.example"]}
    await make(plane, app="shop", egress={"mode": "allowlist", **own})
    assert [text.startswith("!") for text in texts(plane)] == [True, True, False, False]


async def test_an_app_or_a_template_is_no_preset(plane):
    await plane.admin.call("PUT", "/v1/apps/shop/egress", {"rules": ["shop.example"]})
    await plane.admin.call("PUT", "/v1/templates/plain/egress", {"rules": ["t.example"]})
    await make(plane)
    team = (await plane.admin.get("/v1/me"))["team"]["id"]
    for name in (f"app.{team}.shop", "template.plain", f"app.{team}.nothing"):
        answer = await plane.admin.call("PUT", "/v1/sandboxes/box/egress", {"preset": name})
        assert (answer.status, answer.error["code"]) == (404, "not_found"), answer.body


async def test_rules_that_come_with_paddock_are_not_dropped_from_a_preset_in_silence(plane):
    path = "/v1/egress/presets/development"
    shipped = (await plane.admin.get(path))["rules"]
    changed = await plane.admin.call("PUT", path, {"rules": [*shipped[1:], "own.example"]})
    (warning,) = changed["warnings"]
    assert f"omits 1 built-in rules: {shipped[0]};" in warning
    assert "`paddock egress rm --preset development` restores them" in warning
    assert (await plane.admin.get(path))["warnings"] == [warning]
    await plane.admin.delete(path)
    assert (await plane.admin.get(path))["warnings"] == []
