"""Which provider is taken, and what is said when none can be."""

from pathlib import Path

import pytest

from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.local.config import LocalConfig
from paddock.domain.errors import NotFound, Unavailable
from paddock.ports.provider import Finding, Provider, Status
from paddock.settings import Settings
from paddock.wiring import providers
from paddock.wiring.engine_templates import own_directory

FINE = Finding("kernel", Status.OK, "6.1")
WORSE = Finding("storage", Status.DEGRADED, "copies", "install btrfs-progs")
NO_ROOT = Finding("privileges", Status.MISSING, "uid 1000", "run as root (sudo)")
NO_ENGINE = Finding("engine", Status.MISSING, "no socket", "start Podman")


def seeing(*findings: Finding) -> providers.Look:
    async def look() -> tuple[Finding, ...]:
        return findings

    return look


async def choice(wish: str, **found: list[Finding]) -> str:
    return await providers.choose(wish, {name: seeing(*seen) for name, seen in found.items()})


async def test_auto_takes_local_when_nothing_is_missing_there():
    assert await choice("auto", local=[FINE, WORSE], docker=[FINE]) == "local"


async def test_auto_takes_docker_when_local_lacks_something():
    assert await choice("auto", local=[FINE, NO_ROOT], docker=[FINE]) == "docker"


async def test_a_provider_that_works_keeps_the_others_from_being_looked_at():
    async def never() -> list[Finding]:
        raise AssertionError("looked at in vain")

    assert await providers.choose("auto", {"local": seeing(FINE), "docker": never}) == "local"


async def test_a_provider_that_was_named_is_taken_without_a_look():
    assert await choice("docker", local=[FINE], docker=[NO_ENGINE]) == "docker"


async def test_when_nothing_works_the_error_says_what_is_missing_and_every_way_out():
    with pytest.raises(Unavailable) as caught:
        await choice("auto", local=[FINE, NO_ROOT], docker=[NO_ENGINE])
    assert "local: privileges (uid 1000)" in caught.value.message
    assert "docker: engine (no socket)" in caught.value.message
    assert caught.value.remediation.splitlines() == [
        "one of these is enough:",
        "    local: run as root (sudo)",
        "    docker: start Podman",
    ]


@pytest.mark.proves("P3")
async def test_an_unknown_provider_is_not_found_and_the_known_ones_are_named():
    async with providers.Opener(Settings(), lambda *_: None) as opener:
        with pytest.raises(NotFound, match=r"no provider 'lokal'; registered are: docker, local"):
            await opener.open("lokal")


def test_every_registered_provider_can_be_imported():
    from paddock.adapters.providers import registry

    for name in registry.names():
        kind = registry.load(name)
        methods = {method for method in vars(Provider) if not method.startswith("_")}
        assert methods <= set(dir(kind))
        assert getattr(kind, "name") == name  # noqa: B009 - a factory to mypy, a class in truth


async def test_the_host_and_the_engine_are_looked_at_without_opening_anything(tmp_path):
    settings = Settings(docker=DockerConfig(host=f"unix://{tmp_path}/none.sock"))
    looks = providers.looks(settings)
    assert list(looks) == ["local", "docker"]
    local, docker = [await look() for look in looks.values()]
    assert "kernel" in {finding.name for finding in local}
    (engine,) = providers.lacking(docker)
    assert str(tmp_path) in engine.found
    assert engine.fix
    assert list(tmp_path.iterdir()) == []


def test_templates_of_a_user_are_where_the_settings_or_the_users_own_data_are():
    config = LocalConfig()
    assert own_directory(config, {"XDG_DATA_HOME": "/data"}) == Path("/data/paddock")
    assert own_directory(config, {}) == Path.home() / ".local/share/paddock"
    assert own_directory(LocalConfig(data_dir=Path("/mine")), {}) == Path("/mine")
