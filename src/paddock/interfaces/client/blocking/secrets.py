"""Secrets, and where sandboxes may use them without having them.

Written by scripts/blocking.py; do not edit.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from paddock.interfaces.client.credentials import BindingInfo, SecretInfo
from paddock.interfaces.client.portal import portal
from paddock.interfaces.client.secrets import AsyncSecrets
from paddock.interfaces.client.server import Server


class Secrets:
    """Those of your team, or of one of its apps."""

    _inner: AsyncSecrets

    def __init__(self, inner: AsyncSecrets) -> None:
        self._inner = inner

    @classmethod
    def set(
        cls, name: str, value: str, *, policy: str = "", app: str = "", server: Server | None = None
    ) -> SecretInfo:
        """From now on this is its value, also where it is bound. It can be used, never read again.

        `policy` says where the value itself may go: `control_plane_only` unless said.
        """
        return portal().run(AsyncSecrets.set(name, value, policy=policy, app=app, server=server))

    @classmethod
    def list(cls, *, app: str = "", server: Server | None = None) -> Iterator[SecretInfo]:
        """All of them by name, without their values."""
        return portal().each(AsyncSecrets.list(app=app, server=server))

    @classmethod
    def delete(cls, name: str, *, app: str = "", server: Server | None = None) -> None:
        """Its value is gone; requests that need it are answered with who can set it again."""
        portal().run(AsyncSecrets.delete(name, app=app, server=server))

    @classmethod
    def bind(
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
        return portal().run(
            AsyncSecrets.bind(
                name,
                way,
                hosts=hosts,
                header=header,
                form=form,
                user=user,
                parameter=parameter,
                env=env,
                sandboxes=sandboxes,
                expose=expose,
                expires_at=expires_at,
                app=app,
                server=server,
            )
        )

    @classmethod
    def bind_model(
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
        return portal().run(
            AsyncSecrets.bind_model(
                name,
                route,
                base_url=base_url,
                spend_limit_usd=spend_limit_usd,
                env=env,
                sandboxes=sandboxes,
                expires_at=expires_at,
                app=app,
                server=server,
            )
        )

    @classmethod
    def unbind(
        cls, name: str, way: str = "header", *, app: str = "", server: Server | None = None
    ) -> None:
        """It is sent nowhere in this way any more; `model` takes a route away."""
        portal().run(AsyncSecrets.unbind(name, way, app=app, server=server))

    @classmethod
    def bindings(
        cls, name: str = "", *, app: str = "", server: Server | None = None
    ) -> Sequence[BindingInfo]:
        """Where all of them may be sent, or one."""
        return portal().run(AsyncSecrets.bindings(name, app=app, server=server))
