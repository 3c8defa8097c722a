"""Templates of the local provider, as the server wires them."""

from dataclasses import replace

from paddock.domain.event import EventKind
from paddock.domain.ids import new_ulid
from paddock.services.events import Interest
from paddock.settings import Settings
from paddock.wiring.opened import in_use
from paddock.wiring.server import assembled
from tests.engines import local_config


async def test_a_template_is_added_built_with_its_progress_told_and_removed(tmp_path):
    settings = Settings(provider="local", local=replace(local_config(), warm={}))
    settings = replace(settings, server=replace(settings.server, data_dir=tmp_path))
    name = f"steps-{new_ulid()[-8:]}"
    async with (
        in_use(settings, lambda _text, _fraction: None) as providers,
        assembled(settings, providers, auth=False) as plane,
    ):
        who, templates = plane.services.anyone, plane.services.templates
        base = (await templates.get(who, "", "base")).template
        await templates.add(who, "", replace(base, name=name, setup=(f": {name}",)))
        try:
            steps = [step async for step in await templates.build(who, "local", name)]
        finally:
            await templates.remove(who, "", name)
        said = [step.text for step in steps if step is not None]
        assert f"set-up: : {name}" in said
        assert said[-1] == "ready"
        told = await plane.services.events.page(Interest(subject=name), 0, 10)
        assert [e.kind for e in told] == [EventKind.TEMPLATE_BUILT, EventKind.TEMPLATE_REMOVED]
