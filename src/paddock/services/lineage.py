"""Which tokens and sessions came of which: who makes another for itself is still the same one."""

from paddock.domain.session import SESSION_PREFIX
from paddock.domain.team import TOKEN_PREFIX, Principal
from paddock.ports.store import Transaction

_LONGEST = 32


def lineage_of(tx: Transaction, actor: str) -> tuple[str, ...]:
    """The token or session by which somebody acts, the one that has made it, and so on."""
    means = actor.rpartition("/")[2]
    made_with: tuple[str, ...] = ()
    if means.startswith(f"{TOKEN_PREFIX}_"):
        token = tx.tokens.get(means)
        made_with = token.made_with if token is not None else ()
    elif means.startswith(f"{SESSION_PREFIX}_"):
        session = tx.sessions.get(means)
        made_with = session.made_with if session is not None else ()
    else:
        return ()
    # Written down whole, because sessions are forgotten. The nearest and the first stay.
    whole = (means, *made_with)
    return whole if len(whole) <= _LONGEST else (*whole[: _LONGEST - 1], whole[-1])


def lineage_for(tx: Transaction, principal: Principal, person_id: str) -> tuple[str, ...]:
    """Of what somebody makes for a person, or for nobody in particular. What is given to another
    person is that person's alone."""
    is_given_away = person_id not in ("", principal.person_id)
    return () if is_given_away else lineage_of(tx, principal.actor)
