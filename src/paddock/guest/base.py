"""The plain routes: what the guest uses, and what it shall be."""

from __future__ import annotations

from . import fields
from .connect import Call, dump, load, refuse
from .errors import GuestError
from .state import GuestState

_INIT_LIMIT = 4 << 20


def methods(state: GuestState) -> dict[str, object]:
    return {
        "GET /envs": envs,
        "POST /init": init,
    }


async def envs(call: Call) -> None:
    call.exchange.respond(200, dump(call.state.env), ("content-type", "application/json"))


async def init(call: Call) -> None:
    """Tell the guest who it is. A field that is left out stays as it is."""
    try:
        message = load(await call.exchange.read_all(_INIT_LIMIT))
        state = call.state
        env = fields.mapping(message, "envVars")
        token = fields.text(message, "accessToken", state.token)
        user = fields.text(message, "defaultUser", state.default_user)
        workdir = fields.text(message, "defaultWorkdir", state.workdir)
        sandbox_id = fields.text(message, "sandboxId", state.sandbox_id)
    except GuestError as error:
        refuse(call.exchange, error)
        return
    state.env.update(env)
    state.token, state.default_user, state.workdir = token, user, workdir
    state.rename(sandbox_id)
    call.exchange.respond(204)
