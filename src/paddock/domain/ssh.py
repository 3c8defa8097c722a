"""Who gets into which sandbox by SSH, with what, and until when."""

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from enum import StrEnum

from paddock.domain.errors import InvalidRequest, Unauthenticated
from paddock.domain.ids import is_id, new_id

PREFIX = "ssh"
DEFAULT_S = 3600.0
SHORTEST_S = 60.0
LONGEST_S = 24 * 3600.0
_SECRET_BYTES = 32
_LONGEST_KEY = 16 << 10
_RENEW = "`paddock ssh NAME` makes a new one"


class Proof(StrEnum):
    """What is shown to be let in."""

    TOKEN = "token"  # noqa: S105 - a kind, no token
    KEY = "key"


@dataclass(frozen=True, slots=True)
class SshAccess:
    """A way into one sandbox that ends by itself. What opens it is known to its holder only."""

    id: str
    team_id: str
    sandbox_id: str
    actor: str
    """Who made it, and by which token or session; the access ends with that."""
    proof: Proof
    digest: str = field(repr=False)
    """Of the token's secret, or of the public key as OpenSSH has it."""
    created_at: float
    expires_at: float
    user: str = ""
    """Whom the sandbox takes the visitor for; its usual user unless said."""
    revoked_at: float | None = None
    used_at: float | None = None

    @property
    def fingerprint(self) -> str:
        """Enough to tell one from another and to open nothing."""
        if self.proof is Proof.KEY:
            return self.digest
        return f"SHA256:{self.digest[:16]}…"

    def opens_at(self, now: float) -> bool:
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class AccessTerms:
    """What a new access is for."""

    team_id: str
    sandbox_id: str
    actor: str
    user: str
    expires_at: float


def lifetime(asked_s: float | None, now: float, not_after: float | None) -> float:
    """When it ends: clamped, and never after the token that made it."""
    wanted = DEFAULT_S if asked_s is None else asked_s
    ends = now + min(max(wanted, SHORTEST_S), LONGEST_S)
    return ends if not_after is None else min(ends, not_after)


def issue_token(terms: AccessTerms, now: float) -> tuple[SshAccess, str]:
    """An access and the token that opens it, which is shown once and kept nowhere."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    access = _access(terms, now, Proof.TOKEN, token_digest(secret))
    return access, f"{access.id}.{secret}"


def admit_key(terms: AccessTerms, public_key: str, now: float) -> SshAccess:
    """An access for whoever holds the private key of this public one."""
    return _access(terms, now, Proof.KEY, key_fingerprint(public_key))


def _access(terms: AccessTerms, now: float, proof: Proof, digest: str) -> SshAccess:
    return SshAccess(
        id=new_id(PREFIX),
        team_id=terms.team_id,
        sandbox_id=terms.sandbox_id,
        actor=terms.actor,
        proof=proof,
        digest=digest,
        created_at=now,
        expires_at=terms.expires_at,
        user=terms.user,
    )


def key_fingerprint(public_key: str) -> str:
    """As `ssh-keygen -l` shows it, of a line such as `ssh-ed25519 AAAA… comment`."""
    words = public_key.strip().split(None, 2)
    try:
        if len(words) < 2 or len(public_key) > _LONGEST_KEY:
            raise ValueError
        blob = base64.b64decode(words[1], validate=True)
        (length,) = struct.unpack_from(">I", blob)
        if blob[4 : 4 + length] != words[0].encode() or len(blob) <= 4 + length:
            raise ValueError
    except (ValueError, binascii.Error, struct.error):
        raise InvalidRequest(
            f"{public_key[:40]!r} is no public key",
            remediation="send the line of a .pub file: `ssh-ed25519 AAAA…`",
        ) from None
    return blob_fingerprint(blob)


def blob_fingerprint(blob: bytes) -> str:
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def is_token(presented: str) -> bool:
    """Whether it looks like one: then it may stand where a sandbox's name would."""
    identifier, _, secret = presented.partition(".")
    return bool(secret) and is_id(identifier, PREFIX)


def token_digest(secret: str) -> str:
    """256 random bits need no slow hash: there is nothing to guess from."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_token(access: SshAccess | None, presented: str) -> SshAccess:
    """The access that this token opens. What is unknown and what is wrong are told the same."""
    _, _, secret = presented.partition(".")
    known = access is not None and access.proof is Proof.TOKEN
    # Compared also when there is none, so that time does not tell which ids exist.
    expected = access.digest if access is not None and known else token_digest("")
    if not hmac.compare_digest(expected, token_digest(secret)) or access is None or not known:
        raise Unauthenticated(
            "this token is unknown here",
            remediation=f"check that it was copied whole; {_RENEW}",
        )
    return access


def check_valid(access: SshAccess, now: float) -> None:
    """Unauthenticated when it has been ended; for who has shown that it is theirs."""
    if access.revoked_at is not None:
        raise Unauthenticated(f"access {access.id} was revoked", remediation=_RENEW)
    if now >= access.expires_at:
        raise Unauthenticated(f"access {access.id} has expired", remediation=_RENEW)
