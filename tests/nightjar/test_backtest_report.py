"""The report of a backtest: a page on its own that shows what a person decides by."""

import html
import json
import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from nightjar.backfill.backtest.comparison import BacktestResult, Change, Curve, Example, Overlap, Point, Quality
from nightjar.backfill.backtest.report import as_mapping, in_words, write_report
from nightjar.rules.model import Rule
from nightjar.rules.versions import Approval, RuleVersion

MONDAY = date(2026, 1, 5)
RULE = Rule.model_validate(
    {
        "id": "burst",
        "stream": "transactions",
        "group_by": ["customer_id"],
        "when": "payments >= 3",
        "measures": {"payments": {"count": "*", "over": "10m"}},
        "author": "ann",
        "reason": "copied cards",
    }
)
LIVE = RuleVersion(
    RULE.model_copy(update={"when": "payments >= 5", "author": "bob", "reason": "a first try"}),
    2,
    1_767_571_200_000_000,
    approval=Approval("cem", "it is time"),
)


def points(*found: tuple[float, int]) -> list[Point]:
    """Thresholds and their alerts, the strictest first."""
    return [Point(threshold, alerts, None) for threshold, alerts in found]


def examples(count: int) -> list[Example]:
    """Alerts of as many customers."""
    noon = datetime(2026, 1, 7, 12, tzinfo=UTC)
    return [
        Example(f"t{n}", noon - timedelta(minutes=n), f'{{"customer_id":"c{n}"}}', f"text {n}") for n in range(count)
    ]


FOUND = BacktestResult(
    rule=RULE,
    live=None,
    days=[MONDAY + timedelta(days=n) for n in range(3)],
    alerts=108,
    by_day=[36, 31, 41],
    groups=40,
    top_groups=[('{"customer_id":"c7"}', 6)],
    overlaps=[],
    change=None,
    quality=None,
    curve=Curve("payments", ">=", 3.0, points((6, 25), (5, 40), (4, 63), (3, 108)), {10: Point(6, 25, None)}),
    examples=examples(50),
)
AGAINST_LIVE = replace(FOUND, live=LIVE, change=Change(2, 90, [30, 30, 30], 80, 28, 10, 3, examples(28), examples(10)))


@pytest.fixture
def page(tmp_path: Path) -> "Page":
    """Writes reports."""
    return Page(tmp_path / "report.html")


class Page:
    """Where a report is written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, *found: BacktestResult, reason: str | None = None) -> str:
        """The page as HTML."""
        write_report(found, self._path, reason)
        return self._path.read_text()


def text_of(page: str) -> str:
    """What is read, without markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    table = page[page.index(f"<h3>{title}") :]
    table = table[table.index("<table") : table.index("</table>")]
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in table.split("<tr")[1:]]
    return [[" ".join(cell.split()) for cell in row] for row in cells]


def test_no_threshold_is_left_out(page: Page) -> None:
    """The table has each value that occurs, so that the figure of a plan between two round ones can be read."""
    assert rows(page.of(FOUND), "Threshold") == [
        ["threshold", "alerts", "a day"],
        ["6", "25", "8.33"],
        ["5", "40", "13.33"],
        ["4", "63", "21"],
        ["3 <small>this draft</small>", "108", "36"],
    ]


def test_of_many_thresholds_those_of_round_figures_are_listed(page: Page) -> None:
    """And the draft's own, whether it occurs or not."""
    many = points(*((1000.5 - n, n) for n in range(1, 999)))
    curve = Curve("amount", ">", 900.0, many, {1: many[2], 10: many[29], 20: many[29]})
    shown = rows(page.of(replace(FOUND, curve=curve, alerts=100)), "Threshold")
    assert shown[1:] == [["997.5", "3", "1"], ["970.5", "30", "10"], ["900 <small>this draft</small>", "100", "33.33"]]


def test_a_day_has_one_label(page: Page) -> None:
    """The bars of days stand at days, not at hours; a long time is labelled in weeks."""

    def labels(found: BacktestResult) -> list[str]:
        text = page.of(found)
        (wide,) = re.findall(r'<div class="wide" role="img" aria-label="alerts a day">(.*?)</div>', text, re.DOTALL)
        return [label for label in re.findall(r"<!-- (.*?) -->", wide, re.DOTALL) if re.match(r"\d+ [A-Z]", label)]

    assert labels(replace(FOUND, curve=None)) == ["5 Jan", "6 Jan", "7 Jan"]
    long = [MONDAY + timedelta(days=n) for n in range(60)]
    assert labels(replace(FOUND, curve=None, days=long, by_day=[1] * 60))[:3] == ["5 Jan", "12 Jan", "19 Jan"]


