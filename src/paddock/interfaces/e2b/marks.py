"""What E2B's clients say of a sandbox and Paddock has no word for, kept as labels of its own."""

from collections.abc import Mapping
from enum import StrEnum

from paddock.domain.errors import InvalidRequest
from paddock.domain.records import SandboxRecord

_PREFIX = "e2b."
_APART = {"task": f"{_PREFIX}metadata.task"}
"""Keys that mean something to Paddock as labels: sandboxes of a task share an account. What a
client says with them is kept under another name."""
_LONGEST_KEY, _LONGEST_VALUE, _MOST = 63, 256, 64


class Mark(StrEnum):
    """The labels. A sandbox that another interface made has none of them."""

    AUTO_RESUME = "e2b.auto-resume"
    TRAFFIC = "e2b.traffic"
    """`public`: whoever knows a port's address may see it; `token`: who has the traffic token."""
    MASKED_HOST = "e2b.masked-host"
    HTTPS_PORTS = "e2b.https-ports"
    """Where programs speak TLS themselves, with commas."""
    INTERNET = "e2b.internet"
    """As it was asked for; absent where it was not."""
    TEMPLATE = "e2b.template"
    """What was asked for, where the machine was made of something else."""
    STARTS = "e2b.starts"
    """What is started with it."""


def marked(metadata: Mapping[str, str], marks: Mapping[Mark, str]) -> dict[str, str]:
    """The labels of a new sandbox."""
    for key, value in metadata.items():
        if key.startswith(_PREFIX):
            raise InvalidRequest(
                f"the metadata key {key[:80]!r} begins with {_PREFIX!r}, which is reserved",
                remediation="choose another",
            )
        if not 0 < len(key) <= _LONGEST_KEY or len(value) > _LONGEST_VALUE:
            raise InvalidRequest(
                f"the metadata entry {key[:80]!r} is too long",
                remediation=f"keys have 1 to {_LONGEST_KEY} characters, values at most "
                f"{_LONGEST_VALUE}",
            )
    if len(metadata) > _MOST:
        raise InvalidRequest(
            f"there are {len(metadata)} metadata entries", remediation=f"send at most {_MOST}"
        )
    return {**labels_of(metadata), **{mark.value: value for mark, value in marks.items() if value}}


def metadata(labels: Mapping[str, str]) -> dict[str, str]:
    """What the client itself has said."""
    found = {key: value for key, value in labels.items() if not key.startswith(_PREFIX)}
    return found | {key: labels[label] for key, label in _APART.items() if label in labels}


def labels_of(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as labels have them."""
    return {_APART.get(key, key): value for key, value in metadata.items()}


def internet_word(*, asked: bool | None) -> str:
    return {None: "", True: "true", False: "false"}[asked]


def with_internet(labels: Mapping[str, str], asked: bool | None) -> dict[str, str]:
    """The labels of a sandbox whose network was changed. An update that does not mention the
    internet replaces rules only, so an earlier `true` still holds."""
    before = labels.get(Mark.INTERNET.value, "")
    word = internet_word(asked=asked) or ("true" if before == "true" else "")
    kept = {key: value for key, value in labels.items() if key != Mark.INTERNET}
    return {**kept, Mark.INTERNET.value: word} if word else kept


def mark_of(sandbox: SandboxRecord, mark: Mark) -> str:
    return sandbox.labels.get(mark.value, "")
