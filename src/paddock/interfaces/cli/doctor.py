"""`paddock doctor`: whether sandboxes can run here, and what to do where they cannot."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from paddock.interfaces.cli.failures import FAILED, refuse
from paddock.interfaces.cli.interrupts import run_async
from paddock.interfaces.cli.invocation import Invocation, pass_invocation
from paddock.interfaces.cli.options import output_options, provider_option
from paddock.interfaces.cli.output import print_json
from paddock.interfaces.cli.progress import Display

if TYPE_CHECKING:
    from paddock.interfaces.cli.toolbox import Report, Verdict

_COLOURS = {"ok": "green", "degraded": "yellow", "missing": "red"}
_IMAGE = "docker.io/library/python:3-slim"


@click.command()
@provider_option
@click.option("--conformance", metavar="PROVIDER", help="Run the conformance suite against it.")
@click.option("--template", default="base", help="For --conformance.", show_default=True)
@click.option("--image", default=_IMAGE, help="For --conformance.", show_default=True)
@output_options
@pass_invocation
def doctor(
    invocation: Invocation, /, provider: str, conformance: str | None, *, template: str, image: str
) -> int:
    """Say whether sandboxes can run here.

    Looks at this machine and at every provider. Each line is ok, degraded (works, with less) or
    missing, with a way to put it right. The exit code is 1 when the provider that would be used
    lacks something, and 0 otherwise.
    """
    if conformance is not None:
        if provider:
            refuse("--provider and --conformance name two providers", "give only one of them")
        return _conform(invocation, conformance, template, image)
    report, notice = run_async(_looked(invocation, provider))
    if notice:
        click.echo(f"note: {notice}", err=True)
    if invocation.json:
        print_json(_as_json(report))
    else:
        _print_report(report)
    return 0 if report.usable else FAILED


async def _looked(invocation: Invocation, provider: str) -> tuple["Report", str]:
    """What is found, and a newer version if that is known by then."""
    from paddock.interfaces.cli.updates import looking

    async with looking(invocation.tools.update_check_url) as notice:
        return await invocation.tools.inspect(provider), notice()


def _as_json(report: "Report") -> dict[str, object]:
    sections = [
        {
            "provider": section.provider,
            "needed": section.needed,
            "usable": section.usable,
            "findings": [asdict(finding) for finding in section.findings],
        }
        for section in report.sections
    ]
    return {"usable": report.usable, "sections": sections, "advice": report.advice}


def _print_report(report: "Report") -> None:
    width = max(len(each.name) for section in report.sections for each in section.findings)
    for section in report.sections:
        usable = "usable" if section.usable else "not usable"
        click.secho(f"{section.provider}: {usable}{', used' if section.needed else ''}", bold=True)
        for each in section.findings:
            status = click.style(f"{each.status.value:<8}", fg=_COLOURS[each.status])
            click.echo(f"  {status}  {each.name:<{width}}  {each.found}")
            if each.fix:
                click.echo(f"  {'':<8}  {'':<{width}}  fix: {each.fix}")
    if report.usable:
        click.secho("sandboxes can run here", fg="green")
    else:
        click.secho("sandboxes cannot run here", fg="red")
        click.echo(f"  fix: {report.advice}")


def _conform(invocation: Invocation, provider: str, template: str, image: str) -> int:
    from paddock.interfaces.cli.toolbox import Terms

    verdicts: list[Verdict] = []

    def hear(verdict: "Verdict") -> None:
        verdicts.append(verdict)
        if not invocation.json:
            print_verdict(verdict, len(verdicts))

    with Display() as display:
        terms = Terms(template, image)
        run_async(invocation.tools.conform(provider, terms, hear=hear, progress=display.tell))
    failed = [verdict for verdict in verdicts if verdict.fault]
    if invocation.json:
        listed = [asdict(verdict) for verdict in verdicts]
        print_json({"provider": provider, "conforms": not failed, "checks": listed})
    else:
        summary = f"{len(verdicts) - len(failed)} of {len(verdicts)} checks hold for {provider}"
        click.secho(summary, fg="red" if failed else "green", bold=True)
    return FAILED if failed or not verdicts else 0


def print_verdict(verdict: "Verdict", number: int) -> None:
    word, colour = ("FAILED", "red") if verdict.fault else ("ok    ", "green")
    place = f"{number:>{len(str(verdict.total))}}/{verdict.total}"
    claim = "  (capability not claimed)" if verdict.refused and not verdict.fault else ""
    says = verdict.says.rstrip(".")
    click.echo(f"{place} {click.style(word, fg=colour)} {verdict.seconds:6.1f} s  {says}{claim}")
    for line in verdict.fault.splitlines():
        click.echo(f"{'':>{len(place)}} {'':6} {'':>8}  {line}")
