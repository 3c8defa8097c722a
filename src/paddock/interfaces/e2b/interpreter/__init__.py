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
_ASK_S = 0.05


async def start(given: Services, who: Principal, sandbox: SandboxRecord) -> None:
    """Returns once its kernel is ready. Starting it a second time changes nothing."""
    async with given.inside.enter(who, sandbox.id, "") as entered:
        await entered.guest.files.write(_PLACE, packed(), user="root")
    command = Command(("python3", _PLACE))
    key = own_key(f"interpreter {sandbox.id} {sandbox.started_at}")
    background = Background(key=key, drop_when_full=True)
    command_id, _ = await given.commands.start(who, sandbox.id, command, background)
    until = time.monotonic() + _START_S
    while not await _answers(given, sandbox):
        ended = await _ended(given, who, sandbox, command_id)
        if ended or time.monotonic() > until:
            raise Broken(
                f"the code interpreter of sandbox {sandbox.name} "
                f"{ended or f'was not ready within {_START_S:g} s'}",
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


async def _ended(given: Services, who: Principal, sandbox: SandboxRecord, command_id: str) -> str:
    """How it ended, or nothing while it runs."""
    async with given.inside.enter(who, sandbox.id, "") as entered:
        run = await entered.guest.runs.get(command_id)
    return f"ended with exit code {run.exit.exit_code}" if run.exit else ""


@cache
def packed() -> bytes:
    """What runs inside, as one file that Python can run."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", _MAIN)
        for path in sorted((Path(__file__).parent / "inside").glob("*.[jp][sy]")):
            archive.write(path, f"inside/{path.name}")
    return made.getvalue()
