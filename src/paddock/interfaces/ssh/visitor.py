"""One connection: who it is, and which channels it may have."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import ExitStack, suppress

import asyncssh

from paddock.domain import ssh
from paddock.domain.errors import LimitExceeded, PaddockError
from paddock.interfaces.ssh import forwarding
from paddock.interfaces.ssh.config import GatewayLimits
from paddock.interfaces.ssh.doorkeeper import Doorkeeper
from paddock.interfaces.ssh.hall import Hall
from paddock.interfaces.ssh.session import Session
from paddock.interfaces.ssh.words import said
from paddock.services.ssh_access import Admitted, SshAccesses
from paddock.services.ssh_visits import SshVisits

_log = logging.getLogger(__name__)


class Visitor(asyncssh.SSHServer):
    """A stranger at first. A token in place of the name or as the password, or a key, admits."""

    def __init__(
        self,
        accesses: SshAccesses,
        visits: SshVisits,
        *,
        limits: GatewayLimits,
        doorkeeper: Doorkeeper,
        hall: Hall,
    ) -> None:
        self._accesses = accesses
        self._visits = visits
        self._limits = limits
        self._doorkeeper = doorkeeper
        self._hall = hall
        self._connection: asyncssh.SSHServerConnection | None = None
        self._peer = ""
        self._turned_away = False
        self._tries = self._keys = 0
        self._shown: Admitted | None = None
        """What was proved last, and by `auth_completed` what counts."""
        self._stay = ExitStack()
        self.admitted: Admitted | None = None
        self.sessions: set[Session] = set()

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        name = conn.get_extra_info("peername")
        self._peer = str(name[0]) if isinstance(name, tuple) else ""
        if not self._doorkeeper.lets_in(self._peer):
            self._turned_away = True
            asyncio.get_running_loop().call_soon(conn.abort)
            return
        self._doorkeeper.came(self._peer)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connection = None
        self._stay.close()
        self._hall.left(self)
        if not self._turned_away:
            self._doorkeeper.went(self._peer, known=self.admitted is not None)

    async def begin_auth(self, username: str) -> bool:
        """Whether more has to be shown than the name, which may be a token."""
        self._shown = None
        if (wait_s := self._doorkeeper.wait_s(self._peer)) > 0:
            why = f"too many wrong tokens from your address; try again in {wait_s:.0f} s"
            self._say(LimitExceeded(why))
            self.send_away(why)
            return True
        if not ssh.is_token(username):
            return True
        return not await self._check_token(username, "")

    def password_auth_supported(self) -> bool:
        return True

    async def validate_password(self, username: str, password: str) -> bool:
        return await self._check_token(password, "" if ssh.is_token(username) else username)

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Asked once before the signature and once with it; asyncssh checks that itself."""
        if ssh.is_token(username):
            return False
        try:
            shown = await self._accesses.by_key(ssh.blob_fingerprint(key.public_data), username)
        except PaddockError as error:
            self._say(error)
            shown = None
        if shown is None:
            self._keys += 1
            self._give_up(self._keys, self._limits.keys)
            return False
        # Nothing is awaited from here to auth_completed(): what is shown is what is signed.
        self._shown = shown
        return True

    def auth_completed(self) -> None:
        assert self._shown is not None
        assert self._connection is not None
        self.admitted = self._shown
        self._doorkeeper.became_known(self._peer)
        self._stay.enter_context(self._visits.staying(self.admitted))
        self._hall.came(self)
        self._connection.create_task(self._note_login(self.admitted))

    def session_requested(self) -> Session:
        admitted = self._check_room()
        session = Session(self._visits, admitted, self.sessions.discard)
        self.sessions.add(session)
        return session

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> "Awaitable[asyncssh.SSHTCPSession[bytes]]":
        del orig_host, orig_port
        admitted = self._check_room()
        forwarding.check_destination(admitted, dest_host, dest_port)
        return forwarding.forwarded(self._visits, admitted, dest_port)

    def send_away(self, why: str) -> None:
        """Told on every channel, because `ssh` leaves with the last one, and as the reason."""
        for session in self.sessions:
            session.say(why)
        if self._connection is not None:
            self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, why)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def _check_token(self, presented: str, name: str) -> bool:
        try:
            shown = await self._accesses.by_token(presented, name)
        except PaddockError as error:
            self._say(error)
            self._doorkeeper.guessed_wrong(self._peer)
            self._tries += 1
            self._give_up(self._tries, self._limits.tries)
            return False
        self._shown = shown
        return True

    def _check_room(self) -> Admitted:
        assert self.admitted is not None
        if len(self.sessions) >= self._limits.channels:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_RESOURCE_SHORTAGE,
                f"this connection has {self._limits.channels} sessions; close some",
            )
        return self.admitted

    def _give_up(self, count: int, most: int) -> None:
        if count >= most and self._connection is not None:
            self._connection.disconnect(
                asyncssh.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, "too many tries"
            )

    def _say(self, error: PaddockError) -> None:
        """Shown by `ssh` before it asks for a password or gives up."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.send_auth_banner(said(str(error)).decode())

    async def _note_login(self, admitted: Admitted) -> None:
        try:
            await self._accesses.note_login(admitted, self._peer)
        except PaddockError as error:
            _log.warning("login by ssh not noted", extra={"error": error.message})
