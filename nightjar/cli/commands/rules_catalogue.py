"""`nightjar rules catalogue`: shows the rules that nightjar ships."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.context import Context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nightjar.catalogue import Entry
    from nightjar.terminal.console import SafeConsole
    from nightjar.terminal.tables import RecordTable

app = typer.Typer(
    name="catalogue",
    help="Show the rules against known kinds of fraud that nightjar ships.",
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
    return {**_summary(entry), **texts, "fields": fields, "rule": rule_to_mapping(entry.rule)}


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
    console.print()
    console.print(line(("The rule", "bold")))
    console.print(lines(yaml_text(entry.rule).rstrip()), soft_wrap=True)
