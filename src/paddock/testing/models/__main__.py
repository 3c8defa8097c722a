"""`python -m paddock.testing.models script.toml`: the scripted model from a shell."""

import asyncio
import signal
from pathlib import Path

import click

from paddock.testing.models.script import BadScript, Script, load_scripts
from paddock.testing.models.server import ScriptedModel


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.option("--port", default=0, help="Where to listen; 0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
def main(script: Path, port: int, host: str) -> None:
    """Serve the scripts of a TOML file until interrupted."""
    try:
        asyncio.run(_serve(load_scripts(script), host, port))
    except BadScript as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error}") from error


async def _serve(scripts: tuple[Script, ...], host: str, port: int) -> None:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    async with ScriptedModel(*scripts, host=host, port=port) as model:
        click.echo(model.url)
        await done.wait()


if __name__ == "__main__":
    main()
