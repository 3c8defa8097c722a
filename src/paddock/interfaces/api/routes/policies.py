"""`/v1/policy` and its kin: which commands may be run."""

from fastapi import APIRouter, Response

from paddock.interfaces.api.context import Given, Who
from paddock.interfaces.api.schemas.policies import (
    CheckCommand,
    PolicyShape,
    RulingShape,
    show_policy,
    show_ruling,
)
from paddock.services.policies import Holder

router = APIRouter(prefix="/v1", tags=["policies"])


@router.get("/policy")
async def get_of_team(given: Given, who: Who) -> PolicyShape:
    """The team's policy; 404 while it has none, and forbids nothing."""
    return show_policy(await given.policies.get(who, Holder.TEAM, who.team_id))


@router.put("/policy")
async def put_on_team(given: Given, who: Who, policy: PolicyShape) -> PolicyShape:
    """Which commands may be run in any of the team's sandboxes, from now on. For its admins."""
    await given.policies.put(who, Holder.TEAM, who.team_id, policy.read())
    return policy


@router.delete("/policy", status_code=204)
async def remove_from_team(given: Given, who: Who) -> Response:
    """The team's policy goes."""
    await given.policies.put(who, Holder.TEAM, who.team_id, None)
    return Response(status_code=204)


@router.get("/templates/{template}/policy")
async def get_of_template(given: Given, who: Who, template: str) -> PolicyShape:
    """A template's policy; 404 while it has none."""
    return show_policy(await given.policies.get(who, Holder.TEMPLATE, template))


@router.put("/templates/{template}/policy")
async def put_on_template(
    given: Given, who: Who, template: str, policy: PolicyShape
) -> PolicyShape:
    """Which commands may be run in any sandbox of it, from now on. For the installation's
    admins."""
    await given.policies.put(who, Holder.TEMPLATE, template, policy.read())
    return policy


@router.delete("/templates/{template}/policy", status_code=204)
async def remove_from_template(given: Given, who: Who, template: str) -> Response:
    """A template's policy goes."""
    await given.policies.put(who, Holder.TEMPLATE, template, None)
    return Response(status_code=204)


@router.get("/sandboxes/{sandbox}/policy")
async def get_of_sandbox(given: Given, who: Who, sandbox: str) -> PolicyShape:
    """A sandbox's own policy; 404 while it has none. Its team's and its template's apply too."""
    return show_policy(await given.policies.get(who, Holder.SANDBOX, sandbox))


@router.put("/sandboxes/{sandbox}/policy")
async def put_on_sandbox(given: Given, who: Who, sandbox: str, policy: PolicyShape) -> PolicyShape:
    """Which commands may be run in it, from now on. For admins of the team."""
    await given.policies.put(who, Holder.SANDBOX, sandbox, policy.read())
    return policy


@router.delete("/sandboxes/{sandbox}/policy", status_code=204)
async def remove_from_sandbox(given: Given, who: Who, sandbox: str) -> Response:
    """Its own policy goes."""
    await given.policies.put(who, Holder.SANDBOX, sandbox, None)
    return Response(status_code=204)


@router.post("/sandboxes/{sandbox}/policy/check")
async def check(given: Given, who: Who, sandbox: str, command: CheckCommand) -> RulingShape:
    """What would become of a command under all policies that apply. It is not run."""
    return show_ruling(await given.policies.ask(who, sandbox, command.cmd, command.env))
