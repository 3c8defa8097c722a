"""Apps that tasks work at, as the API takes and shows them."""

from typing import Annotated

from pydantic import Field

from paddock.domain.app_health import (
    DEFAULT_WITHIN_S,
    LONGEST_GLOB,
    LONGEST_PATH,
    LONGEST_WITHIN_S,
    MOST_GLOBS,
    MOST_PROCESSES,
    HealthWish,
    Web,
)
from paddock.domain.app_verdict import AppHealth, WebSeen
from paddock.domain.task_rounds import CheckState
from paddock.interfaces.api.schemas.common import Shape, Text

ProcessName = Annotated[Text, Field(min_length=1, max_length=64, examples=["worker"])]
Processes = Annotated[list[ProcessName], Field(max_length=MOST_PROCESSES)]


class WebWish(Shape):
    """A port of the sandbox that has to answer."""

    port: Annotated[int, Field(ge=1, le=65535, examples=[5173])]
    path: Annotated[Text, Field(max_length=LONGEST_PATH)] = "/"
    preset: Annotated[
        Text, Field(max_length=64, description="what kind of app it is: `vite`, or none")
    ] = ""

    def read(self) -> Web:
        return Web(self.port, self.path, self.preset)


class HealthWishShape(Shape):
    """The app that is looked at after the checks: well when its build has not failed, and its port
    answers or a worker runs."""

    web: WebWish | None = None
    workers: Annotated[
        Processes, Field(description="supervised processes of the sandbox that are to run")
    ] = Field(default_factory=list)
    build: Annotated[Text, Field(max_length=80, description="the check that builds it")] = ""
    restart: Annotated[
        Processes,
        Field(description="supervised processes that a changed file of `restart_on` starts anew"),
    ] = Field(default_factory=list)
    restart_on: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=LONGEST_GLOB)]],
        Field(
            max_length=MOST_GLOBS,
            description="globs of files, those of the preset unless said",
            examples=[["vite.config.*", "src/**"]],
        ),
    ] = Field(default_factory=list)
    within_s: Annotated[
        float,
        Field(
            gt=0,
            le=LONGEST_WITHIN_S,
            allow_inf_nan=False,
            description="so long it may take until it is up",
        ),
    ] = DEFAULT_WITHIN_S

    def read(self) -> HealthWish:
        return HealthWish(
            web=self.web.read() if self.web else None,
            workers=tuple(self.workers),
            build=self.build,
            restart=tuple(self.restart),
            restart_on=tuple(self.restart_on),
            within_s=self.within_s,
        )


class PreviewSeen(Shape):
    """What its port answered in the end."""

    port: int
    path: str
    status: int | None = Field(description="null where nobody answered")
    error: str | None = Field(description="what the page says of it, at most 400 characters")


class WorkerShape(Shape):
    """A supervised process in the end."""

    name: str
    state: str = Field(
        description="`running`, `backoff`, `gave_up`, `exited`, `stopped`; `absent`: there is none"
    )
    exit_code: int | None = Field(description="of the last time that it ended")


class HealthShape(Shape):
    """What was found of the app."""

    healthy: bool
    build: CheckState | None = Field(description="null where no check is called the build")
    preview_ok: bool | None = Field(description="null, never false, of an app without a web part")
    preview: PreviewSeen | None
    workers: list[WorkerShape]
    restarted: list[str] = Field(description="processes that were started anew first")
    changed: list[str] = Field(description="the files that this was for")
    errors: list[str] = Field(description="all that is not well, in words")
    seconds: float


def show_health_wish(wish: HealthWish) -> HealthWishShape:
    web = wish.web
    return HealthWishShape(
        web=WebWish(port=web.port, path=web.path, preset=web.preset) if web else None,
        workers=list(wish.workers),
        build=wish.build,
        restart=list(wish.restart),
        restart_on=list(wish.globs) if wish.restart else [],
        within_s=wish.within_s,
    )


def show_health(found: AppHealth) -> HealthShape:
    return HealthShape(
        healthy=found.is_well,
        build=found.build,
        preview_ok=found.preview_ok,
        preview=_preview(found.web) if found.web else None,
        workers=[
            WorkerShape(name=each.name, state=each.state, exit_code=each.exit_code)
            for each in found.workers
        ],
        restarted=list(found.restarted),
        changed=list(found.changed),
        errors=list(found.errors),
        seconds=round(found.seconds, 3),
    )


def _preview(seen: WebSeen) -> PreviewSeen:
    return PreviewSeen(port=seen.port, path=seen.path, status=seen.status, error=seen.error or None)
