"""What an engine's refusals mean, in our own words and in one place."""

import json

from paddock.adapters.providers.docker.address import EngineAddress
from paddock.domain.errors import (
    Broken,
    Conflict,
    NotFound,
    PaddockError,
    QuotaExceeded,
    Refused,
    Unavailable,
)

_LONGEST = 600
_SUBNETS = "remove networks that are not needed (`docker network prune`), or give the engine more"
_FULL = {
    "no space left on device": "free disk space on the engine's host: `docker system prune`",
    "non-overlapping IPv4 address pool": _SUBNETS,
    "address pools have been fully subnetted": _SUBNETS,
}
"""Of what an engine's host has all is taken."""


def of_answer(status: int, body: bytes, what: str) -> PaddockError:
    """The error for an answer other than success; `what` completes "the engine could not …"."""
    return of_message(status, _message(body), what)


def of_message(status: int, said: str, what: str) -> PaddockError:
    text = f"the engine could not {what}: {said}"
    if full := next((remedy for words, remedy in _FULL.items() if words in said), ""):
        return QuotaExceeded(text, remediation=full)
    if "is already in use by" in said:
        status = 409  # Podman calls a name that is taken a failure of its own
    kinds = {404: NotFound, 409: Conflict, 429: QuotaExceeded}
    kinds |= dict.fromkeys((502, 503, 504), Unavailable)
    if status in kinds:
        return kinds[status](text)
    if status < 500:
        return Refused(text)
    rlimit = "error setting rlimit" in said
    remedy = "set a lower docker.nofile" if rlimit else "the engine's own log says more"
    return Broken(text, remediation=remedy)


def _message(body: bytes) -> str:
    """Both engines answer with {"message": …}; anything else is shown as it is, shortened."""
    try:
        said = json.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        said = body.decode(errors="replace")
    return " ".join(str(said).split())[:_LONGEST] or "it did not say why"


def unreachable(address: EngineAddress, error: OSError | str) -> Unavailable:
    """Nobody answers, with what to do about it."""
    if address.socket and isinstance(error, PermissionError):
        remedy = (
            f"let this user write to {address.socket}: `sudo usermod -aG docker $USER`, then log "
            "in again; or run as root"
        )
    elif address.socket:
        remedy = (
            "start it (`systemctl start docker`, or `podman system service -t 0`), install it "
            "(`apt-get install docker.io`), or set DOCKER_HOST to where it listens"
        )
    else:
        remedy = "check that it runs there and is reachable, or correct DOCKER_HOST"
    return Unavailable(f"no Docker engine answers at {address.text}: {error}", remediation=remedy)
