"""Data docs: every run is on a page, and the pages open without a network."""

import json
import re
import shutil
import subprocess
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nightjar.expectations import docs
from nightjar.expectations.findings import Checked
from nightjar.expectations.suites import Suite, reconciliation_suite, violations_suite
from tests.support.frames import DAY, NOON

pytestmark = pytest.mark.slow  # Great Expectations takes seconds to import

HOSTILE = "<script>document.title = 'owned'</script>"


def result_of(
    suite: Suite, *broken: str, problem: str | None = None, examples: list[dict[str, Any]] | None = None
) -> Checked:
    """The result of Great Expectations for a suite of which some expectations do not hold."""
    shown = examples or [{"alert_id": "ann-s-alert", "group": HOSTILE}]
    from nightjar.expectations.rows import suite_of

    results = []
    for each in suite_of(suite).expectations:
        config: dict[str, Any] = json.loads(json.dumps(each.configuration.to_json_dict()))
        wrong = config["meta"]["name"] in broken
        found = {
            "observed_value": int(wrong),
            "examples": shown if wrong else [],
        }
        raised = {
            "raised_exception": wrong and bool(problem),
            "exception_traceback": problem,
            "exception_message": problem,
        }
        results.append(
            {
                "success": not wrong,
                "expectation_config": config,
                "result": {} if wrong and problem else found,
                "meta": {},
                "exception_info": raised,
            }
        )
    good = sum(each["success"] for each in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": good,
        "unsuccessful_expectations": len(results) - good,
        "success_percent": 100 * good / len(results),
    }
    validation = {
        "success": good == len(results),
        "results": results,
        "suite_name": suite.name,
        "suite_parameters": {},
        "statistics": statistics,
        "meta": {"great_expectations_version": "1.24.1"},
        "id": None,
    }
    return Checked(suite.name, (), validation)


def built(folder: Path, number: int = 0, **options: Any) -> Path:
    """The index after a run in which an event was missing."""
    checked = [result_of(violations_suite(), "event_exists"), result_of(reconciliation_suite(4, 5))]
    index = docs.build(
        checked, folder, run_id=f"manual__{number}:00+00:00", day=DAY, at=NOON + timedelta(hours=number), **options
    )
    assert index == folder / "site" / "index.html"
    return index


class Loading(HTMLParser):
    """What a browser would load for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Anything with a `src`, and every `href` that is not a link to follow."""
        self.addresses += [
            value for name, value in attrs if value and (name == "src" or (name == "href" and tag != "a"))
        ]


def test_pages_load_only_what_lies_beside_them(tmp_path: Path) -> None:
    """No script, style sheet, picture or font of another server; and all that is loaded is there."""
    index = built(tmp_path)
    pages = list(index.parent.rglob("*.html"))
    assert len(pages) == 3
    for page in pages:
        text = page.read_text()
        loading = Loading()
        loading.feed(text)
        assert len(loading.addresses) == 2, page
        for address in loading.addresses:
            assert (page.parent / address).resolve().is_file(), f"{page} loads {address}"
    for file in index.parent.rglob("*"):
        assert file.is_dir() or file.suffix in {".html", ".css", ".js"}, file
        assert file.is_dir() or not re.search(r"(url\(|@import|import\()", file.read_text()), file


def test_event_content_is_not_part_of_a_page(tmp_path: Path) -> None:
    """Rows that are shown, and errors that quote them, are text."""
    built(tmp_path)
    docs.build([result_of(violations_suite(), "event_exists", problem=HOSTILE)], tmp_path, run_id="x", day=DAY)
    pages = [page.read_text() for page in (tmp_path / "site").rglob("violations.html")]
    assert len(pages) == 2
    for page in pages:
        assert HOSTILE not in page
        assert "&lt;script&gt;document.title" in page


def words(page: Path) -> str:
    """What a page says, without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.read_text()).split())


def test_a_page_shows_what_holds_and_what_breaks_it(tmp_path: Path) -> None:
    """The night, each expectation's sentence and severity, its SQL, folded away, and the rows."""
    built(tmp_path)
    (page,) = (tmp_path / "site").rglob("violations.html")
    text = words(page)
    assert "violations 1 critical failed" in text
    assert "Night of 2026-01-05 (UTC)" in text
    assert "Run manual__0:00+00:00" in text
    broken, others = text.split("violated by 1 row")
    assert "the event is in the lake and has the violation" in broken
    assert broken.endswith("critical "), "its severity stands before the outcome"
    assert "✓" not in broken, "what is broken comes first"
    assert "warning" not in text
    assert "<details><summary>" in page.read_text()
    assert "NOT coalesce(alert_id = expected_id, false)" in others
    assert "&amp;amp;" not in page.read_text()


