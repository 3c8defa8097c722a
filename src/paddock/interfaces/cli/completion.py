"""`paddock completion`: what a shell needs to complete commands, options and sandboxes' names."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_PADDOCK_COMPLETE"
_SHELLS = ["bash", "zsh", "fish"]


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what completes `paddock …` in a shell.

    \b
    bash  eval "$(paddock completion bash)" in ~/.bashrc
    zsh   eval "$(paddock completion zsh)" in ~/.zshrc
    fish  paddock completion fish | source in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "paddock", VARIABLE).source())
