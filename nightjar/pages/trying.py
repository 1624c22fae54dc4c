"""What rules would have found, for the page that writes them.

What it does not do: evaluate. That is the work of `operations.preview`, as for `nightjar rules check`, and that of
`operations.past_notices` for what versions change of the past.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nightjar.contracts.rule_messages import rule_message
from nightjar.operations.past_notices import past_notices
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.rule_reader import RuleReader
from nightjar.rules.errors import NightjarError
from nightjar.rules.model import Rule
from nightjar.terminal.stages import Stages

if TYPE_CHECKING:
    from nightjar.operations.preview import Preview

# Events, the newest of a rule's stream: some seconds.
MOST_EVENTS = 20_000


@dataclass(frozen=True)
class Tried:
    """What came of a trial. previews: by rule id; without: rules of which the lake has no events, or that are not
    evaluated; notes: what the lake lacks, and what versions change of the past; failure: why there is nothing else."""

    previews: dict[str, Preview] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failure: str = ""


def tried(found: list[Rule], rules: RuleReader, lake: LakeReader) -> Tried:
    """What rules would have found in the newest events of the lake; values of sensitive fields are masked."""
    # What evaluates, and compares as backtests do: few processes need it.
    from nightjar.operations.lake_gaps import gaps
    from nightjar.operations.preview import previews

    try:
        seen = previews(lake.root, rules.streams, found, MOST_EVENTS, masked=True)
        (book, _), _ = rules.book_or(lake.book)
        notices = past_notices(rules.settings, rules.streams, book, map(rule_message, found), Stages())
        notes = [*gaps(lake.root, rules.streams, found), *notices]
    except NightjarError as refusal:
        return Tried(failure=str(refusal))
    return Tried(seen, [rule.id for rule in found if rule.id not in seen], notes)
