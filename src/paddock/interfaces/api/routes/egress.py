"""What sandboxes may reach."""

from fastapi import APIRouter, Response

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.egress import (
    AllowRules,
    EgressDecisionShape,
    EgressHeldShape,
    EgressStandingShape,
    EgressTrial,
    EgressWishShape,
    PresetNames,
    show_decision,
    show_held,
    show_preset,
    show_standing,
)
from paddock.services.egress_changes import Holder

router = APIRouter(prefix="/v1", tags=["egress"])


@router.get("/sandboxes/{sandbox}/egress")
async def get_of_sandbox(given: Given, who: Who, sandbox: str) -> EgressStandingShape:
    """What is in force for it, rule by rule, with where each comes from."""
    return show_standing(await given.egress.get(who, sandbox))


@router.put("/sandboxes/{sandbox}/egress")
async def put_on_sandbox(
    given: Given, who: Who, sandbox: str, wish: EgressWishShape
) -> EgressStandingShape:
    """Its own mode, preset and rules; in force at once, also for connections there are."""
    return show_standing(await given.egress.put(who, sandbox, wish.read()))


@router.post("/sandboxes/{sandbox}/egress/allow")
async def allow(given: Given, who: Who, sandbox: str, wanted: AllowRules) -> EgressStandingShape:
    """Rules put before its own; one that is closed begins to have an allowlist."""
    return show_standing(await given.egress.allow(who, sandbox, wanted.rules))


@router.post("/sandboxes/{sandbox}/egress/test")
async def test(given: Given, who: Who, sandbox: str, wanted: EgressTrial) -> EgressDecisionShape:
    """What would become of a connection or a request. It is not made, and no name is looked up."""
    asked = wanted.read()
    decision = await given.egress.test(who, sandbox, asked)
    return show_decision(asked, decision, await given.egress.get(who, sandbox))


@router.get("/apps/{app}/egress")
async def get_of_app(given: Given, who: Who, app: str) -> EgressHeldShape:
    """What an app's sandboxes may reach beside others' rules; 404 while nothing is set."""
    return show_held(await given.egress.of(who, Holder.APP, app), f"app {app}")


@router.put("/apps/{app}/egress")
async def put_on_app(given: Given, who: Who, app: str, wish: EgressWishShape) -> EgressHeldShape:
    """For all sandboxes of the app, at once. For admins of the team."""
    await given.egress.put_on(who, Holder.APP, app, wish.read())
    return show_held(wish.read(), f"app {app}")


@router.delete("/apps/{app}/egress", status_code=204)
async def remove_from_app(given: Given, who: Who, app: str) -> Response:
    """An app's own rules go."""
    await given.egress.put_on(who, Holder.APP, app, None)
    return Response(status_code=204)


@router.get("/templates/{template}/egress")
async def get_of_template(given: Given, who: Who, template: str) -> EgressHeldShape:
    """What a template's sandboxes may reach; 404 while nothing is set."""
    return show_held(await given.egress.of(who, Holder.TEMPLATE, template), f"template {template}")


@router.put("/templates/{template}/egress")
async def put_on_template(
    given: Given, who: Who, template: str, wish: EgressWishShape
) -> EgressHeldShape:
    """For all sandboxes of it, at once; what it denies, nobody can allow. For operators."""
    await given.egress.put_on(who, Holder.TEMPLATE, template, wish.read())
    return show_held(wish.read(), f"template {template}")


@router.delete("/templates/{template}/egress", status_code=204)
async def remove_from_template(given: Given, who: Who, template: str) -> Response:
    """A template's own rules go."""
    await given.egress.put_on(who, Holder.TEMPLATE, template, None)
    return Response(status_code=204)


@router.get("/egress/presets")
async def list_presets(given: Given, who: Who) -> PresetNames:
    """The rules that an allowlist may begin with, by name."""
    return PresetNames(items=await given.egress.presets(who))


@router.get("/egress/presets/{preset}")
async def get_preset(given: Given, who: Who, preset: str) -> EgressHeldShape:
    """The rules of a preset."""
    found = await given.egress.of(who, Holder.PRESET, preset)
    return show_preset(found, preset, given.egress.shipped.get(preset))


@router.put("/egress/presets/{preset}")
async def put_preset(given: Given, who: Who, preset: str, wish: EgressWishShape) -> EgressHeldShape:
    """Instead of the one that comes with Paddock, or a new one. For operators."""
    await given.egress.put_on(who, Holder.PRESET, preset, wish.read())
    return show_preset(wish.read(), preset, given.egress.shipped.get(preset))


@router.delete("/egress/presets/{preset}", status_code=204)
async def remove_preset(given: Given, who: Who, preset: str) -> Response:
    """The one that comes with Paddock is back, if there is one of that name."""
    await given.egress.put_on(who, Holder.PRESET, preset, None)
    return Response(status_code=204)
