"""How people name a sandbox: `PROVIDER/ID`, or the id alone on the provider in use."""

from collections.abc import Iterable
from itertools import groupby

from paddock.ports.provider import Ref


def shown(ref: Ref) -> str:
    return f"{ref.provider}/{ref.id}"


def parse(text: str, provider: str) -> Ref:
    """An empty provider means the one in use."""
    name, slash, identifier = text.rpartition("/")
    return Ref(name if slash else provider, identifier)


def by_provider(references: Iterable[str], provider: str) -> list[tuple[str, list[Ref]]]:
    """Grouped, so that each provider is opened once; the order within one is kept."""
    refs = [parse(text, provider) for text in references]
    groups = groupby(sorted(refs, key=lambda ref: ref.provider), key=lambda ref: ref.provider)
    return [(name, list(group)) for name, group in groups]
