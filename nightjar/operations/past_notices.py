"""Sentences on what rule messages change of the past, for who is about to send them."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nightjar.configuration.settings import Settings
from nightjar.rules.errors import NightjarError
from nightjar.rules.publishing import judge
from nightjar.rules.streams import Stream
from nightjar.rules.timestamps import iso_text, microseconds
from nightjar.rules.versions import Published
from nightjar.terminal.stages import Stages, announce_compiling

if TYPE_CHECKING:
    from nightjar.operations.past_effect import PastEffect


def past_notices(
    settings: Settings,
    streams: Mapping[str, Stream],
    known: Published,
    messages: Iterable[Mapping[str, Any]],
    stages: Stages,
) -> Iterator[str]:
    """A sentence for each of the messages, sent now, whose version states an effective time that is past."""
    now = time.time_ns() // 1000
    effect: PastEffect | str | None
    for message in messages:
        made, _ = judge(
            known,
            message,
            now,
            streams,
            settings.activation_delay,
            forms=settings.forms,
            approvals=settings.approvals,
        )
        if made is None or made.rule.effective is None or microseconds(made.rule.effective) >= now:
            continue
        named = f"version {made.version} of {made.rule.id}"
        stated = f"{iso_text(microseconds(made.rule.effective))[:19]}Z"
        if made.is_proposed or made.approval is not None:
            yield f"{named} states {stated}, which is past: it applies from its approval on, not before"
            continue
        with stages.waiting(f"evaluating what {named} changes of the past"):
            from nightjar.operations.past_effect import past_effect  # Polars and the engine, which few messages need

            announce_compiling()
            try:
                effect = past_effect(settings.lake, streams, known, made, now, pending_days=settings.pending_days)
            except NightjarError as failure:
                since = f"{named} applies to the past, from {stated} on"
                effect = f"{since}; how many alerts that changes is not known: {failure}"
        yield str(effect)