def test_the_rule_its_versions_and_the_reason_are_shown(page: Page) -> None:
    """As a difference from the live version, if there is one."""
    alone, compared = text_of(page.of(FOUND)), text_of(page.of(AGAINST_LIVE, reason="the team has grown"))
    assert "A draft by ann: “copied cards”" in alone
    assert "when: payments >= 3" in alone
    assert "No live rule has this id" in alone
    assert "A draft by ann: “the team has grown”" in compared
    assert "Compared with version 2, which applies since 2026-01-05 00:00 UTC, by bob: “a first try”" in compared
    assert "approved by cem: “it is time”" in compared
    assert "-when: payments >= 5 +when: payments >= 3" in compared


def test_more_alerts_are_folded(page: Page) -> None:
    """Five are shown, fifty can be reached; groups are words."""
    text = page.of(FOUND)
    before, folded = text[text.index("<h3>Newest alerts") :].split("<details>")
    assert before.count("customer_id c") == 5
    assert folded.count("customer_id c") == 45
    assert "45 more of 103" in folded
    assert "{" not in before


@pytest.mark.parametrize(
    ("group", "words"),
    [('{"a":"x","b":2}', "a x, b 2"), ("{}", "all events"), ('{"a":null}', "a null"), ("x\n", "x\\n"), ("[1]", "[1]")],
)
def test_a_group_in_words(group: str, words: str) -> None:
    """Whatever it holds."""
    assert in_words(group) == words


def test_plots_take_the_colours_of_the_page(page: Page) -> None:
    """So that a dark page has light plots."""
    text = page.of(AGAINST_LIVE)
    assert "prefers-color-scheme: dark" in text
    plots = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b(?!\")", re.sub(r'(xlink:href|id|url\()="?#?[^"]*', "", plots))
    assert {"var(--draft)", "var(--live)", "var(--ink)", "var(--soft)"} <= set(re.findall(r"var\(--\w+\)", plots))


def test_nothing_that_somebody_wrote_is_markup(page: Page) -> None:
    """No script, no address of another file, nothing that the page would load, no character that reorders others."""
    evil = "<script src=//x>alert(1)</script>\u202e"
    example = Example(evil, datetime(2026, 1, 7, tzinfo=UTC), json.dumps({evil: evil}), evil)
    rule = RULE.model_copy(update={"author": evil, "reason": evil, "description": evil})
    quality = Quality(4, 2, 108, {evil: (2, 4)})
    hostile = replace(
        AGAINST_LIVE,
        curve=None,
        rule=rule,
        live=replace(LIVE, rule=rule.model_copy(update={"when": "TRUE"}), approval=Approval(evil, evil)),
        examples=[example],
        top_groups=[(evil, 1)],
        quality=quality,
        overlaps=[Overlap("other", 2, 1)],
    )
    text = page.of(hostile, reason=evil)
    assert "&lt;script" in text
    assert not re.search(r"<script|<link|<img|<iframe|@import|\u202e", text)
    assert not re.search(r"""(src|href)\s*=\s*["']?(?!#)[a-z/]""", re.sub(r"&lt;.*?&gt;", "", text))
    assert as_mapping(hostile)["rule"]["id"] == as_mapping(hostile)["live"]["id"] == "burst"


# Of the plot alone: a connection of an earlier test, collected meanwhile, is no error of it.
@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")
@pytest.mark.parametrize(
    "values", [(1.7e308, 5.0), (5e-324, 3.0), (0.0, -3.0), (3.0,), (1e6, 1e-6), (math.inf, 2.0), ()]
)
def test_any_thresholds_are_drawn(page: Page, values: tuple[float, ...]) -> None:
    """Of whatever size, however few."""
    curve = Curve("ratio", ">=", values[0] if values else 3.0, points(*zip(values, (1, 2), strict=False)), {})
    assert "this draft" in page.of(replace(FOUND, curve=curve))
