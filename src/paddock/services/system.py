"""Paddock itself as somebody who acts: named in events and the audit log like anyone else."""

from paddock.domain.team import Principal, Role, Scope, Team
from paddock.ports.store import Transaction


def system(team_id: str, part: str) -> Principal:
    """`part` of Paddock, acting for a team."""
    return Principal(team_id, f"paddock/{part}", Role.ADMIN, frozenset(Scope), operator=True)


def operating_team(tx: Transaction) -> Team | None:
    """The team that runs this installation, once there is one."""
    return tx.teams.operating()
