"""`/v1/sandboxes/{sandbox}/ssh`: ways in for a plain ssh client."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from paddock.domain.ssh import DEFAULT_S, Proof, SshAccess
from paddock.interfaces.api.context import Given, Key, Services, Who
from paddock.interfaces.api.paging import SshPage
from paddock.interfaces.api.schemas.common import ListOf, Shape, Text, at, moment, paged
from paddock.services.ssh_access import AccessWish

router = APIRouter(prefix="/v1/sandboxes/{sandbox}", tags=["ssh"])
_USUAL_PORT = 22


class CreateSshAccess(Shape):
    """A way in that is to be: by a key, or by a token that is shown."""

    public_key: Annotated[
        Text, Field(max_length=16384, description="`ssh-ed25519 AAAA…`; who holds it is let in")
    ] = ""
    reveal: Annotated[
        bool, Field(description="without a key: make a token and show it, this once")
    ] = False
    lasts_s: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="clamped to between a minute and a day, and to your own token's end",
        ),
    ] = DEFAULT_S
    user: Annotated[
        Text, Field(max_length=64, description="whom the sandbox takes you for, such as root")
    ] = ""


class SshAccessShape(Shape):
    """A way in, without what opens it."""

    id: str
    sandbox_id: str
    proof: Proof
    fingerprint: str = Field(description="tells one from another, and opens nothing")
    user: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    used_at: datetime | None


class NewSshAccess(SshAccessShape):
    """A way in, with all that a client needs."""

    host: str
    port: int
    user_name: str = Field(description="who to log in as: the sandbox")
    token: str | None = Field(
        description="the password; also usable instead of the user name. Shown this once"
    )
    host_key: str = Field(description="the server's, as a known_hosts file has it")
    command: str


class Revoked(Shape):
    """How many ways in were ended."""

    revoked: int


@router.post("/ssh", status_code=201)
async def create(
    request: Request, given: Given, who: Who, *, key: Key, sandbox: str, wanted: CreateSshAccess
) -> NewSshAccess:
    """Make a way in for `ssh`, `scp`, `sftp` and `rsync`. It ends by itself.

    It is for this sandbox alone, and for as long as the token that made it is valid. Logins that
    are open when it expires stay; they end when it is revoked.
    """
    who_may = AccessWish(wanted.public_key, wanted.reveal, wanted.lasts_s, wanted.user)
    await given.sandboxes.get(who, sandbox)  # another team's is no matter of the gateway's
    bound = given.ssh.gate.check_open()
    access, found, token = await given.ssh.accesses.create(who, sandbox, who_may, key)
    host, port = _outside(request, given, bound)
    flag = "" if port == _USUAL_PORT else f"-p {port} "
    return NewSshAccess(
        **dict(_show(access)),
        host=host,
        port=port,
        user_name=found.id,
        token=token or None,
        host_key=given.ssh.gate.host_key,
        command=f"ssh {flag}{found.id}@{host}",
    )


@router.get("/ssh")
async def list_accesses(
    given: Given, who: Who, *, sandbox: str, page: SshPage
) -> ListOf[SshAccessShape]:
    """The ways in that there are and were, newest first."""
    found = await given.ssh.accesses.list(who, sandbox, page)
    return paged(found, page.limit - 1, _show, lambda access: access.id)


@router.delete("/ssh")
async def revoke_all(given: Given, who: Who, sandbox: str) -> Revoked:
    """End every way in. Whoever came in by one is sent away within seconds."""
    return Revoked(revoked=await given.ssh.accesses.revoke_all(who, sandbox))


@router.delete("/ssh/{access}")
async def revoke(given: Given, who: Who, *, sandbox: str, access: str) -> SshAccessShape:
    """End one way in. Whoever came in by it is sent away within seconds."""
    return _show(await given.ssh.accesses.revoke(who, sandbox, access))


def _outside(request: Request, given: Services, bound: int) -> tuple[str, int]:
    """As the settings say, or by the name by which the caller came here."""
    if given.ssh.public:
        host, _, port = given.ssh.public.rpartition(":")
        return (host.strip("[]"), int(port)) if host and port.isdigit() else (given.ssh.public, 22)
    return request.url.hostname or "127.0.0.1", bound


def _show(access: SshAccess) -> SshAccessShape:
    return SshAccessShape(
        id=access.id,
        sandbox_id=access.sandbox_id,
        proof=access.proof,
        fingerprint=access.fingerprint,
        user=access.user,
        created_by=access.actor,
        created_at=at(access.created_at),
        expires_at=at(access.expires_at),
        revoked_at=moment(access.revoked_at),
        used_at=moment(access.used_at),
    )
