"""Says what an alert was, from its page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from nightjar.contracts.record_type import Row
from nightjar.operations.labelling import label_of_alert
from nightjar.pages.acting import Acting, acted
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.rendering import see_other

Send = Callable[[Row], object]


def add_labels(app: FastAPI, reader: Callable[[], LakeReader], guard: Any, actor: Any, send: Send) -> None:
    """Add the address that takes the form of an alert's page. send: puts a label on its topic."""

    def say(alert_id: str, label: str, who: str, reason: str) -> None:
        send(label_of_alert(reader().labelled(alert_id), label, who, reason))

    @app.post("/alerts/{alert_id}/label", dependencies=[guard])
    async def label(request: Request, alert_id: str, acting: Acting = actor) -> RedirectResponse:
        who, form = await acted(request, acting)
        await run_in_threadpool(say, alert_id, form.get("label", ""), who, form.get("reason", "").strip())
        return back(alert_id)

    @app.get("/alerts/{alert_id}/label", dependencies=[guard])
    def back(alert_id: str) -> RedirectResponse:
        """Where a login leads whose session had ended before the form was sent."""
        there = f"../{quote(alert_id, safe='')}#said"
        return see_other(there)


def nobody_acts() -> Any:
    """A dependency by which everybody may only look."""
    return Depends(lambda: Acting(None, ""))
