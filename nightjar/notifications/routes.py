"""The file of routes: targets that alerts are sent to, and which alerts go where.

A target is told of an alert by the first of its routes that the alert matches. Secrets are not in the file: it names
the files that hold them, relative to its own folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from nightjar.notifications.quiet import QuietHours
from nightjar.rules.canonical import canonical
from nightjar.rules.durations import Duration
from nightjar.rules.errors import SettingsError, printable
from nightjar.rules.model import Rule
from nightjar.rules.names import did_you_mean
from nightjar.rules.states import Severity
from nightjar.rules.zones import zone_named

REMEDY = "docs/how-to/notify.md has an example"

_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]", re.ASCII)
_ADDRESS = re.compile(r"[!-~]{1,64}@[A-Za-z0-9.-]{1,253}", re.ASCII)
_NO_PART_OF_AN_ADDRESS = set('<>,;:"()[]\\')
_HOST = re.compile(r"[A-Za-z0-9.:-]{1,253}", re.ASCII)


def checked_url(text: str) -> str:
    """The address of a webhook.

    Raises:
        ValueError: it is none. The message does not have it: it may be a secret.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("an address has no spaces, control characters or letters beyond ASCII")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address begins with https:// or http:// and has a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address has no user or password")
    return text


def _plain_url(text: str) -> str:
    if urlsplit(checked_url(text)).query:
        raise ValueError("what follows ? may be a secret: put the whole address into a file, and name it in url_file")
    return text


