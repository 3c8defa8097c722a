"""Commands that are about one thing: `paddock snapshot …`."""

import click

_ALSO = {
    "list": ("ls",),
    "ls": ("list",),
    "show": ("inspect",),
    "inspect": ("show",),
    "delete": ("rm",),
    "remove": ("rm", "delete"),
    "rm": ("delete",),
}


class Noun(click.Group):
    """Nobody has to remember which of them says `rm` and which says `delete`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = (cmd_name, *_ALSO.get(cmd_name, ()))
        found = (super(Noun, self).get_command(ctx, name) for name in names)
        return next((command for command in found if command is not None), None)
