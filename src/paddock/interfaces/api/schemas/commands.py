"""Commands as the API shows and takes them."""

import base64
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from paddock.domain.guest import CommandResult
from paddock.domain.reason import Reason
from paddock.guest_client.runs import Run, RunExit
from paddock.interfaces.api.schemas.common import Env, Shape, Text, at
from paddock.services.commands import Background, Command
from paddock.services.shells import asked_for

Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Size = Annotated[tuple[int, int], Field(description="columns and rows")]


class CommandRequest(Shape):
    """A program and what it starts with. Its arguments reach it as they are."""

    cmd: Annotated[list[Text], Field(min_length=1, max_length=4096, examples=[["python3", "-V"]])]
    cwd: Annotated[Text, Field(max_length=4096)] = ""
    user: Annotated[Text, Field(max_length=64, description="`user` unless said")] = ""
    env: Env = Field(default_factory=dict)
    stdin: Text = ""
    stdin_base64: Annotated[str, Field(description="instead of stdin, for any bytes")] = ""
    timeout_s: Seconds | None = None
    login: Annotated[
        bool,
        Field(
            description="as in a person's login shell: with what `~/.profile` and `~/.bashrc` set, "
            "functions of version managers included"
        ),
    ] = False

    @model_validator(mode="after")
    def _decodable(self) -> "CommandRequest":
        if self.stdin and self.stdin_base64:
            raise ValueError("stdin and stdin_base64 exclude each other")
        base64.b64decode(self.stdin_base64, validate=True)
        return self

    def command(self) -> Command:
        stdin = base64.b64decode(self.stdin_base64) or self.stdin.encode()
        return Command(
            argv=tuple(self.cmd),
            cwd=self.cwd,
            user=self.user,
            env=self.env,
            stdin=stdin,
            timeout_s=self.timeout_s,
            login=self.login,
        )


class ExecRequest(CommandRequest):
    """A command to run to its end (60 s unless said, an hour at most)."""

    max_output_bytes: Annotated[int, Field(ge=1, le=64 << 20)] = 8 << 20
    encoding: Annotated[
        Literal["utf-8", "base64"], Field(description="of stdout and stderr in the answer")
    ] = "utf-8"


class StartCommand(CommandRequest):
    """A command that goes on by itself and can be followed from any offset."""

    terminal: Size | None = None
    keep_stdin_open: bool = False

    @model_validator(mode="after")
    def _sized(self) -> "StartCommand":
        if self.terminal and not all(1 <= side <= 4096 for side in self.terminal):
            raise ValueError("a terminal has 1 to 4096 columns and rows")
        return self

    def background(self, key: str) -> Background:
        return Background(self.terminal, self.keep_stdin_open, key)


class ExecResult(Shape):
    """How a command ended. A non-zero code is a result, not an error."""

    exit_code: int
    reason: Reason
    stdout: str
    stderr: str
    truncated: bool = Field(description="there was more output than was asked for")


class StreamShape(Shape):
    """What is kept of one stream: bytes from `first` to `end`."""

    first: int
    end: int


class CommandShape(Shape):
    """A command that was started."""

    id: str
    cmd: list[str]
    cwd: str
    user: str
    started_at: datetime
    ended_at: datetime | None
    exit_code: int | None
    reason: Reason | None
    cpu_seconds: float | None
    streams: dict[str, StreamShape]


class Input(Shape):
    """Bytes for a command's standard input."""

    data: Text = ""
    data_base64: str = ""
    close: bool = Field(False, description="nothing more will come")

    @model_validator(mode="after")
    def _decodable(self) -> "Input":
        base64.b64decode(self.data_base64, validate=True)
        return self

    def read(self) -> bytes:
        return base64.b64decode(self.data_base64) or self.data.encode()


class Signal(Shape):
    """A signal for a command's process group; SIGKILL ends its whole tree."""

    signal: Annotated[str, Field(pattern="^SIG[A-Z0-9]{2,10}$", examples=["SIGINT"])]


class Resize(Shape):
    """A terminal's new size."""

    columns: Annotated[int, Field(ge=1, le=4096)]
    rows: Annotated[int, Field(ge=1, le=4096)]


def show_result(result: CommandResult, encoding: str) -> ExecResult:
    def text(data: bytes) -> str:
        if encoding == "base64":
            return base64.b64encode(data).decode()
        return data.decode(errors="replace")

    return ExecResult.model_construct(
        exit_code=result.exit_code,
        reason=result.reason,
        stdout=text(result.stdout),
        stderr=text(result.stderr),
        truncated=result.truncated,
    )


def show_command(run: Run) -> CommandShape:
    ended: RunExit | None = run.exit
    return CommandShape(
        id=run.key,
        cmd=list(asked_for(run.cmd)),
        cwd=run.cwd,
        user=run.user,
        started_at=at(run.started_at),
        ended_at=at(ended.ended_at) if ended else None,
        exit_code=ended.exit_code if ended else None,
        reason=ended.reason if ended else None,
        cpu_seconds=ended.cpu_seconds if ended else None,
        streams={
            name: StreamShape(first=stream.first, end=stream.end)
            for name, stream in run.streams.items()
        },
    )
