"""A user in the engine's group, without root: the guest is packed, and everything works."""

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from paddock.adapters.providers.docker.config import DockerConfig
from paddock.adapters.providers.docker.names import Names
from paddock.adapters.providers.docker.place import Place
from paddock.domain.errors import Unavailable
from paddock.guest_client import Guest
from paddock.ports.provider import SandboxSpec
from tests.adapters.providers.docker.conftest import BASE, Installation

NOBODY = 65_534


def as_nobody(group: int, work: Any) -> dict[str, Any]:
    """What the coroutine function returns in a process that has given up root for good."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([group])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            said = asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - the test shall show it
            said = {"error": repr(error)}
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(content))


@pytest.mark.proves("P6")
@pytest.mark.usefixtures("base_image")
def test_a_user_of_the_engines_group_needs_no_root(engine_host: str, need: Any) -> None:
    if os.geteuid() != 0:
        need("root", "to become somebody who is not")
    directory = Path(tempfile.mkdtemp(prefix="pdk-", dir="/tmp"))
    os.chown(directory, NOBODY, NOBODY)
    path = Path(engine_host.removeprefix("unix://"))
    path.parent.chmod(0o755)
    installation = Installation(engine_host, directory / "run")

    async def work() -> dict[str, Any]:
        async with installation.opened() as provider:
            health = await provider.check()
            found = {finding.name: finding.found for finding in health.findings}
            seen = await provider.create("mine", SandboxSpec(template=BASE))
            async with Guest(await provider.guest(seen.ref)) as guest:
                user = (await guest.exec(["id", "-un"])).text.strip()
            url = (await provider.endpoint(seen.ref, 8000)).url
            await provider.destroy(seen.ref)
            return {"guest": found["guest"], "user": user, "url": url}

    try:
        said = as_nobody(path.stat().st_gid, work)
        assert "error" not in said, said
        assert said["guest"].startswith("packed (this is not root)")
        assert said["user"] == "user"
        assert said["url"].startswith("http://127.0.0.1:")
        assert asyncio.run(installation.left()) == {}
    finally:
        os.system(f"rm -rf {directory}")


@pytest.mark.usefixtures("as_root")
def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o777)
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(Unavailable, match="belongs to another user") as caught:
        Place.open(DockerConfig(run_root=theirs), Names("x"))
    assert "docker.run_root" in caught.value.remediation