def _relative(path: Path, info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder", "")) / path


def _clock(value: Any) -> Any:
    if not isinstance(value, str) or not _CLOCK.fullmatch(value):
        raise ValueError('write a time of day as in "22:00"')
    return time.fromisoformat(value)


def _address(value: str) -> str:
    if not _ADDRESS.fullmatch(value) or _NO_PART_OF_AN_ADDRESS & set(value):
        raise ValueError("write an address as in fraud@example.com")
    return value


def _host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError("write a name or an address of a host, without the port")
    return value


FileName = Annotated[Path, AfterValidator(_relative)]
Url = Annotated[str, AfterValidator(_plain_url)]
Clock = Annotated[time, BeforeValidator(_clock)]
Address = Annotated[str, AfterValidator(_address)]
Host = Annotated[str, AfterValidator(_host)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Part = Literal["rule", "severity", "stream", "group"]
Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Quiet(_Table):
    """`quiet` of a target."""

    start: Clock | None = Field(None, alias="from")
    until: Clock | None = None
    days: frozenset[Day] = frozenset()
    zone: str = "UTC"
    excepted: frozenset[Severity] = Field(frozenset(), alias="except")

    @model_validator(mode="after")
    def _is_a_part_of_the_week(self) -> Quiet:
        if (self.start is None) != (self.until is None):
            raise ValueError("from and until belong together")
        if self.start is None and not self.days:
            raise ValueError("give from and until, or days")
        if self.start is not None and self.start == self.until:
            raise ValueError("from and until are the same")
        try:
            zone_named(self.zone, "zone")
        except SettingsError as refusal:
            raise ValueError(f"{refusal.what}. {refusal.remedy}") from None
        return self

    @property
    def hours(self) -> QuietHours:
        """What they mean."""
        zone = zone_named(self.zone, "zone")
        assert zone is not None  # noqa: S101  it was checked
        hours = None if self.start is None or self.until is None else (self.start, self.until)
        return QuietHours(hours, zone, self.excepted, frozenset(map(get_args(Day).index, self.days)))


class _Target(_Table):
    quiet: Quiet | None = None
    ca_file: FileName | None = None
    # Longer than a weekend.
    give_up_after: Duration = Field("3d", validate_default=True)  # as users write it


class Webhook(_Target):
    """A server that takes signed JSON."""

    kind: Literal["webhook"]
    url: Url | None = None
    url_file: FileName | None = None
    secret_file: FileName

    @model_validator(mode="after")
    def _has_one_address(self) -> Webhook:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("give either url or url_file")
        return self


class Slack(_Target):
    """A channel of Slack, Mattermost or another that takes `{"text": ...}`. Its address is a secret."""

    kind: Literal["slack"]
    url_file: FileName


class Mail(_Target):
    """Mailboxes, by an SMTP server."""

    kind: Literal["mail"]
    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: Annotated[str, Field(pattern=r"^[!-~]+$")] | None = None
    password_file: FileName | None = None
    sender: Address = Field(alias="from")
    to: Annotated[tuple[Address, ...], Field(min_length=1, max_length=50)]

    @model_validator(mode="after")
    def _has_a_whole_login(self) -> Mail:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("a login needs username and password_file")
        if self.username is not None and self.security == "none":
            raise ValueError('a login is not sent unencrypted: set security to "starttls" or "tls"')
        return self


Target = Annotated[Webhook | Slack | Mail, Field(discriminator="kind")]


class Route(_Table):
    """Which alerts go to which targets, and which of them are in one message."""

    to: Annotated[tuple[str, ...], Field(min_length=1)]
    rules: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    severities: Annotated[frozenset[Severity], Field(min_length=1)] = frozenset(Severity)
    tags: frozenset[str] = frozenset()
    group_by: tuple[Part, ...] = ("rule",)
    wait: Duration = Field("30s", validate_default=True)
    snoozed: bool = False
    """Whether its targets are told of snoozed alerts, too."""

    def matches(self, alert: Mapping[str, Any], tags: frozenset[str]) -> bool:
        """Whether an alert goes there. tags: those of its rule."""
        return self._takes(alert["rule_id"], alert["severity"], tags)

    def takes(self, rule: Rule) -> bool:
        """Whether alerts of a rule go there."""
        return not rule.allows and self._takes(rule.id, rule.severity, frozenset(rule.tags))

    def _takes(self, rule_id: str, severity: str, tags: frozenset[str]) -> bool:
        return (
            severity in self.severities
            and any(fnmatchcase(rule_id, pattern) for pattern in self.rules)
            and (not self.tags or bool(self.tags & tags))
        )

    def grouping(self, alert: Mapping[str, Any]) -> str:
        """What alerts of one message have in common, as text."""
        values = {"rule": alert["rule_id"], "severity": alert["severity"], "stream": alert["stream"]}
        return canonical({part: alert["group"] if part == "group" else values[part] for part in self.group_by})


class Routes(_Table):
    """The file."""

    targets: Annotated[dict[Name, Target], Field(min_length=1)]
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]

    def of(self, alert: Mapping[str, Any], tags: frozenset[str]) -> dict[str, Route]:
        """By target the first route that an alert matches. tags: those of its rule."""
        found: dict[str, Route] = {}
        for route in self.routes:
            if route.matches(alert, tags):
                for target in route.to:
                    found.setdefault(target, route)
        return found


def load_routes(file: Path) -> Routes:
    """Read the file.

    Raises:
        SettingsError: it cannot be read or used; where: the key.
    """
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as failure:
        remedy = "Set alert_routes to a TOML file"
        raise SettingsError(f"cannot be read ({failure.strerror})", where=str(file), remedy=remedy) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise SettingsError(f"is not TOML: {failure}", where=str(file), remedy=REMEDY) from None
    try:
        routes = Routes.model_validate(written, context={"folder": file.parent})
    except ValidationError as refusal:
        raise _explained(refusal, file) from None
    named = {target for route in routes.routes for target in route.to}
    for number, route in enumerate(routes.routes, 1):
        for target in route.to:
            if target not in routes.targets:
                where = f"{file}: route {number}.to"
                remedy = did_you_mean(target, routes.targets, "Targets are")
                raise SettingsError(f"{printable(target)!r} is not a target", where=where, remedy=remedy)
    if unused := sorted(set(routes.targets) - named):
        where = f"{file}: targets.{unused[0]}"
        raise SettingsError("no route leads there", where=where, remedy="Name it in `to` of a route, or remove it")
    return routes


def _explained(refusal: ValidationError, file: Path) -> SettingsError:
    first = refusal.errors(include_input=False, include_url=False)[0]
    place = [str(part) for part in first["loc"]]
    if place[:1] == ["targets"] and len(place) > 2:
        del place[2]  # the kind of target, which pydantic puts there
    if place[:1] == ["routes"] and len(place) > 1:
        place[:2] = [f"route {int(place[1]) + 1}"]
    where = f"{file}: {'.'.join(place)}" if place else str(file)
    what = first["msg"].removeprefix("Value error, ")
    return SettingsError("unknown key" if first["type"] == "extra_forbidden" else what, where=where, remedy=REMEDY)
