"""A task's own desk: what its agent may say there, by which token, and in which words.

It is reached from inside the sandbox alone. An agent asks a person, tells how far it is, and says
what it makes of a check; nothing else of Paddock can be had there.
"""

from paddock.domain.desk.pace import Pace, Told
from paddock.domain.desk.saying import Ask, Claim, Progress, Wanted, read
from paddock.domain.desk.token import check_token, token_of

__all__ = ["Ask", "Claim", "Pace", "Progress", "Told", "Wanted", "check_token", "read", "token_of"]
