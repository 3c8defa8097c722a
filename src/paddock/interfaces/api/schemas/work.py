"""What was made in sandboxes, as the API shows and takes it."""

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from paddock.domain.sandbox import SandboxState
from paddock.domain.work import Change, ChangeKind, Made, Work
from paddock.interfaces.api.schemas.common import Shape, Text
from paddock.services.work import Group, Member


class WorkShape(Shape):
    """Where in a sandbox the work is, and what it began with."""

    directory: Annotated[
        Text,
        Field(
            min_length=1,
            max_length=4096,
            description="a git work tree; a relative path starts at the user's home",
        ),
    ] = "project"
    base: Annotated[
        str,
        Field(
            pattern="^([0-9a-f]{40}|[0-9a-f]{64})?$",
            description="the tree or commit that is safe elsewhere. The sandbox is not deleted "
            "while it holds more than that, unless forced. Empty is where the clone's branch began",
        ),
    ] = ""

    def read(self) -> Work:
        return Work(self.directory, self.base)


class ChangeShape(Shape):
    """A file that is not as it was."""

    path: str
    kind: ChangeKind
    mode: str
    blob: str = Field(description="git's id of the content; empty when removed")


class MadeShape(Shape):
    """Everything that differs from the base, committed or not; ignored files do not count."""

    directory: str
    base: str
    tree: str = Field(
        description="git's id of all of it. Once it is safe elsewhere, make it the base"
    )
    changes: list[ChangeShape]
    truncated: bool


class MemberShape(Shape):
    """A sandbox of a group."""

    id: str
    name: str
    state: SandboxState
    changes: int | None
    why: str = Field(description="why its changes cannot be told; empty where they can")


class EditShape(Shape):
    """What one sandbox has made of a file."""

    sandbox: str
    name: str
    kind: ChangeKind


class OverlapShape(Shape):
    """A file that was edited in several sandboxes."""

    path: str
    same: bool = Field(description="all have made the same of it")
    edits: list[EditShape]


class GroupShape(Shape):
    """The sandboxes that share an identity, and the files that several of them have edited."""

    identity: str
    members: list[MemberShape]
    overlaps: list[OverlapShape]


def show_made(made: Made) -> dict[str, Any]:
    return {
        "directory": made.work.directory,
        "base": made.work.base,
        "tree": made.tree,
        "changes": [asdict(change) for change in made.changes],
        "truncated": made.truncated,
    }


def show_group(identity: str, group: Group) -> dict[str, Any]:
    names = {member.sandbox.id: member.sandbox.name for member in group.members}

    def edit(sandbox: str, change: Change) -> dict[str, Any]:
        return {"sandbox": sandbox, "name": names[sandbox], "kind": change.kind}

    return {
        "identity": identity,
        "members": [_member(each) for each in group.members],
        "overlaps": [
            {
                "path": each.path,
                "same": each.is_same,
                "edits": [edit(*one) for one in each.edits.items()],
            }
            for each in group.overlaps
        ],
    }


def _member(member: Member) -> dict[str, Any]:
    sandbox = member.sandbox
    return {
        "id": sandbox.id,
        "name": sandbox.name,
        "state": sandbox.state,
        "changes": len(member.made.changes) if member.made else None,
        "why": member.why,
    }
