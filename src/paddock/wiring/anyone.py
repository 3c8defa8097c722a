"""Who acts where nobody has to say who they are."""

from dataclasses import replace

from paddock.domain.team import Principal
from paddock.ports.store import Page, Store, Transaction
from paddock.services.system import system


async def anyone(store: Store) -> Principal:
    """The system itself, in the team that runs the installation."""

    def first(tx: Transaction) -> str:
        return next(team.id for team in tx.teams.list(Page(1000)) if team.operator)

    return replace(system(await store.read(first), "anyone"), actor="anyone")
