"""`nightjar rules catalogue`: shows the rules that nightjar ships, and takes them over."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nightjar.catalogue import Adaptation, Entry
    from nightjar.terminal.console import SafeConsole
    from nightjar.terminal.tables import RecordTable

app = typer.Typer(
    name="catalogue",
    help="Show the rules against known kinds of fraud that nightjar ships, and start from them.",
    no_args_is_help=True,
)

_WIDTH = 110


@app.command("list")
def list_catalogue(
    tag: Annotated[
        str | None, typer.Option(help="Only rules with this tag, such as takeover.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array of rules.")] = False,
) -> None:
    """List the rules of the catalogue, by area: cards, merchants, refunds, transfers and accounts."""
    from nightjar.catalogue import catalogue, tagged
    from nightjar.terminal.console import show_json

    entries = catalogue() if tag is None else tagged(tag)
    if as_json:
        show_json([_summary(entry) for entry in entries])
        return
    Context().console.print(_table(entries))


@app.command("show")
def show_entry(
    rule_id: Annotated[str, typer.Argument(help="The rule's id.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a rule of the catalogue: what it finds and why, what to tune, which fields it needs, and its YAML."""
    from nightjar.catalogue import entry_named
    from nightjar.terminal.console import show_json

    entry = entry_named(rule_id)
    if as_json:
        show_json(_content(entry))
    else:
        _show(Context().console, entry)


@app.command("add")
def add_entry(
    rule_id: Annotated[str, typer.Argument(help="The id of a rule in the catalogue.", show_default=False)],
    stream: Annotated[
        str | None, typer.Option(help="Your stream. Default: the one of the catalogue's name.", show_default=False)
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="A field or measure of the rule and its name with you, as card_id=pan_hash. May be repeated.",
            show_default=False,
        ),
    ] = None,
    new_id: Annotated[str | None, typer.Option("--id", help="Another id for the rule.", show_default=False)] = None,
    shadow: Annotated[bool, typer.Option("--shadow", help="Make it a shadow rule, without its action.")] = False,
    to: Annotated[
        Path | None, typer.Option(help="File of rules to add it to; it is made if there is none.", show_default=False)
    ] = None,
    case: Annotated[
        Path | None, typer.Option(help="New file for the rule's case, in your names.", show_default=False)
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="Publish the rule if it is new or changed.")] = False,
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
) -> None:
    """Take a rule of the catalogue over, for one of your streams: print it, add it to a file, or publish it.

    It is checked as `nightjar rules check` does. If the stream lacks fields, or they have types that do not fit,
    everything wrong is reported, the exit code is 2, and nothing is written or published. `nightjar rules test FILE
    --cases CASE` runs the case.
    """
    from nightjar.catalogue import Adaptation, entry_named
    from nightjar.cli.rule_publishing import publish_rules
    from nightjar.operations.rule_catalogue import check_adapted, given_names, rule_text, save, stream_for
    from nightjar.rules.states import State
    from nightjar.terminal.console import line, lines

    context = Context(streams=streams)
    entry, names = entry_named(rule_id), given_names(field or [])
    watched = stream_for(entry.stream.name, stream, context.streams)
    state = State.SHADOW if shadow else State.ACTIVE
    adaptation = Adaptation.of(entry, watched, names, rule_id=new_id, state=state)
    found = check_adapted(context.settings, context.streams, adaptation)
    (rule,) = found.rules
    save(adaptation, rule, context.streams, to, case)
    if to is not None:
        context.console.print(f"{to}: added {rule.id}", soft_wrap=True)
    if case is not None:
        context.console.print(f"{case}: the case of {rule.id}", soft_wrap=True)
    if to is None and case is None and not publish:
        context.console.print(lines(rule_text(adaptation, rule)), soft_wrap=True, end="")
    for warning in found.warnings:
        context.progress.print(lines(f"warning: {warning}", "yellow"), soft_wrap=True)
    for note in _vocabulary(adaptation):
        context.progress.print(line((note, "yellow")), soft_wrap=True)
    if publish:
        publish_rules(context, [rule], author=None, reason=None)


def _vocabulary(adaptation: "Adaptation") -> "Iterable[str]":
    """The values that the rule expects in fields of a stream that is not the catalogue's own, a line per field."""
    entry = adaptation.entry
    if adaptation.stream.name == entry.stream.name and not adaptation.names.keys() - {entry.stream.event_time}:
        return
    for name in entry.fields:
        if "`" in (meaning := entry.meanings[name]):
            yield f"values of {adaptation.names.get(name, name)} in the rule are those of the catalogue: {meaning}"


def _summary(entry: "Entry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "title": entry.title,
        "severity": entry.rule.severity.value,
        "tags": list(entry.tags),
        "stream": entry.stream.name,
    }


def _content(entry: "Entry") -> dict[str, Any]:
    from nightjar.catalogue.entries import TEXTS
    from nightjar.rules.model import rule_to_mapping

    fields = [
        {"field": name, "type": str(entry.stream.fields[name]), "meaning": entry.meanings[name]}
        for name in entry.fields
    ]
    texts = {key: getattr(entry, key) for key in TEXTS}
    return {
        **_summary(entry),
        **texts,
        "fields": fields,
        "retention": entry.retention,
        "rule": rule_to_mapping(entry.rule),
    }


def _table(entries: "Iterable[Entry]") -> "RecordTable":
    """The entries, a row each."""
    from nightjar.terminal.tables import RecordTable, prose

    shown = RecordTable("rule", prose("title"), "severity", prose("tags"), "stream")
    for entry in entries:
        shown.add_row(entry.id, entry.title, entry.rule.severity.value, ", ".join(entry.tags), entry.stream.name)
    return shown


def _show(console: "SafeConsole", entry: "Entry") -> None:
    import textwrap

    from nightjar.catalogue.entries import TEXTS
    from nightjar.rules.display import yaml_text
    from nightjar.terminal.console import line, lines

    console.print(line((entry.title, "bold")), soft_wrap=True)
    console.print(line(f"{entry.rule.severity.value}; {', '.join(entry.tags)}"), soft_wrap=True)
    for key, heading in TEXTS.items():
        console.print()
        console.print(line((heading, "bold")))
        text = textwrap.fill(getattr(entry, key), min(_WIDTH, console.width), break_on_hyphens=False)
        console.print(lines(text), soft_wrap=True)
    console.print()
    console.print(line(("What it needs", "bold")))
    console.print(line(f"A stream such as {entry.stream.name}, with these fields:"), soft_wrap=True)
    for name in entry.fields:
        console.print(line(f"  {name} ({entry.stream.fields[name]}): {entry.meanings[name]}"), soft_wrap=True)
    console.print(line(entry.retention), soft_wrap=True)
    console.print()
    console.print(line(("The rule", "bold")))
    console.print(lines(yaml_text(entry.rule).rstrip()), soft_wrap=True)
