"""Whether two requests ask for the same sandbox, in a few characters that can be kept."""

import hashlib
from dataclasses import replace

import msgspec

from paddock.domain.egress import EgressPolicy
from paddock.ports.provider import SandboxSpec


def fingerprint(spec: SandboxSpec, source: str = "") -> str:
    """Equal for requests that ask for the same.

    Rules may be changed at any time, by others too, and make no other sandbox of it.
    """
    plain = replace(spec, egress=EgressPolicy(spec.egress.mode))
    fields = msgspec.to_builtins(plain)
    del fields["image_mib"]
    if not spec.volumes:
        del fields["volumes"]  # as before there were any: what was made then is still the same
    content = msgspec.json.encode((fields, source), order="sorted")
    return hashlib.sha256(content).hexdigest()[:32]
