"""What clients call secrets: by name in any case, or by an id that is made of the name."""

from paddock.domain.errors import NotFound
from paddock.domain.secret import Secret
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services

_ID = "sec_"


def id_of(secret: Secret) -> str:
    return _ID + secret.name


async def find_secret(given: Services, who: Principal, called: str) -> Secret:
    """Theirs are kept in lower case, ours as they were named. NotFound for what could be read."""
    name = called.removeprefix(_ID)
    for each in dict.fromkeys((name, name.lower())):
        try:
            found, _ = await given.secrets.get(who, each)
        except NotFound:
            continue
        if found.sensitive:
            return found
    raise NotFound(f"there is no secret {called[:80]}")
