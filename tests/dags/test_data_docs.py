"""The data docs and the pages inside a real Airflow that a proxy serves below a path."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from nightjar.airflow.local.airflow import USER, LocalAirflow
from nightjar.airflow.submission import run_folder
from nightjar.configuration.settings import load_settings
from nightjar.expectations import docs
from nightjar.expectations.suites import reconciliation_suite, violations_suite
from tests.expectations.test_docs import result_of
from tests.support.browser import browsing, needs_chromium, opened, session_of
from tests.support.explained_lake import named, small_lake
from tests.support.frames import DAY, NOON

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DAG = "nightly_backfill"
# Addresses that take what changes lists and rules.
ACTS = ("tables/x/change", "tables/x/import", "tables/x/approve", "edit", "rules/x/approve", "rules/x/decline")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """One below `/airflow`, with no night yet."""
    folder = tmp_path_factory.mktemp("nightjar")
    settings = load_settings(
        data_dir=folder, airflow_port=0, spark_master="local[2]", kafka_port=9, airflow_users={"viewer": "viewer"}
    )
    environment = {"NIGHTJAR_DATA_DIR": str(folder)}
    with LocalAirflow(settings, schedule=False, environment=environment, path="/airflow") as airflow:
        airflow.await_dag(DAG, 60)
        yield airflow


def test_the_entry_stands_in_airflows_frame_below_its_path(running: LocalAirflow) -> None:
    """The address has the base path, and the menu shows it as a page of Airflow's own."""
    plugins = running.client._ask("GET", "plugins")["plugins"]
    for name, href, route in (
        ("data_docs", "/airflow/data-docs/", "data-docs"),
        ("nightjar_pages", "/airflow/nightjar/", "nightjar"),
    ):
        (view,) = next(plugin for plugin in plugins if plugin["name"] == name)["external_views"]
        assert (view["href"], view["url_route"]) == (href, route)


def test_who_is_not_logged_in_gets_a_page_with_the_login_and_nothing_else(running: LocalAirflow) -> None:
    """The login leads back to the page in Airflow's frame; the style of the page is no secret."""
    client = session_of(running, None)
    pages = ("", "index.html", "validations/a/b.html", "run/x", "backtests/x")
    for path in (f"/data-docs/{page}" for page in pages):
        answer = client.get(path)
        assert answer.status_code == 401
        assert answer.headers["content-type"].startswith("text/html")
        assert "Log in to see this page" in answer.text
        back = quote(f"/plugin/data-docs/airflow{path}", safe="")
        assert f'{back}"' in answer.text, "the login leads back"
    assert "/airflow/api/v2/auth/login?next=" in answer.text
    login = client.get(f"/api/v2/auth/login?next={running.url}/plugin/data-docs/airflow/data-docs/index.html")
    assert login.status_code == 307, "Airflow takes the address for one of its own"
    back = parse_qs(urlsplit(login.headers["location"]).query)["next"]
    assert back == [f"{running.url}/plugin/data-docs/airflow/data-docs/index.html"]
    assert client.get("/data-docs/pages.css").status_code == 200
    assert client.get("/data-docs/pages.html").status_code == 404


def test_alerts_are_shown_to_nobody_without_a_session(running: LocalAirflow) -> None:
    """Of no page, and no stream of alerts; style and scripts are no secret."""
    client = session_of(running, None)
    for path in (
        "",
        "alerts",
        "alerts.csv",
        "alerts/x",
        "live",
        "nights",
        "nights/2026-01-05",
        "rules",
        "rules/x",
        "stream",
        "entity?field=a&value=b",
        "tables",
        "tables/x",
    ):
        answer = client.get(f"/nightjar/{path}")
        assert answer.status_code == 401, path
        assert "Log in to see this page" in answer.text
        back = quote(f"{running.url}/plugin/nightjar/airflow/nightjar/{path}", safe="")
        assert f"/airflow/api/v2/auth/login?next={back}" in answer.text
    assert client.get("/nightjar/assets/application.js").status_code == 200


def test_before_the_first_night_a_page_says_what_will_be_there(running: LocalAirflow) -> None:
    """And when: here the DAG is paused."""
    client = session_of(running)
    first = client.get("/data-docs/")
    assert (first.status_code, first.headers["location"]) == (307, "index.html")
    page = client.get("/data-docs/index.html")
    assert page.status_code == 200
    assert "No night has run yet" in page.text
    assert "The DAG nightly_backfill is paused" in page.text
    assert page.headers["X-Frame-Options"] == "SAMEORIGIN"
    missing = client.get("/data-docs/validations/none.html")
    assert (missing.status_code, "No such page" in missing.text) == (404, True)
    assert client.get("/data-docs/%2e%2e/%2e%2e/airflow/passwords.json").status_code == 404


