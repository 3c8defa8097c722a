"""Whether two requests ask for the same sandbox, in a few characters that can be kept."""

import hashlib

import msgspec

from paddock.ports.provider import SandboxSpec


def fingerprint(spec: SandboxSpec, source: str = "") -> str:
    """Equal for requests that ask for the same."""
    content = msgspec.json.encode((spec, source), order="sorted")
    return hashlib.sha256(content).hexdigest()[:32]
