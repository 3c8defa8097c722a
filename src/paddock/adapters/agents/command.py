"""Any program as an agent: it gets its prompt, prints what it has to say, and ends.

All that is known of it is what it prints and how it ends. Tokens are counted where it asks its
model, if that is a route of the sandbox's.
"""

from collections.abc import Collection

from paddock.adapters.agents.checks import check_command, check_options
from paddock.adapters.agents.endings import died, ended_badly
from paddock.adapters.agents.lines import cut
from paddock.domain.agent import Brief, Launch, PlacedFile, Say, Talk, Traits
from paddock.domain.agent_event import AgentEvent, AgentEventKind
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Message

_TRAITS = Traits(name="command", title="Any program")
PROMPT_FILE = "PADDOCK_PROMPT_FILE"
_NO_OUTPUT = "no output: it ended with 0 and printed nothing"


class Command:
    """State: `last`, the last line; `stopping`."""

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def check(self, brief: Brief) -> None:
        check_options(_TRAITS.name, brief, {"command"})
        check_command(_TRAITS.name, brief)
        if brief.model:
            raise InvalidRequest(
                f"a program cannot be told to use the model {brief.model!r}",
                remediation="say it in the program's own arguments or environment",
            )

    def launch(self, brief: Brief) -> Launch:
        path = f"{brief.home}/.paddock/command/{brief.key}/prompt"
        return Launch(
            tuple(brief.options["command"]),
            {**brief.env, "HOME": brief.home, "PWD": brief.cwd, PROMPT_FILE: path},
            (PlacedFile(path, brief.prompt.encode()),),
            closes_input=True,
        )

    def begin(self, brief: Brief) -> Talk:
        return Talk(says=(Say(brief.prompt.encode()),))

    def hear(self, talk: Talk, line: bytes) -> Talk:
        said = line.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}").rstrip()
        if not said:
            return talk.further()
        data = cut("text", said)
        event = AgentEvent(AgentEventKind.MESSAGE, data)
        return Talk(state={**talk.state, "last": data["text"]}, events=(event,))

    def tell(self, talk: Talk, message: Message) -> Talk:
        """Never asked for: it has no modes."""
        return talk.further()

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        """Never asked for: it has no modes."""
        return talk.further()

    def taken(self, talk: Talk, message_id: str) -> Talk:
        """Never asked for: it has no inbox."""
        return talk.further()

    def stop(self, talk: Talk) -> Talk:
        return Talk(state={**talk.state, "stopping": True}, must_stop=True)

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        last = talk.state.get("last", "")
        if talk.state.get("stopping"):
            events = (AgentEvent(AgentEventKind.COMPLETED, {"text": last, "ok": False}),)
        elif exit_code != 0:
            events = (died("the program", exit_code, said),)
        elif not last:
            events = (ended_badly(_NO_OUTPUT, exit_code),)
        else:
            events = (AgentEvent(AgentEventKind.COMPLETED, {"text": last, "ok": True}),)
        return talk.further(events=events)
