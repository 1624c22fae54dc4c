"""`nightjar topics`: lists this installation's topics and who may write and read them."""

from typing import Annotated

import typer

from rules.errors import SettingsError

app = typer.Typer(name="topics", invoke_without_command=True)


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.add_typer(app)


@app.callback()
def topics(
    acls: Annotated[
        bool, typer.Option("--acls", help="Print the `kafka-acls` commands that grant exactly this access.")
    ] = False,
    principal: Annotated[
        list[str] | None,
        typer.Option(help="A role's Kafka principal, like job=User:nightjar. May be repeated.", show_default=False),
    ] = None,
    command_config: Annotated[
        str | None, typer.Option(help="Client configuration file for `kafka-acls` to log in with.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Show every topic with its writers and readers, without connecting to Kafka.

    docs/reference/security.md explains the roles. Without --principal a role's principal is User:nightjar-ROLE.
    """
    from rich.table import Table

    from nightjar.cli.console import line, result_console, show_json
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka.acls import Role, acl_commands, default_principals, topic_access
    from rules.names import did_you_mean
    from rules.streams import load_streams

    settings = load_settings()
    streams = list(load_streams(settings.streams).values())
    principals = default_principals()
    for given in principal or []:
        role, equals, name = given.partition("=")
        if role not in set(Role) or not equals or ":" not in name:
            remedy = did_you_mean(role, set(Role), "Write ROLE=TYPE:NAME, as in job=User:nightjar. Roles are")
            raise SettingsError(f"{given!r} is not a principal", where="--principal", remedy=remedy)
        principals[Role(role)] = name
    console = result_console()
    if acls:
        commands = acl_commands(settings, streams, principals, command_config)
        if as_json:
            show_json(commands)
        for command in [] if as_json else commands:
            console.print(line(command), soft_wrap=True)
        return
    found = topic_access(settings, streams)
    if as_json:
        show_json(
            [
                {
                    "topic": each.topic,
                    "holds": each.access.holds,
                    "writers": [principals[role] for role in each.access.writers],
                    "readers": [principals[role] for role in each.access.readers],
                }
                for each in found
            ]
        )
        return
    table = Table("topic", "holds", "writers", "readers")
    for each in found:
        table.add_row(each.topic, each.access.holds, ", ".join(each.access.writers), ", ".join(each.access.readers))
    console.print(table)
