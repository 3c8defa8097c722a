"""Which builds may go: decided from what there is, before anything is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.domain.errors import Conflict

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that decides it."""

    roots: Mapping[str, str]
    """From each build to the build that holds its root file system; often that is itself."""
    named: Mapping[str, str]
    """From each recipe to the build it leads to; empty where it is not built."""
    users: Mapping[str, Sequence[str]]
    """From builds to the sandboxes and snapshots that were made of them or stand on them."""

    def above(self, digest: str) -> list[str]:
        return [each for each, root in self.roots.items() if root == digest and each != digest]

    def names(self, digest: str) -> list[str]:
        return [name for name, built in self.named.items() if built == digest]


def of_recipe(inventory: Inventory, name: str) -> list[str]:
    """The builds that go with a recipe, in order: its own, and what only that stood on.

    One that another recipe leads to stays. Conflict while something stands on its own.
    """
    digest = inventory.named.get(name, "")
    if not digest or inventory.names(digest) != [name]:
        return []
    doomed = of_digest(inventory, digest, f"the template {name!r}")
    root = inventory.roots[digest]
    shared = inventory.names(root) or inventory.users.get(root) or inventory.above(root) != [digest]
    return doomed if root == digest or shared else [*doomed, root]


def of_digest(inventory: Inventory, digest: str, what: str = "") -> list[str]:
    """That one build. Conflict while something stands on it."""
    what = what or f"the template build {digest}"
    if users := inventory.users.get(digest):
        more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
        raise Conflict(
            f"{what} is in use by {', '.join(users[:_SHOWN])}{more}",
            remediation="remove those first",
        )
    if above := inventory.above(digest):
        names = [", ".join(inventory.names(each)) or each for each in above]
        raise Conflict(
            f"{what} is what others are built on: {', '.join(names)}",
            remediation="remove those templates first",
        )
    return [digest]


def unneeded(inventory: Inventory, *, everything: bool) -> list[str]:
    """The builds that nothing stands on and, unless everything may go, no recipe leads to."""
    doomed: list[str] = []
    # What stands on others goes first, and may be all that they were there for.
    for digest in sorted(inventory.roots, key=lambda each: inventory.roots[each] == each):
        kept = inventory.names(digest) and not everything
        needed = [each for each in inventory.above(digest) if each not in doomed]
        if not kept and not needed and not inventory.users.get(digest):
            doomed.append(digest)
    return doomed