def test_warnings_come_after_what_is_critical_and_examples_have_all_their_columns(tmp_path: Path) -> None:
    """Rows of one expectation may have different columns; a number of rows is named in words."""
    rows = [{"partition": "0", "offset": "7", "$rows": "2"}, {"partition": "0", "event_id": "<b>"}]
    suite = reconciliation_suite(4, 5)
    docs.build([result_of(suite, "explained", "alert_id_unique", examples=rows)], tmp_path, run_id="r", day=DAY)
    (page,) = (tmp_path / "site").rglob("reconciliation.html")
    text = words(page)
    assert "1 critical failed, 1 warning" in text
    assert text.index("an alert has one outcome") < text.index("every difference is explained")
    assert text.index("every difference is explained") < text.index("✓")
    titles = ["partition", "offset", "rows with this key", "event_id"]
    headers = "".join(f'<th scope="col">{title}</th>' for title in titles)
    assert headers in page.read_text()
    assert text.count("NULL") == text.count("IS NULL") + 2 * (1 + 2), "each of two tables lacks three cells"


def test_the_index_names_nights_and_what_failed_first(tmp_path: Path) -> None:
    """The newest run first; in it the suites that failed."""
    built(tmp_path)
    index = built(tmp_path, 1)
    text = words(index)
    assert text.count("Night of 2026-01-05") == 2
    assert text.index("manual__1:00") < text.index("manual__0:00")
    assert "violations 1 critical failed reconciliation all 8 hold" in text


def test_pages_of_an_earlier_release_are_made_again(tmp_path: Path) -> None:
    """With what they load."""
    index = built(tmp_path)
    (page,) = index.parent.rglob("violations.html")
    page.write_text("of an earlier release")
    (index.parent / "pages.css").unlink()
    (index.parent / "static").mkdir()
    built(tmp_path, 1)
    assert "Night of" in page.read_text()
    assert not (index.parent / "static").exists()


def test_rows_of_a_person_go_and_others_stay(tmp_path: Path) -> None:
    """S15: examples that name somebody are removed, other texts masked, and the pages rendered again."""
    built(tmp_path)
    docs.build([result_of(violations_suite(), "event_exists", problem="no 'O&M'")], tmp_path, run_id="x", day=DAY)

    def names(text: str) -> bool:
        return text == "ann-s-alert"

    def masked(text: str) -> str:
        return text.replace("O&M", "•••")

    assert docs.erase(tmp_path, names, masked, dry_run=True) == 2
    first, second = sorted(
        (tmp_path / "site").rglob("violations.html"), key=lambda page: "x" in page.parent.parent.name
    )
    assert "ann-s-alert" in first.read_text()
    assert docs.erase(tmp_path, names, masked, dry_run=False) == 2
    assert "ann-s-alert" not in first.read_text()
    assert "violated by 1 row" in first.read_text(), "the result itself stays"
    assert "O&" not in second.read_text()
    assert docs.erase(tmp_path, names, masked, dry_run=False) == 0
    assert "ann-s-alert" not in "".join(file.read_text() for file in (tmp_path / "results").rglob("*.json"))


def test_runs_add_up_until_there_are_too_many(tmp_path: Path) -> None:
    """The index lists each run by day and id; the oldest go first, pages and results alike."""
    for number in range(4):
        index = built(tmp_path, number, keep=3)
    text = index.read_text()
    assert [f"manual__{number}:00+00:00" in text for number in range(4)] == [False, True, True, True]
    assert len(list((tmp_path / "site").rglob("violations.html"))) == 3
    assert len(list((tmp_path / "results").rglob("violations.json"))) == 3


def test_a_run_survives_its_data_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be written, a result that cannot be shown: no page, and no error."""
    (tmp_path / "file").write_text("")
    assert docs.build([], tmp_path / "file", run_id="r", day=DAY) is None
    assert docs.build([Checked("s", (), {"results": "none"})], tmp_path, run_id="r", day=DAY) is None


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_shows_them_without_a_network(tmp_path: Path) -> None:
    """They show themselves, and the console has no complaint."""
    index = built(tmp_path)
    (page,) = index.parent.rglob("violations.html")
    for shown, expected in ((index, "Night of 2026-01-05"), (page, "violated by 1 row")):
        browser = subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                "--enable-logging=stderr",
                f"--user-data-dir={tmp_path / 'chromium'}",
                "--virtual-time-budget=4000",
                "--dump-dom",
                shown.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert expected in browser.stdout
        assert "<title>owned" not in browser.stdout
        assert "Uncaught" not in browser.stderr
        assert "ERR_" not in browser.stderr
