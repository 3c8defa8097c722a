"""Secrets, their bindings, and the broker between vault and gateways."""

import secrets
from typing import Protocol

from paddock.adapters.egress.prices import shipped_prices
from paddock.ports.clock import SystemClock
from paddock.ports.store import Store
from paddock.ports.vault import Vault
from paddock.services.bindings import Bindings
from paddock.services.broker import Broker
from paddock.services.changes import Changes
from paddock.services.egress import Egress
from paddock.services.environment import Configuration
from paddock.services.exposing import Exposing
from paddock.services.guests import Guests
from paddock.services.headers import Headers
from paddock.services.lent import Lent
from paddock.services.making import Making
from paddock.services.providers import Providers
from paddock.services.secrets import Secrets
from paddock.services.spending import Spending


class Parts(Protocol):
    """What these are made of."""

    store: Store
    making: Making
    changes: Changes
    guests: Guests
    egress: Egress
    providers: Providers


async def brokered(parts: Parts, vault: Vault) -> tuple[Secrets, Bindings, Broker, Headers]:
    """With the bindings that are kept."""
    clock = SystemClock()
    held = Secrets(parts.store, clock, vault)
    bindings = Bindings(parts.store, clock, held)
    headers = Headers(parts.store, clock, changes=parts.changes, secrets=held, vault=vault)
    broker = Broker(
        parts.store,
        clock,
        held,
        bindings,
        changes=parts.changes,
        exposing=Exposing(parts.store, clock, held, bindings, guests=parts.guests),
        lent=Lent(parts.store, vault, held),
        networks=parts.egress,
        gateways=parts.providers.flows,
        spending=Spending(parts.store, clock, parts.providers.flows, shipped_prices()),
        headers=headers,
        key=await _placeholder_key(parts.store),
    )
    configuration = Configuration(held, parts.guests, broker)
    parts.making.configure, parts.making.concerns = configuration.give, configuration.concerns
    await bindings.load()
    await headers.load()
    return held, bindings, broker, headers


async def _placeholder_key(store: Store) -> bytes:
    """What placeholders are made with: the installation's, for good."""
    key = await store.write(lambda tx: tx.values.add("placeholder-key", secrets.token_hex(32)))
    return bytes.fromhex(str(key))
