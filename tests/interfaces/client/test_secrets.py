"""Secrets and their bindings, by the SDK against a live server."""

from datetime import UTC, datetime, timedelta

import pytest

from paddock import AsyncSandbox, AsyncSecrets, InvalidRequest, NotFound, Sandbox, Secrets


@pytest.fixture
async def closing(server):
    """The same server, whose connections are closed in the end."""
    async with server:
        yield server


@pytest.mark.proves("K5")
async def test_a_secret_is_set_listed_bound_and_let_go(closing):
    server = closing
    known = await AsyncSecrets.set("API_KEY", "the-value", server=server)
    assert (known.name, known.version, known.sensitive) == ("API_KEY", 1, True)
    assert (await AsyncSecrets.set("API_KEY", "another", server=server)).version == 2
    listed = [each async for each in AsyncSecrets.list(server=server)]
    assert [each.name for each in listed] == ["API_KEY"]
    assert "another" not in repr(listed)

    later = datetime.now(UTC) + timedelta(hours=8)
    made = await AsyncSecrets.bind(
        "API_KEY",
        hosts=["api.example.com"],
        header="X-Key",
        form="token {}",
        sandboxes=["demo"],
        expires_at=later,
        server=server,
    )
    assert (made.way, made.hosts, made.format) == ("header", ["api.example.com"], "token {}")
    assert (made.env, made.sandboxes, made.expires_at) == ("API_KEY", ["demo"], later)
    await AsyncSecrets.bind("API_KEY", "git", hosts=["git.example.com"], server=server)
    await AsyncSecrets.bind("API_KEY", "query", hosts=["a.b"], parameter="key", server=server)
    found = await AsyncSecrets.bindings("API_KEY", server=server)
    assert {each.way for each in found} == {"header", "git", "query"}
    await AsyncSecrets.unbind("API_KEY", server=server)
    await AsyncSecrets.unbind("API_KEY", "query", server=server)
    (left,) = await AsyncSecrets.bindings(server=server)
    assert (left.way, left.user) == ("git", "x-access-token")
    with pytest.raises(InvalidRequest, match="bound to no host"):
        await AsyncSecrets.bind("API_KEY", hosts=[], server=server)
    with pytest.raises(NotFound):
        await AsyncSecrets.bind("NONE", hosts=["a.b"], server=server)
    await AsyncSecrets.unbind("API_KEY", "git", server=server)
    await AsyncSecrets.delete("API_KEY", server=server)
    assert [each async for each in AsyncSecrets.list(server=server)] == []


async def test_a_sandbox_says_what_it_has_and_what_its_models_took(closing):
    server = closing
    await AsyncSecrets.set("MODEL_KEY", "the-value", app="shop", server=server)
    route = await AsyncSecrets.bind_model(
        "MODEL_KEY", "anthropic", spend_limit_usd=5, app="shop", server=server
    )
    assert (route.route, route.spend_limit_usd, route.app) == ("anthropic", 5.0, "shop")
    own = {"base_url": "https://llm.example.com/v1", "app": "shop", "server": server}
    await AsyncSecrets.set("OWN_KEY", "the-value", app="shop", server=server)
    await AsyncSecrets.bind_model("OWN_KEY", "own", **own)
    async with await AsyncSandbox.create("plain", app="shop", server=server) as box:
        standing = {each.binding.secret: each for each in await box.credentials()}
        assert set(standing) == {"MODEL_KEY", "OWN_KEY"}
        assert standing["MODEL_KEY"].placeholder.startswith("pdk-MODEL_KEY-")
        # The simulated provider has no gateway, and says so.
        assert not standing["MODEL_KEY"].works
        assert standing["MODEL_KEY"].why_not
        spending = await box.models()
        assert (spending.account, spending.spent_usd) == (f"sandbox {box.id}", 0.0)
        assert spending.used == []
        urls = {each.route: (each.variable, each.spend_limit_usd) for each in spending.routes}
        assert urls == {"anthropic": ("ANTHROPIC_BASE_URL", 5.0), "own": ("OWN_BASE_URL", None)}
    for name in ("MODEL_KEY", "OWN_KEY"):
        await AsyncSecrets.unbind(name, "model", app="shop", server=server)
        await AsyncSecrets.delete(name, app="shop", server=server)


def test_the_same_without_an_event_loop(server):
    Secrets.set("PLAIN", "the-value", server=server)
    Secrets.bind_model("PLAIN", "openai", spend_limit_usd=0.5, server=server)
    (route,) = Secrets.bindings(server=server)
    with Sandbox.create("plain", server=server) as box:
        assert [each.binding for each in box.credentials()] == [route]
        assert box.models().routes[0].spend_limit_usd == 0.5
    Secrets.unbind("PLAIN", "model", server=server)
    Secrets.delete("PLAIN", server=server)
    assert list(Secrets.list(server=server)) == []
