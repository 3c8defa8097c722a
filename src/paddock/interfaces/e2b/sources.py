"""What a client's template id stands for: a template, a snapshot, or a build of its own."""

from dataclasses import dataclass, field, replace

from paddock.domain.build import Left
from paddock.domain.errors import NotFound
from paddock.domain.team import Principal, Scope
from paddock.interfaces.api.context import Services
from paddock.interfaces.e2b.marks import Mark
from paddock.services.build_records import DEFAULT_TAG

_OURS = {"code-interpreter-v1": "code-interpreter"}
"""Names that the SDKs ask for by themselves."""
_MOST_COPIES = 8
"""Of copies, until the build is looked for no further: a name may stand for a copy of itself."""


def ours(name: str) -> str:
    """What Paddock calls the template of a name."""
    return _OURS.get(name, name)


@dataclass(frozen=True, slots=True)
class Source:
    """What a sandbox is made of."""

    name: str
    template: str = ""
    snapshot: str = ""
    left: Left = field(default_factory=Left)
    """What the build has left, where it is one."""


def split(template_id: str) -> tuple[str, str]:
    """A name and its tag; a namespace before it says nothing here, where all is the team's."""
    name, _, tag = template_id.rpartition("/")[2].partition(":")
    return name, tag or DEFAULT_TAG


async def find_source(given: Services, who: Principal, template_id: str) -> Source:
    """Of the team's own first: what it has named so is what it means."""
    name, tag = split(template_id)
    if Scope.TEMPLATES_READ in who.scopes and (built := await _built(given, who, name, tag)):
        return built
    if tag != DEFAULT_TAG:
        raise NotFound(f"there is no template {name[:80]} with a tag {tag[:80]}")
    if Scope.SNAPSHOTS_READ in who.scopes and (taken := await _taken(given, who, name)):
        return taken
    return Source(name, template=ours(name))


async def _built(given: Services, who: Principal, name: str, tag: str) -> Source | None:
    try:
        build = await given.e2b.builds.find(who, name, tag)
    except NotFound:
        return None
    shown = name if tag == DEFAULT_TAG else f"{name}:{tag}"
    return Source(shown, snapshot=build.left.snapshot_id, left=build.left)


async def _taken(given: Services, who: Principal, name: str) -> Source | None:
    try:
        snapshot = await given.snapshots.get(who, name)
    except NotFound:
        return None
    left = await _left(given, who, snapshot.labels.get(Mark.TEMPLATE, ""))
    if given.providers.get(snapshot.provider).capabilities.checkpoint:
        left = replace(left, start="", ready="")  # with the memory, what was started goes on
    return Source(f"{name}:{DEFAULT_TAG}", snapshot=snapshot.id, left=left)


async def _left(given: Services, who: Principal, template_id: str) -> Left:
    """What the build has left that a snapshot's sandbox was made of, also by way of others."""
    for _ in range(_MOST_COPIES):
        if not template_id or Scope.TEMPLATES_READ not in who.scopes:
            break
        name, tag = split(template_id)
        if built := await _built(given, who, name, tag):
            return built.left
        try:
            template_id = (await given.snapshots.get(who, name)).labels.get(Mark.TEMPLATE, "")
        except NotFound:
            break
    return Left()
