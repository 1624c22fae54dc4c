"""What the lake lacks for a comparison of drafts with live rules, in sentences. None of it is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from nightjar.backfill.backtest.backtest import live_versions
from nightjar.backfill.config import microseconds_of_day
from nightjar.lake import delta
from nightjar.lake.archive import archived_until
from nightjar.lake.tables import RULE_STATUS
from nightjar.operations.preview import known_rules
from nightjar.rules.model import Rule
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import from_microseconds
from nightjar.storage.paths import AnyPath

_REMEDY = "`nightjar archive` brings the lake up to date"


def gaps(root: AnyPath, streams: Mapping[str, Stream], drafts: Iterable[Rule], last: date | None = None) -> list[str]:
    """Live rules that drafts are not compared with, and days that are not whole. last: the last day to be evaluated,
    None where it is the newest events, whatever their days."""
    if not delta.exists(root, RULE_STATUS):
        return [f"the lake has no published rules yet, so nothing is compared with live rules: {_REMEDY}"]
    known, found = known_rules(root, streams), []
    for draft in drafts:
        named = draft.shadow_of or draft.id
        if draft.shadow_of is not None and named not in live_versions(known, [draft.stream]):
            found.append(f"{draft.id} is not compared with {named}, of which the lake has no live version: {_REMEDY}")
        elif last is not None and not known.of_rule(named):
            found.append(
                f"{draft.id} is compared with no live version: it is new, or was published since the last archive"
            )
    until = archived_until(root)
    if last is not None and until is not None and until < microseconds_of_day(last + timedelta(days=1)):
        came = f"{from_microseconds(until):%Y-%m-%d %H:%M} UTC"
        found.append(f"the lake has what arrived until {came}, so that {last} is not whole: {_REMEDY}")
    return found
