"""The code interpreter: put into a sandbox when it is made of a template that has Jupyter."""

import asyncio
import io
import time
import zipfile
from functools import cache
from pathlib import Path

from paddock.domain.errors import Broken
from paddock.domain.records import SandboxRecord
from paddock.domain.repetition import own_key
from paddock.domain.team import Principal
from paddock.interfaces.api.context import Services
from paddock.services.commands import Background, Command

TEMPLATE = "code-interpreter"
PORT = 49999
_PLACE = "/usr/local/lib/paddock-interpreter.zip"
_MAIN = "from inside.main import main\n\nmain()\n"
_START_S = 60.0
_ASK_S = 0.02


async def start(given: Services, who: Principal, sandbox: SandboxRecord) -> None:
    """Returns once it answers. Starting it a second time changes nothing."""
    async with given.inside.enter(who, sandbox.id, "") as entered:
        await entered.guest.files.write(_PLACE, packed(), user="root")
    command = Command(("python3", _PLACE))
    key = own_key(f"interpreter {sandbox.id} {sandbox.started_at}")
    await given.commands.start(who, sandbox.id, command, Background(key=key, drop_when_full=True))
    until = time.monotonic() + _START_S
    while not await _answers(given, sandbox):
        if time.monotonic() > until:
            raise Broken(
                f"the code interpreter of sandbox {sandbox.name} did not start",
                remediation="see that its template has ipykernel: `paddock logs` has its words",
            )
        await asyncio.sleep(_ASK_S)


async def _answers(given: Services, sandbox: SandboxRecord) -> bool:
    try:
        connection = await given.e2b.passages.to_port(sandbox, PORT)
    except OSError:
        return False
    connection.close()
    return True


@cache
def packed() -> bytes:
    """What runs inside, as one file that Python can run."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _MAIN)
        for path in sorted((Path(__file__).parent / "inside").glob("*.[jp][sy]")):
            archive.write(path, f"inside/{path.name}")
    return made.getvalue()
