"""Any agent that speaks the Agent Client Protocol: lines of JSON-RPC on its input and its output.

What a server does with a prompt while another runs differs: some join the two, some cancel the
first, some run both at once. So there is never more than one here, and no message reaches such an
agent in the middle of a turn. An adapter for an agent of which it is known may say otherwise.
"""

from collections.abc import Collection

from paddock.adapters.agents import acp_talk
from paddock.adapters.agents.checks import check_command, check_model, check_options
from paddock.domain.agent import Brief, Launch, Talk, Traits
from paddock.domain.errors import InvalidRequest
from paddock.domain.message import Message, Mode

_TRAITS = Traits(
    name="acp",
    title="Any agent that speaks the Agent Client Protocol",
    modes=frozenset({Mode.TURN, Mode.INTERRUPT}),
    resumes=True,
    tools=True,
)


class Acp:
    """Its command is in the options. Tokens are told of if the server says any."""

    @property
    def traits(self) -> Traits:
        return _TRAITS

    def check(self, brief: Brief) -> None:
        check_options(_TRAITS.name, brief, {"command"})
        check_command(_TRAITS.name, brief)
        check_model(_TRAITS.name, brief.model)
        if brief.model:
            raise InvalidRequest(
                f"the model {brief.model!r} cannot be set by the Agent Client Protocol",
                remediation="set it in the options of the agent's own command",
            )

    def launch(self, brief: Brief) -> Launch:
        env = {**brief.env, "HOME": brief.home, "PWD": brief.cwd}
        return Launch(tuple(brief.options["command"]), env)

    def begin(self, brief: Brief) -> Talk:
        return acp_talk.begun(brief, meters=True)

    def hear(self, talk: Talk, line: bytes) -> Talk:
        return acp_talk.heard(talk, line)

    def tell(self, talk: Talk, message: Message) -> Talk:
        return acp_talk.told(talk, message)

    def drop(self, talk: Talk, message_ids: Collection[str]) -> Talk:
        return acp_talk.dropped(talk, message_ids)

    def taken(self, talk: Talk, message_id: str) -> Talk:
        """Never asked for: it has no inbox."""
        return talk.further()

    def stop(self, talk: Talk) -> Talk:
        return acp_talk.stopped(talk)

    def end(self, talk: Talk, exit_code: int | None, said: str) -> Talk:
        return acp_talk.ended(talk, "the agent", exit_code, said)
