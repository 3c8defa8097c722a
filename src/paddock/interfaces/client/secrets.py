"""Secrets, and where sandboxes may use them without having them."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from paddock.interfaces.client.credentials import BindingInfo, SecretInfo
from paddock.interfaces.client.results import read
from paddock.interfaces.client.server import Server, segment, without_nothing

_PATH = "/v1/secrets"


class AsyncSecrets:
    """Those of your team, or of one of its apps."""

    @classmethod
    async def set(
        cls,
        name: str,
        value: str,
        *,
        policy: str = "",
        app: str = "",
        server: Server | None = None,
    ) -> SecretInfo:
        """From now on this is its value, also where it is bound. It can be used, never read again.

        `policy` says where the value itself may go: `control_plane_only` unless said.
        """
        wish = without_nothing(value=value, policy=policy or None)
        answer = await _put(server, f"{_PATH}/{segment(name)}", wish, app)
        return read(SecretInfo, answer)

    @classmethod
    async def list(
        cls, *, app: str = "", server: Server | None = None
    ) -> AsyncIterator[SecretInfo]:
        """All of them by name, without their values."""
        async for item in (server or Server()).pages(_PATH, {"app": app}):
            yield read(SecretInfo, item)

    @classmethod
    async def delete(cls, name: str, *, app: str = "", server: Server | None = None) -> None:
        """Its value is gone; requests that need it are answered with who can set it again."""
        path = f"{_PATH}/{segment(name)}"
        await (server or Server()).call("DELETE", path, query={"app": app})

    @classmethod
    async def bind(
        cls,
        name: str,
        way: str = "header",
        *,
        hosts: Sequence[str],
        header: str = "",
        form: str = "",
        user: str = "",
        parameter: str = "",
        env: str = "",
        sandboxes: Sequence[str] = (),
        expose: bool = False,
        expires_at: datetime | None = None,
        app: str = "",
        server: Server | None = None,
    ) -> BindingInfo:
        """Requests of sandboxes to these hosts have it from now on; inside there is a placeholder.

        `way` is `header`, `basic`, `query`, `git`, `registry` or `placeholder`; `header` and
        `form`, `user` and `parameter` belong to one way each. What was bound in the same way
        before is not any more. `expose` puts the value itself inside.
        """
        wish = without_nothing(
            hosts=list(hosts),
            header=header or None,
            format=form or None,
            user=user or None,
            parameter=parameter or None,
            env=env or None,
            sandboxes=list(sandboxes) or None,
            expose=expose or None,
            expires_at=_moment(expires_at),
        )
        answer = await _put(server, f"{_PATH}/{segment(name)}/bindings/{segment(way)}", wish, app)
        return read(BindingInfo, answer)

    @classmethod
    async def bind_model(
        cls,
        name: str,
        route: str,
        *,
        base_url: str = "",
        spend_limit_usd: float | None = None,
        env: str = "",
        sandboxes: Sequence[str] = (),
        expires_at: datetime | None = None,
        app: str = "",
        server: Server | None = None,
    ) -> BindingInfo:
        """Sandboxes find a model API under a name of their own, and the key stays outside.

        `route` is `anthropic`, `openai`, `gemini`, `openrouter` or, with the `base_url` of an
        OpenAI-compatible server, a name of yours. The limit is of each sandbox, or of all that
        have the same label `task`; bound again with another one, that holds at once.
        """
        wish = without_nothing(
            route=route,
            base_url=base_url or None,
            spend_limit_usd=spend_limit_usd,
            env=env or None,
            sandboxes=list(sandboxes) or None,
            expires_at=_moment(expires_at),
        )
        answer = await _put(server, f"{_PATH}/{segment(name)}/bindings/model", wish, app)
        return read(BindingInfo, answer)

    @classmethod
    async def unbind(
        cls, name: str, way: str = "header", *, app: str = "", server: Server | None = None
    ) -> None:
        """It is sent nowhere in this way any more; `model` takes a route away."""
        path = f"{_PATH}/{segment(name)}/bindings/{segment(way)}"
        await (server or Server()).call("DELETE", path, query={"app": app})

    @classmethod
    async def bindings(
        cls, name: str = "", *, app: str = "", server: Server | None = None
    ) -> Sequence[BindingInfo]:
        """Where all of them may be sent, or one."""
        query = {"app": app, "secret": name}
        answer = await (server or Server()).call("GET", "/v1/bindings", query=query)
        return [read(BindingInfo, item) for item in answer["items"]]


async def _put(server: Server | None, path: str, wish: object, app: str) -> Any:
    return await (server or Server()).call("PUT", path, json=wish, query={"app": app})


def _moment(at: datetime | None) -> str | None:
    return at.isoformat() if at is not None else None