def test_pages_link_to_the_run_that_checked_the_day(running: LocalAirflow) -> None:
    """Also of a pending day, which a run of a later day has done; a run of the command line has no page in Airflow."""
    run = running.client.trigger(DAG, {"day": DAY.isoformat()})
    folder = run_folder(run)
    checked = [result_of(violations_suite(), "event_exists"), result_of(reconciliation_suite(4, 5))]
    lake = Path(running.home).parent / "lake"
    lake.mkdir(exist_ok=True)
    docs.build(checked, lake / "data_docs", run_id=folder, day=DAY, at=NOON + timedelta(days=1))
    client = session_of(running)
    assert f'href="run/{folder}"' in client.get("/data-docs/index.html").text
    for name in (folder, f"{folder}-2026-01-04"):
        answer = client.get(f"/data-docs/run/{name}")
        assert answer.status_code == 307
        assert answer.headers["location"] == f"/airflow/dags/{DAG}/runs/{run.replace(':', '%3A').replace('+', '%2B')}"
    unknown = client.get("/data-docs/run/2026-01-05-20260106T010000000000")
    assert (unknown.status_code, "nightjar backfill" in unknown.text) == (404, True)


@pytest.fixture(scope="module")
def alert_path(running: LocalAirflow) -> str:
    """The address of an alert of the lake, below the application's."""
    small_lake(Path(running.home).parent / "lake").alert()
    return f"alerts/{named()}"


def test_a_viewer_looks_and_a_user_labels(running: LocalAirflow, alert_path: str) -> None:
    """The server decides, whatever a form says; no broker runs here, which is as far as a label comes."""
    seals = {}
    for user in (USER, "viewer"):
        client = session_of(running, user)
        page = client.get(f"/nightjar/{alert_path}")
        assert page.status_code == 200
        seals[user] = re.findall(r'name="seal" value="([0-9a-f]{64})"', page.text)
    (seal,) = set(seals[USER])
    assert seals["viewer"] == []
    for other, code in (({}, 503), ({"seal": "0" * 64}, 403), ({"label": "dunno"}, 400)):
        form = {"label": "fraud", "seal": seal} | other
        assert session_of(running).post(f"/nightjar/{alert_path}/label", data=form).status_code == code, form
        for path in (f"{alert_path}/label", *ACTS):
            assert session_of(running, "viewer").post(f"/nightjar/{path}", data=form).status_code == 403, path
        assert session_of(running, None).post(f"/nightjar/{alert_path}/label", data=form).status_code == 401


def themes(page: Page, frame: FrameLocator) -> Iterator[str]:
    """The themes of the system, each once the page has been loaded again with it."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.reload()
        frame.locator("h1").wait_for()
        yield theme


@needs_chromium
def test_in_a_browser_they_stand_in_airflows_frame_with_its_theme(running: LocalAirflow) -> None:
    """From the menu to a page of results, which a reload keeps, and from there to the run on Airflow's own page."""
    with browsing(running) as page:
        frame = opened(page, "Data docs")
        for theme in themes(page, frame):
            expect(frame.locator("html")).to_have_attribute("data-theme", theme)
        frame.get_by_role("link", name="violations").first.click()
        frame.get_by_role("heading", name="violations").wait_for()
        address = page.url
        page.reload()
        assert page.url == address
        frame.get_by_role("heading", name="violations").wait_for()
        frame.locator("a.airflow-run").click()
        page.wait_for_url(f"**/dags/{DAG}/runs/**")
        assert page.locator("iframe").count() == 0


@needs_chromium
def test_alerts_stand_in_airflows_frame_with_its_theme(running: LocalAirflow, alert_path: str) -> None:
    """From the menu to the alerts and on, below the path; a reload keeps the page; links out leave the frame, whose
    sandbox lets the form of a label through."""
    with browsing(running) as page:
        frame = opened(page, "Alerts")
        for theme in themes(page, frame):
            expect(frame.locator("html")).to_have_attribute("data-theme", theme)
        expect(frame.get_by_role("heading", level=1)).to_contain_text("Alerts")
        expect(frame.locator("#live")).to_contain_text("Not live")  # no broker runs here
        frame.get_by_role("link", name="Nights").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("Nights")
        page.wait_for_url("**/nightjar/nights")  # Airflow's own address follows the frame once it has loaded
        page.reload()
        expect(frame.get_by_role("heading", level=1)).to_have_text("Nights")
        frame.get_by_role("link", name="Lists").click()
        expect(frame.get_by_role("main")).to_contain_text("No list is declared")
        frame.get_by_role("link", name="Data docs").click()
        page.wait_for_url("**/plugin/data-docs**")

        page.goto(f"{running.url}/plugin/nightjar/airflow/nightjar/{alert_path}")
        frame.locator("#said").get_by_label("why (one line)").fill("she called")
        frame.get_by_role("button", name="Fraud").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("Kafka cannot be reached")
