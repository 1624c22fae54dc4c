"""`nightjar alerts label`, `import-labels` and `precision`: what alerts were, and what that says about the rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.cli.context import Context
from nightjar.contracts.label_values import Label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nightjar.backfill.publish.precision import Precision
    from nightjar.terminal.tables import RecordTable


def label_alert(
    alert_id: Annotated[str, typer.Argument(metavar="ALERT", help="The alert's id.")],
    label: Annotated[Label, typer.Argument(help="What it was; `unsure` takes back an earlier label.")],
    reason: Annotated[str | None, typer.Option(help="Why, in one line.", show_default=False)] = None,
    author: Annotated[
        str | None, typer.Option(help="Who says so. Default: the login name.", show_default=False)
    ] = None,
) -> None:
    """Say what an alert was: fraud, legitimate, or that nobody can say.

    The label goes to the topic `labels`, counts from now on, and the last one of an alert counts. `nightjar alerts
    precision` shows what the labels say about the rules.
    """
    from nightjar.operations.labelling import alert_named, label_of_alert, send_labels
    from nightjar.operations.rule_publishing import login_name
    from nightjar.operations.unarchived import OnKafka
    from nightjar.terminal.console import line

    context = Context()
    recent = OnKafka(context.settings)
    alert = alert_named(context.backfill().lake.root, alert_id, recent)
    record = label_of_alert(alert, label.value, author or login_name() or "", reason)
    send_labels(context.settings, [record])
    context.console.print(
        line("alert ", (alert_id, "bold"), f" of rule {alert.rule_id} is {label.value}"), soft_wrap=True
    )


def import_labels(
    file: Annotated[
        Path,
        typer.Argument(
            help="Parquet, CSV or JSON lines (the last two also with .gz) with event ids and labels. NULL says "
            "nothing, `unsure` is a label, false, 0 and `genuine` are legitimate, anything else is fraud."
        ),
    ],
    stream: Annotated[str, typer.Option(help="The stream of the events.")],
    label: Annotated[
        str | None, typer.Option(help="The column of the labels, as for `nightjar backtest`.", show_default=False)
    ] = None,
    known: Annotated[
        str | None,
        typer.Option(
            help="The column of the times at which they became known. Default: now, for all.", show_default=False
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="Where they come from.")] = "chargeback",
    author: Annotated[
        str | None, typer.Option(help="Who says so. Default: the login name.", show_default=False)
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, in one line.", show_default=False)] = None,
) -> None:
    """Say what the alerts of many events were, from a file such as a list of chargebacks.

    Each label is about every alert of its event. A label counts from when it became known, so name the column of that:
    otherwise a rule's precision at an earlier time would not have them. Importing a file again changes nothing.
    """
    from nightjar.operations.labelling import labels_of_file, send_labels
    from nightjar.operations.rule_publishing import login_name
    from nightjar.terminal.console import counted

    context = Context()
    records = labels_of_file(
        file,
        context.stream(stream),
        column=label,
        known=known,
        source=source,
        author=author or login_name() or "",
        reason=reason,
    )
    context.console.print(f"sent {counted(send_labels(context.settings, records), 'label')}")


def show_precision(
    days: Annotated[int, typer.Option(min=1, max=3660, help="Days of events, up to the newest with an alert.")] = 90,
    until: Annotated[
        str | None,
        typer.Option(
            help="Labels that became known by then count: a time like 2026-11-20T00:00:00Z. Default: now.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Show how many of each rule's labelled alerts were fraud, by version, from the lake.

    Alerts without a label do not count, so that the figure is only as good as the choice of what was looked into.
    """
    from nightjar.operations.labelling import rules_precision
    from nightjar.terminal.console import show_json

    context = Context()
    found = rules_precision(context.backfill().lake.root, days, until)
    if as_json:
        show_json([each.as_dict() for each in found])
    elif found:
        context.console.print(precision_table(found))
    else:
        context.console.print("The lake has no labelled alert of these days: `nightjar alerts label` labels one.")


def precision_table(found: "Iterable[Precision]", **options: str) -> "RecordTable":
    """A row for each version. options: of the table."""
    from nightjar.terminal.tables import RecordTable, number

    table = RecordTable("rule", *map(number, ("version", "fraud", "legitimate", "unsure", "precision")), **options)
    for each in found:
        share = "" if each.precision is None else f"{each.precision:.1%}"
        counts = (each.rule_version, each.fraud, each.legitimate, each.unsure)
        table.add_row(each.rule_id, *(f"{count:,}" for count in counts), share)
    return table
