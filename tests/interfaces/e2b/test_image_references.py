"""Templates that begin with an image of a real OCI registry, by the unmodified SDK."""

import tarfile
import time
from pathlib import Path

import pytest
from e2b import BuildException, Template

from paddock.adapters.egress.config import EgressConfig
from tests.conftest import Need
from tests.image_registry import Image, member
from tests.interfaces.e2b.conftest import serving
from tests.oci_registry import oci_registry, program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PROGRAMS = ("cat", "chmod", "chown", "cp", "echo", "id", "mkdir", "mv", "sh", "sleep", "tar")


def image() -> Image:
    """Enough for steps and commands: busybox, which answers as bash too."""
    links = [
        member(f"bin/{name}", type=tarfile.SYMTYPE, linkname="busybox", mode=0o777)
        for name in PROGRAMS
    ]
    return Image.of(
        [
            member("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
            member("bin/busybox", Path("/bin/busybox").read_bytes(), mode=0o755),
            member("bin/bash", b'#!/bin/sh\nexec /bin/sh "$@"\n', mode=0o755),
            member("srv/of-the-image", b"pushed", mode=0o644),
            *links,
        ]
    )


def test_a_build_begins_with_an_image_of_a_registry(need: Need) -> None:
    with oci_registry(program(need)) as registry:
        digest = registry.push(image(), "team/app", "1")
        egress = EgressConfig(certificates=str(registry.authority), registries=(registry.host,))
        with serving(egress=egress) as live:
            e2b, name = live.client(), f"from-image-{time.time_ns()}"
            for reference in (f"{registry.host}/team/app:1", f"{registry.host}/team/app@{digest}"):
                template = Template().from_image(reference).run_cmd("echo built > ~/built")
                e2b.Template.build(template, name)
                box = e2b.Sandbox.create(name, timeout=60)
                try:
                    assert (
                        box.commands.run("cat /srv/of-the-image ~/built").stdout == "pushedbuilt\n"
                    )
                finally:
                    box.kill()
            missing = Template().from_image(f"{registry.host}/team/app:none")
            with pytest.raises(BuildException, match="cannot be found"):
                e2b.Template.build(missing, name)
