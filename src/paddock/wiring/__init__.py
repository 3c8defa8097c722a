"""Composition root: the only module that knows adapters and interfaces together."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from paddock import telemetry
from paddock.domain.errors import InvalidRequest, Unsupported
from paddock.interfaces.cli import toolbox as cli
from paddock.interfaces.cli.toolbox import (
    Opened,
    Progress,
    Recipes,
    Report,
    Section,
    ServerWish,
    Toolbox,
    Verdict,
)
from paddock.ports.provider import Finding, Provider
from paddock.settings import Settings, load
from paddock.wiring import providers
from paddock.wiring.providers import AUTO, Look, Opener


def toolbox(config: Path | None, log_level: str | None) -> Toolbox:
    """What the command line is given, made from the settings of this process."""
    settings = load(config)
    telemetry.set_up(log_level or settings.log.level)
    return Toolbox(
        open=partial(_open, settings),
        inspect=partial(_inspect, settings),
        conform=partial(_conform, settings),
        serve=partial(_serve, settings),
        recipes=partial(_recipes, settings),
        scripted_model=_scripted_model,
        update_check_url=settings.update_check_url,
    )


async def _serve(
    settings: Settings, wish: ServerWish, progress: Progress, ready: Callable[[str], None]
) -> None:
    from paddock.wiring.server import serve

    wished: dict[str, Any] = {"host": wish.host, "port": wish.port, "data_dir": wish.data_dir}
    given = {name: value for name, value in wished.items() if value is not None}
    settings = replace(settings, server=replace(settings.server, **given))
    if wish.data_dir is not None:
        local = replace(settings.local, data_dir=wish.data_dir.absolute())
        settings = replace(settings, local=local)
    await serve(settings, auth=wish.auth, progress=progress, ready=ready)


@asynccontextmanager
async def _open(settings: Settings, wish: str, progress: Progress) -> AsyncIterator[Opened]:
    name = await providers.choose(wish or settings.provider, providers.looks(settings))
    async with Opener(settings, progress) as opener:
        bare = await opener.open(name)
        provider = providers.layered(bare)
        try:
            yield Opened(
                provider,
                prepare=partial(opener.prepare, bare),
                templates=opener.templates(bare),
            )
        finally:
            await provider.aclose()


async def _recipes(settings: Settings, wish: str) -> Recipes:
    """To open a provider would make its pool, which nobody needs to change a recipe."""
    from paddock.adapters.providers.local.templates import recipes
    from paddock.wiring.engine_templates import own_directory

    name = await providers.choose(wish or settings.provider, providers.looks(settings))
    if name not in ("local", "docker"):
        raise Unsupported(
            f"provider {name} keeps no templates of its own",
            remediation="add --provider local, or run `export PADDOCK_PROVIDER=local`",
        )
    shared = name == "local" or os.geteuid() == 0
    place = settings.local.data_dir.absolute() if shared else own_directory(settings.local)
    return recipes.Recipes(place / "templates")


@asynccontextmanager
async def _scripted_model(path: Path, port: int) -> AsyncIterator[str]:
    from paddock.testing.models import BadScript, ScriptedModel, load_scripts

    try:
        scripts = load_scripts(path)
    except BadScript as error:
        raise InvalidRequest(
            str(error), remediation="docs/how-to/test-agents-without-a-model.md has an example"
        ) from error
    async with ScriptedModel(*scripts, port=port) as model:
        yield model.url


async def _inspect(settings: Settings, wish: str) -> Report:
    """Every provider is looked at; the one that would be used must lack nothing."""
    wish = wish or settings.provider
    looks: dict[str, Look] = providers.looks(settings)
    if wish not in (AUTO, *looks):
        looks[wish] = _unseen
    found = {name: await look() for name, look in looks.items()}
    working = [name for name, findings in found.items() if not providers.lacking(findings)]
    chosen = wish if wish != AUTO else next(iter(working), "")
    if chosen in working:
        found[chosen] = await providers.health(chosen, settings, found[chosen])
    lacks = {name: providers.lacking(found[name]) for name in found if wish in (AUTO, name)}
    sections = tuple(Section(name, tuple(found[name]), name == chosen) for name in found)
    return Report(sections, advice=providers.ways_out(lacks))


async def _unseen() -> tuple[Finding, ...]:
    """A provider that says all there is to say once it is open."""
    return ()


async def _conform(
    settings: Settings,
    wish: str,
    terms: cli.Terms,
    *,
    hear: Callable[[Verdict], None],
    progress: Progress,
) -> None:
    from paddock.testing.conformance import CHECKS, Outcome, Terms, run_conformance

    name = await providers.choose(wish, providers.looks(settings))

    def report(outcome: Outcome) -> None:
        hear(
            Verdict(
                name=outcome.name,
                says=outcome.says,
                seconds=outcome.seconds,
                total=len(CHECKS),
                refused=outcome.refused,
                fault="" if outcome.passed else outcome.problem or "failed",
            )
        )

    async with Opener(settings, progress) as opener:
        bare = await opener.open(name)
        try:
            await opener.prepare(bare, terms.template)
        finally:
            await bare.aclose()

        async def fresh() -> Provider:
            return providers.layered(await opener.open(name))

        await run_conformance(fresh, Terms(terms.template, image=terms.image), report)
