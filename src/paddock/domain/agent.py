"""Agents as Paddock sees them: what one can do, what it is started with, and how it is talked to.

Whoever talks to an agent may be killed at any moment and go on elsewhere, while the agent works on
and notices nothing. So a conversation is plain data, and each of its steps is a pure function of
that data and of one line that the agent wrote: the same line read again gives the same events and
the same answer, and whoever passes the answer on numbers it, so that it is given once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from paddock.domain.agent_event import AgentEvent
from paddock.domain.message import Mode

AGENTS = "/opt/paddock/agents"
"""Where a sandbox sees the agents that are installed on its host, read-only."""


class WorkMode(StrEnum):
    """How an agent works."""

    IMPLEMENT = "implement"
    EXPLORE = "explore"
    """It only looks, and changes nothing."""
    VALIDATE = "validate"
    """It runs what it wants and says what it thinks of it; what it changes is put back."""


@dataclass(frozen=True, slots=True)
class Package:
    """What is installed on the host, once, and seen by every sandbox."""

    name: str
    """Of the npm package."""
    version: str
    program: str
    """The program within `node_modules`; may hold `*` for what differs by machine."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Need:
    """A credential, by the name under which programs look for it."""

    variable: str
    route: str = ""
    """The model API that it is the key of; see `domain.broker.models`."""


@dataclass(frozen=True, slots=True)
class AuthFile:
    """A file that an agent's own log-in made, and where the agent looks for it in its home."""

    secret: str
    """The name of the secret that holds the file's text."""
    path: str


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known about an agent before it runs. What it cannot do is refused, not faked."""

    name: str
    title: str
    package: Package | None = None
    """None for an agent that the sandbox has to bring along."""
    modes: frozenset[Mode] = frozenset()
    """How a message can reach it while it works."""
    resumes: bool = False
    """A later run can go on with the session of an earlier one."""
    tools: bool = False
    """It can be given MCP servers."""
    reports_usage: bool = False
    needs: tuple[Need, ...] = ()
    """Any one of them is enough; none means that it needs no credential."""
    auth_files: tuple[AuthFile, ...] = ()
    """Instead of a credential."""
    default_model: str = ""
    keeps_to: frozenset[WorkMode] = frozenset()
    """Modes that it keeps to by itself; of the others, Paddock only looks at what it did."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """An MCP server that an agent may use: a program in the sandbox, or an address."""

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    token_variable: str = ""
    """The variable of the agent's environment that holds the bearer token for the address."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What an agent is to do, and with what."""

    prompt: str
    key: str
    """Of this run: what an agent wants to have as a name that is its own."""
    cwd: str
    home: str
    model: str = ""
    mode: WorkMode = WorkMode.IMPLEMENT
    program: str = ""
    """The agent's program as the sandbox sees it."""
    session: str = ""
    """What it goes on with, if anything."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Base URLs of model APIs by their route; an agent that is not told one uses its own."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """By route, the name of the variable that holds its credential in the sandbox."""
    tools: tuple[ToolServer, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """What only one kind of agent understands, such as the command of `command` and `acp`."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the task adds to the environment; an adapter's own settings win over it."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file that has to be there before an agent starts."""

    path: str
    data: bytes = field(repr=False)
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class Launch:
    """How an agent is started: always a list of arguments, never a line for a shell."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[PlacedFile, ...] = ()
    closes_input: bool = False
    """It is told nothing after what `begin` says, and waits for the end of its input to begin."""


class Door(StrEnum):
    """Where an agent takes what it is told."""

    STDIN = "stdin"
    INBOX = "inbox"
    """A directory that a hook of the agent looks into; see the guest's runs."""


@dataclass(frozen=True, slots=True)
class Say:
    """Something for the agent's program."""

    data: bytes
    door: Door = Door.STDIN
    message: str = ""
    """The message that this carries, if it does: taken by the program, it is delivered."""


@dataclass(frozen=True, slots=True)
class Talk:
    """Where a conversation stands, and what follows from the step that led there."""

    state: Mapping[str, Any] = field(default_factory=dict)
    """Plain data, small, the adapter's own; kept between steps."""
    events: tuple[AgentEvent, ...] = ()
    says: tuple[Say, ...] = ()
    delivered: tuple[str, ...] = ()
    """Messages of which the agent itself says that it has them."""
    seen: tuple[str, ...] = ()
    """Messages that the agent has put before its model."""
    session: str = ""
    """What the agent can be resumed by, once it has said so."""
    is_over: bool = False
    """It has nothing left to do: its input may be closed, and it should end by itself."""
    must_stop: bool = False
    """It has to be ended from outside; nothing it understands would end it."""
    then: str = ""
    """After its end another run goes on with the same session and this as its prompt."""

    def further(self, **changes: Any) -> "Talk":
        """The same place, with other consequences."""
        return replace(Talk(state=self.state), **changes)
