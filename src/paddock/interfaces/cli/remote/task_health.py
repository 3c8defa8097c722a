"""The app that a task works at: what is asked for it, and what was found."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click

from paddock.interfaces.cli.failures import refuse
from paddock.interfaces.cli.output import printable
from paddock.interfaces.cli.params import Seconds
from paddock.interfaces.client.task_results import AppHealth

F = TypeVar("F", bound=Callable[..., Any])


def health_options(command: F) -> F:
    """What its app has to be like; `health_wish()` reads them."""
    for decorate in (
        click.option("--within", type=Seconds(), help="Until its app is up.  [25s]"),
        click.option("--restart-on", multiple=True, metavar="GLOB", help="When this changed."),
        click.option("--restart", multiple=True, metavar="NAME", help="A process, started anew."),
        click.option("--build", default="", metavar="CHECK", help="The check that builds it."),
        click.option("--worker", "workers", multiple=True, metavar="NAME", help="Is to run."),
        click.option("--preset", default="", help="What kind of web app it is: vite."),
        click.option("--web", default="", metavar="PORT[/PATH]", help="Has to answer in the end."),
    ):
        command = decorate(command)
    return command


def health_wish(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """None where none of them is given."""
    names = ("workers", "build", "restart", "restart_on")
    wanted: dict[str, Any] = {name: options[name] for name in names if options[name]}
    if options["within"]:
        wanted["within_s"] = options["within"]
    if options["web"]:
        wanted["web"] = _web(options["web"], options["preset"])
    elif options["preset"]:
        refuse("--preset is of a web app, and there is no --web", "give its port with --web")
    return wanted or None


def _web(text: str, preset: str) -> dict[str, Any]:
    port, slash, path = text.partition("/")
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        refuse(f"--web is {text!r}", "give a port, or a port and a path, such as 5173/login")
    said: dict[str, Any] = {"port": int(port)}
    if path:
        said["path"] = f"{slash}{path}"
    return {**said, "preset": preset} if preset else said


def health_lines(found: AppHealth) -> Iterator[str]:
    """For people."""
    mark = click.style("✓", fg="green") if found.healthy else click.style("✗", fg="red")
    word = "healthy" if found.healthy else "not healthy"
    yield f"  {mark} app {word}  {found.seconds:.1f} s"
    if found.restarted:
        names = ", ".join(map(printable, found.restarted))
        why = f": {', '.join(map(printable, found.changed))} changed" if found.changed else ""
        yield f"    started anew: {names}{why}"
    for each in found.errors:
        yield f"    {printable(each)}"


def health_line(data: Mapping[str, Any]) -> str:
    """Of the event."""
    color, word = ("green", "healthy") if data.get("healthy") else ("yellow", "not healthy")
    said = "; ".join(str(each) for each in data.get("errors", ()))
    return click.style(f"· app {word}{': ' if said else ''}{printable(said)}", fg=color)
