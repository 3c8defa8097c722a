"""What a gateway tells, in the words of the port, and what it is told in its own."""

from typing import Any

import msgspec

from paddock.domain.broker.models import Prices
from paddock.domain.egress import EgressPolicy
from paddock.gateway import protocol
from paddock.gateway.protocol import RuleText
from paddock.ports.egress import Credential, CredentialUse, Flow, FlowBatch, ModelUse, Wanted


def batch_of(gateway: str, told: protocol.Flows) -> FlowBatch | None:
    """None when there is nothing in it."""
    if not (told.flows or told.uses or told.models or told.dropped):
        return None
    flows = tuple(_flow(each) for each in told.flows)
    uses = tuple(_use(each) for each in told.uses)
    models = tuple(_model(each) for each in told.models)
    return FlowBatch(gateway, told.number, flows, told.dropped, uses, models, told.more)


def _flow(told: protocol.Flow) -> Flow:
    fields = msgspec.structs.asdict(told)
    return Flow(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def _use(told: protocol.CredentialUse) -> CredentialUse:
    fields = msgspec.structs.asdict(told)
    return CredentialUse(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def _model(told: protocol.ModelUse) -> ModelUse:
    fields = msgspec.structs.asdict(told)
    return ModelUse(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def wanted_of(told: protocol.Held) -> Wanted:
    fields = msgspec.structs.asdict(told)
    return Wanted(ref=fields.pop("sandbox"), sandbox=fields.pop("shown"), **fields)


def texts(policy: EgressPolicy) -> list[RuleText]:
    return [RuleText(rule.text, rule.source, rule.by_operator) for rule in policy.rules]


def prices_of(prices: Prices) -> protocol.SetPrices:
    table = {
        model: (price.input, price.output, price.cache_read, price.cache_write)
        for model, price in prices.table.items()
    }
    return protocol.SetPrices(table)


def credential_of(credential: Credential) -> protocol.Credential:
    names = protocol.Credential.__struct_fields__
    fields: dict[str, Any] = {name: getattr(credential, name) for name in names}
    return protocol.Credential(**fields)
