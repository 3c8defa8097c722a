"""Addresses of our own for names: what a sandbox connects to says which name it asked for."""

import hashlib
import ipaddress
from collections import OrderedDict

from paddock.domain.egress.addresses import OURS

_FIRST = 16
"""The lowest are for what a sandbox is told to ask, see RESOLVER, and for the sandbox itself."""
_SPAN = OURS.num_addresses - _FIRST - 1
_MOST = 8192
RESOLVER = str(OURS[1])


class Names:
    """Both ways, for one sandbox. A name has the same address also after a restart, as a rule."""

    def __init__(self) -> None:
        self._by_name: OrderedDict[str, int] = OrderedDict()
        self._by_number: dict[int, str] = {}

    def address_of(self, name: str) -> str:
        number = self._by_name.get(name)
        if number is None:
            number = self._free(name)
            self._by_name[name], self._by_number[number] = number, name
            if len(self._by_name) > _MOST:
                _, oldest = self._by_name.popitem(last=False)
                del self._by_number[oldest]
        else:
            self._by_name.move_to_end(name)
        return str(OURS[number])

    def name_of(self, address: str) -> str | None:
        """None for an address that is not ours; empty for one that was given to no name."""
        parsed = ipaddress.IPv4Address(address)
        if parsed not in OURS:
            return None
        return self._by_number.get(int(parsed) - int(OURS.network_address), "")

    def _free(self, name: str) -> int:
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") % _SPAN
        while number + _FIRST in self._by_number:
            number = (number + 1) % _SPAN
        return number + _FIRST
