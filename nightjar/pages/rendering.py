"""Pages as HTML, from templates that escape every value, with the headers that all of them have.

A browser loads nothing from elsewhere, runs no script but ours, and sends forms nowhere else. Links are relative, so
that the pages work below any path.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request, status
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from nightjar.contracts.alerts import RETRACTED
from nightjar.contracts.reconciliation import Outcome
from nightjar.rules.display import readable
from nightjar.rules.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP, microseconds

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


# A time in an address, µs.
EventTime = Annotated[int | None, Query(ge=MIN_TIMESTAMP, le=MAX_TIMESTAMP)]


def see_other(address: str) -> RedirectResponse:
    """The answer to a form that has been acted on: what is at the address."""
    return RedirectResponse(address, status.HTTP_303_SEE_OTHER, headers=HEADERS)


def to_alert(alert_id: str, at: int | None, part: str) -> RedirectResponse:
    """The answer to a form of an alert's page: a part of that page. at: the time of the alert's event (µs), by which it
    is found sooner."""
    query = "" if at is None else f"?at={at}"
    return see_other(f"../{quote(alert_id, safe='')}{query}#{part}")


class Rendering:
    """Renders the templates in `site`. links: addresses outside of the application, by their texts."""

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links
        self.environment = Environment(
            loader=PackageLoader("nightjar.pages", "site"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters.update(
            readable=readable,
            segment=lambda text: quote(text, safe=""),
            instant=instant,
            microseconds=microseconds,
            plain=plain,
            words=lambda name: name.replace("_", " "),
        )
        self.environment.globals.update(retracted=RETRACTED, matched=Outcome.MATCHED.value)

    def page(self, request: Request, name: str, code: int = status.HTTP_200_OK, **values: Any) -> HTMLResponse:
        """A page by the name of its template."""
        shown = self.environment.get_template(name).render(
            up=_up(request), links=self._links, here=name.removesuffix(".html"), **values
        )
        return HTMLResponse(shown, code, headers=HEADERS)

    def message(self, request: Request, code: int, title: str, line: str, link: str | None = None) -> HTMLResponse:
        """A page that says why there is no other. link: to the login."""
        return self.page(request, "message.html", code, title=title, line=line, link=link)


def _up(request: Request) -> str:
    """The way from the request's page to the application's first address."""
    route, path = request.scope.get("route"), request.url.path.removeprefix(request.scope.get("root_path", ""))
    return "../" * (getattr(route, "path", path).count("/") - 1) or "./"


def instant(at: datetime | str) -> str:
    """A time in ISO 8601, in UTC, to the millisecond."""
    when = datetime.fromisoformat(at) if isinstance(at, str) else at
    return when.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> str:
    """A value of a field."""
    return instant(value) if isinstance(value, datetime) else "" if value is None else str(value)
