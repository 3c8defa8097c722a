"""Who acts where nobody has to say who they are."""

from dataclasses import replace

from paddock.domain.team import Principal
from paddock.ports.store import Store
from paddock.services.system import operating_team, system


async def anyone(store: Store) -> Principal:
    """The system itself, in the team that runs the installation."""

    operators = await store.read(operating_team)
    assert operators is not None, "it was made at the first start"
    return replace(system(operators.id, "anyone"), actor="anyone")
