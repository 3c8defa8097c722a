"""How a connection to a user's port in a sandbox is opened."""

import socket
from typing import Protocol

from paddock.ports.provider import Endpoint


class Dialer(Protocol):
    """Opens connections to endpoints, wherever a provider says they are."""

    async def __call__(self, endpoint: Endpoint) -> socket.socket:
        """A connected, non-blocking socket that belongs to the caller; OSError when there is none
        to be had, ConnectionRefusedError when nobody listens there."""
        ...
