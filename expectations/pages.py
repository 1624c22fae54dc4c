"""Renders the pages of the data docs, at the places that Great Expectations' SiteBuilder has for it.

How it works: SiteBuilder calls `ResultRenderer` and `PageView` for each validation result, and `IndexBuilder` for the
first page. The pages are our own templates (site/), because Great Expectations' show neither severities nor nights, and
load scripts from other servers. Everything that the pages load is beside them: one style sheet and one small script.

What it does not do: import Great Expectations; SiteBuilder finds these classes by their names.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from nightjar.expectations.results import ShownResult, shown

_TEMPLATES = Path(__file__).parent / "site"
_ASSETS = ("pages.css", "pages.js")


class ResultRenderer:
    """SiteBuilder's renderer of a validation result."""

    def render(self, result: Any) -> ShownResult:
        """What the page shows. result: an ExpectationSuiteValidationResult."""
        return shown(result.to_json_dict())


class PageView:
    """SiteBuilder's view of what the renderer has made."""

    def render(self, document: ShownResult, **_: Any) -> str:
        """The page as HTML. It is below folders of the section, of each part of the suite's name, the run, the time."""
        depth = len(("section", *document.suite.split("."), "run", "time"))
        return _environment().get_template("result.html").render(result=document, up="../" * depth)


@dataclass(frozen=True)
class _Link:
    """A result in the index. address: relative to the site."""

    address: str
    result: ShownResult


class IndexBuilder:
    """SiteBuilder's builder of the first page: a night's runs by time, the newest first, with their suites."""

    def __init__(self, name: str, target_store: Any, folder: str) -> None:  # noqa: ARG002  as SiteBuilder calls it
        self._store = target_store
        self._folder = Path(folder)

    def build(self, build_index: bool = True) -> tuple[Any, None]:  # noqa: ARG002
        """Write the page."""
        rank = {"critical": 0, "warning": 1, "holds": 2}
        links = sorted(_links(self._folder), key=lambda link: (link.result.at, link.result.run), reverse=True)
        runs = [
            sorted(of, key=lambda link: (rank[link.result.state], link.result.suite))
            for _, of in groupby(links, lambda link: (link.result.at, link.result.run))
        ]
        page = _environment().get_template("index.html").render(runs=runs, up="")
        return self._store.write_index_page(page), None


def _links(results: Path) -> Iterator[_Link]:
    """Every stored result. Its page has the same place below the site as the result below its folder."""
    for file in results.rglob("*.json"):
        place = file.relative_to(results).with_suffix(".html")
        yield _Link(f"validations/{quote(place.as_posix())}", shown(json.loads(file.read_text(encoding="utf-8"))))


def asset(name: str) -> bytes | None:
    """What the pages load under this name; None if it is nothing of theirs."""
    return (_TEMPLATES / name).read_bytes() if name in _ASSETS else None


def message_page(title: str, lines: Sequence[str], *, up: str, link: tuple[str, str] | None = None) -> str:
    """A page that says why there is no other. up: path to the site; link: an address outside of it, and its text."""
    return _environment().get_template("message.html").render(title=title, lines=lines, up=up, link=link)


def has_assets(site: Path) -> bool:
    """Whether pages of this release are there, which may be left as they are."""
    return all((site / name).is_file() for name in _ASSETS)


def bring_assets(site: Path) -> None:
    """Put what the pages load beside them."""
    for name in _ASSETS:
        shutil.copyfile(_TEMPLATES / name, site / name)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nightjar.expectations", "site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["when"] = _when
    environment.filters["address"] = lambda text: quote(text, safe="")
    return environment


def _when(written: str) -> str:
    try:
        return f"{datetime.fromisoformat(written):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return written
