"""`/v1/sandboxes`: a sandbox as a whole."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from paddock.domain.sandbox import SandboxState
from paddock.interfaces.api.context import Given, Key, Who
from paddock.interfaces.api.lean import Lean
from paddock.interfaces.api.paging import SandboxPage
from paddock.interfaces.api.schemas.common import LabelFilter, ListOf, Text, labels_of, paged
from paddock.interfaces.api.schemas.sandboxes import (
    ChangeSandbox,
    CreateSandbox,
    ForkSandbox,
    SandboxShape,
    SetEnv,
    UsageShape,
    show,
    show_usage,
)
from paddock.ports.store import SandboxFilter

router = APIRouter(prefix="/v1/sandboxes", tags=["sandboxes"], route_class=Lean)


@router.post(
    "", status_code=201, response_model=SandboxShape, responses={202: {"model": SandboxShape}}
)
async def create(
    given: Given, who: Who, key: Key, wish: CreateSandbox
) -> SandboxShape | JSONResponse:
    """Make a sandbox. It runs when this answers; with `answer_after_s`, 202 while it is created."""
    made = await given.sandboxes.create(who, wish.read(), key, patience=wish.patience)
    if made.state is SandboxState.CREATING:
        return JSONResponse(show(made).model_dump(mode="json"), 202)
    return show(made)


@router.get("")
async def list_sandboxes(
    given: Given,
    who: Who,
    *,
    page: SandboxPage,
    label: LabelFilter = None,
    state: Annotated[list[SandboxState] | None, Query()] = None,
    name_prefix: Annotated[str, Query(max_length=63)] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    identity: Annotated[Text, Query(max_length=512)] = "",
    identity_prefix: Annotated[Text, Query(max_length=512)] = "",
) -> ListOf[SandboxShape]:
    """The team's sandboxes, newest first."""
    wanted = SandboxFilter(
        labels=labels_of(label),
        states=frozenset(state or ()),
        name_prefix=name_prefix,
        owner=owner,
        identity=identity,
        identity_prefix=identity_prefix,
    )
    found = await given.sandboxes.list(who, wanted, page)
    return paged(found, page.limit - 1, show, lambda sandbox: sandbox.id)


@router.get("/{sandbox}")
async def get(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """One sandbox, by id or name."""
    found = await given.sandboxes.get(who, sandbox)
    return show(found, await given.broker.exposed(found))


@router.patch("/{sandbox}")
async def change(given: Given, who: Who, sandbox: str, wanted: ChangeSandbox) -> SandboxShape:
    """Rename it, label it, extend its time."""
    return show(await given.sandboxes.amend(who, sandbox, wanted.read()))


@router.delete("/{sandbox}", responses={202: {"model": SandboxShape}})
async def delete(
    given: Given,
    who: Who,
    *,
    response: Response,
    sandbox: str,
    force: Annotated[bool, Query(description="even if work would be lost")] = False,
) -> SandboxShape:
    """Remove it with everything in it. 202 while its provider cannot be reached."""
    left = await given.sandboxes.delete(who, sandbox, force=force)
    if left.state is SandboxState.DELETING:
        response.status_code = 202
    return show(left)


@router.post("/{sandbox}/start")
async def start(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """Boot a stopped or archived one: same disk, environment and supervised processes."""
    return show(await given.sandboxes.start(who, sandbox))


@router.post("/{sandbox}/stop")
async def stop(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """End its processes and keep its disk."""
    return show(await given.sandboxes.stop(who, sandbox))


@router.post("/{sandbox}/archive")
async def archive(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """Keep the disk of a stopped one as a compressed copy. It takes time by the disk's size."""
    return show(await given.sandboxes.archive(who, sandbox))


@router.post("/{sandbox}/pause")
async def pause(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """Hold everything in it still and keep its memory."""
    return show(await given.sandboxes.pause(who, sandbox))


@router.post("/{sandbox}/resume")
async def resume(given: Given, who: Who, sandbox: str) -> SandboxShape:
    """Let a paused one go on where it was."""
    return show(await given.sandboxes.resume(who, sandbox))


@router.post("/{sandbox}/fork", status_code=201)
async def fork(
    given: Given, who: Who, *, key: Key, sandbox: str, wish: ForkSandbox
) -> SandboxShape:
    """A second sandbox with a copy of its disk."""
    return show(await given.sandboxes.fork(who, sandbox, wish.read(), key))


@router.get("/{sandbox}/metrics")
async def metrics(given: Given, who: Who, sandbox: str) -> UsageShape:
    """CPU, memory, disk and processes."""
    return show_usage(await given.sandboxes.usage(who, sandbox))


@router.put("/{sandbox}/env")
async def set_env(given: Given, who: Who, sandbox: str, wanted: SetEnv) -> SandboxShape:
    """Set variables for every command from now on, also after a restart of the sandbox."""
    return show(await given.environment.put(who, sandbox, wanted.env))
