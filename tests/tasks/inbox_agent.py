"""An agent that takes messages out of an inbox, or would, if it ever looked into it."""

import json
from dataclasses import replace

from paddock.domain.agent import Door, Say, Talk
from paddock.testing.agent import ScriptedAgent


class InboxAgent(ScriptedAgent):
    @property
    def traits(self):
        return replace(super().traits, name="inboxed", title="Inboxed")

    def tell(self, talk, message):
        body = json.dumps({"text": message.text}).encode()
        return Talk(state=talk.state, says=(Say(body, Door.INBOX, message.id),))
