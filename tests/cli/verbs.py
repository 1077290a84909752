"""The verbs of the command, those that are imported only when they are used among them."""

import click


def verbs(group, path="cmalight"):
    """What one types for each, and the verb itself."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        one = group.get_command(context, name)
        yield f"{path} {name}", one
        if isinstance(one, click.Group):
            yield from verbs(one, f"{path} {name}")
