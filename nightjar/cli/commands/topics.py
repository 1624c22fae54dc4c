"""`nightjar topics`: this installation's topics, and who may write and read them; creates, grants, and adds logins."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context
from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nightjar.kafka.acls import Role, TopicAccess
    from nightjar.terminal.tables import RecordTable

app = typer.Typer(name="topics", invoke_without_command=True)

Principals = Annotated[
    list[str] | None,
    typer.Option(
        "--principal",
        help="A role's Kafka principal, like job=User:nightjar-job. May be repeated, also for one role.",
        show_default=False,
    ),
]


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.add_typer(app)


@app.callback()
def topics(
    invoked: typer.Context,
    acls: Annotated[
        bool, typer.Option("--acls", help="Print the `kafka-acls` commands that grant exactly this access.")
    ] = False,
    principal: Principals = None,
    command_config: Annotated[
        str | None, typer.Option(help="Client configuration file for `kafka-acls` to log in with.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Show every topic with its writers and readers, without connecting to Kafka.

    docs/reference/security.md explains the roles. Without --principal a role's principal is User:nightjar-ROLE.
    """
    if invoked.invoked_subcommand is not None:
        return
    from nightjar.kafka.acls import acl_commands, grants, topic_access
    from nightjar.terminal.console import line, show_json

    context = Context()
    settings, streams = context.settings, list(context.streams.values())
    principals = _principals(principal or [])
    if acls:
        commands = acl_commands(settings, grants(settings, streams, principals), command_config)
        if as_json:
            show_json(commands)
        for command in [] if as_json else commands:
            context.console.print(line(command), soft_wrap=True)
        return
    found = topic_access(settings, streams)
    if as_json:
        show_json(
            [
                {
                    "topic": each.topic,
                    "holds": each.access.holds,
                    "writers": [who for role in each.access.writers for who in principals[role]],
                    "readers": [who for role in each.access.readers for who in principals[role]],
                }
                for each in found
            ]
        )
        return
    context.console.print(_table(found))


def _table(found: "Iterable[TopicAccess]") -> "RecordTable":
    """The topics, and who uses them."""
    from nightjar.terminal.tables import RecordTable, prose

    shown = RecordTable("topic", prose("holds"), prose("writers"), prose("readers"))
    for each in found:
        shown.add_row(each.topic, each.access.holds, ", ".join(each.access.writers), ", ".join(each.access.readers))
    return shown


@app.command()
def create() -> None:
    """Create the topics that are missing, and check the others; needs a login that may do so."""
    from nightjar.kafka import topics as kafka_topics
    from nightjar.terminal.console import line

    context = Context()
    made = kafka_topics.ensure(context.settings, context.streams.values())
    context.console.print(line(f"Created: {', '.join(made) or 'none, all exist'}."), soft_wrap=True)


@app.command()
def grant(principal: Principals = None) -> None:
    """Grant exactly the access that `nightjar topics` shows, on brokers with an authorizer.

    Needs a login that may alter the cluster. Access that principals have beyond it stays.
    """
    from nightjar.kafka import administration
    from nightjar.kafka.acls import grants
    from nightjar.terminal.console import counted, line

    context = Context()
    principals = _principals(principal or [])
    wanted = grants(context.settings, context.streams.values(), principals)
    entries = administration.grant(context.settings, wanted)
    text = f"{counted(entries, 'access control entry', 'access control entries')} in force for "
    names = ", ".join(dict.fromkeys(who for role in principals.values() for who in role))
    context.console.print(line(f"{text}{names}."), soft_wrap=True)


@app.command()
def add_logins(
    logins: Annotated[
        list[str], typer.Argument(help="NAME=FILE: a user, and the file that holds its password.", show_default=False)
    ],
) -> None:
    """Let users log in by SCRAM-SHA-512; needs a login that may alter the cluster.

    A user that exists gets the password in the file.
    """
    from nightjar.kafka import administration
    from nightjar.terminal.console import line

    files: dict[str, Path] = {}
    for given in logins:
        name, equals, file = given.partition("=")
        if not name or not equals or not file or not name.isprintable():
            remedy = "Write NAME=FILE, as in nightjar-job=/run/secrets/job"
            raise SettingsError(f"{given!r} is not a login", where="topics add-logins", remedy=remedy)
        files[name] = Path(file)
    context = Context()
    administration.add_logins(context.settings, files)
    context.console.print(line(f"May log in: {', '.join(files)}."), soft_wrap=True)


def _principals(options: Sequence[str]) -> "dict[Role, list[str]]":
    """Those of each role: the default, or those given for it."""
    from nightjar.kafka.acls import Role, default_principals
    from nightjar.rules.names import did_you_mean

    given: dict[Role, list[str]] = {}
    for option in options:
        role, equals, name = option.partition("=")
        if role not in set(Role) or not equals or ":" not in name:
            remedy = did_you_mean(role, set(Role), "Write ROLE=TYPE:NAME, as in job=User:nightjar. Roles are")
            raise SettingsError(f"{option!r} is not a principal", where="--principal", remedy=remedy)
        given.setdefault(Role(role), []).append(name)
    return default_principals() | given
