"""Says what an alert was, from its page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from nightjar.contracts.record_type import Row
from nightjar.operations.labelling import label_of_alert
from nightjar.pages.acting import Acting, acted
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.rendering import EventTime, to_alert
from nightjar.rules.timestamps import microseconds

Send = Callable[[Row], object]


def add_labels(app: FastAPI, reader: Callable[[], LakeReader], guard: Any, actor: Any, send: Send) -> None:
    """Add the address that takes the form of an alert's page. send: puts a label on its topic."""

    def say(alert_id: str, label: str, who: str, reason: str) -> int:
        alert = reader().labelled(alert_id)
        send(label_of_alert(alert, label, who, reason))
        return microseconds(alert.event_time)

    @app.post("/alerts/{alert_id}/label", dependencies=[guard])
    async def label(request: Request, alert_id: str, acting: Acting = actor) -> RedirectResponse:
        who, form = await acted(request, acting)
        at = await run_in_threadpool(say, alert_id, form.get("label", ""), who, form.get("reason", "").strip())
        return back(alert_id, at)

    @app.get("/alerts/{alert_id}/label", dependencies=[guard])
    def back(alert_id: str, at: EventTime = None) -> RedirectResponse:
        """Where a login leads whose session had ended before the form was sent."""
        return to_alert(alert_id, at, "said")


def nobody_acts() -> Any:
    """A dependency by which everybody may only look."""
    return Depends(lambda: Acting(None, ""))
