"""docs/tutorial/idea-in-the-pages.md: its commands are run, and a browser does what it says, in the names of two."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from nightjar.jvm.jars import PROJECT
from tests.nightjar.test_idea_to_live import STARTS, Walk, own_environment, started
from tests.support.browser import chromium, needs_chromium

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    needs_chromium,
]

PAGE = (PROJECT / "docs" / "tutorial" / "idea-in-the-pages.md").read_text(encoding="utf-8")
SETUP, SENDING, ANNS, BOBS, SHOP, ARCHIVE = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(RULE,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
BACKTEST_MS = 180_000


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """With the job running, and the three days in the lake."""
    done = Walk(tmp_path, own_environment())
    try:
        done.run(SETUP.replace(STARTS, ""))
        done.up = started(done.folder, done.environment)
        done.run(SENDING)
        yield done
    finally:
        if done.up is not None and done.up.poll() is None:
            done.up.send_signal(signal.SIGTERM)
            done.up.wait(120)


@pytest.fixture
def addresses(walk: Walk) -> Iterator[list[str]]:
    """Of Ann's pages, and of Bob's, each with its token."""
    servers, logs = [], [walk.folder / "ann.log", walk.folder / "bob.log"]
    for command, log in zip((ANNS, BOBS), logs, strict=True):
        with log.open("w") as said:
            anywhere = f"exec env {re.sub(r'--port [0-9]+', '--port 0', command)}"
            server = subprocess.Popen(["bash", "-c", anywhere], cwd=walk.folder, env=walk.environment, stderr=said)
        servers.append(server)
    try:
        deadline = time.monotonic() + 60
        while not all("http" in log.read_text() for log in logs):
            assert time.monotonic() < deadline, [log.read_text() for log in logs]
            time.sleep(0.2)
        yield [re.findall(r"http\S+", log.read_text())[0] for log in logs]
    finally:
        for server in servers:
            server.terminate()
            server.wait(30)


def rules_of(page: Page) -> None:
    """Follow the menu to the rules."""
    page.get_by_role("navigation").get_by_role("link", name="Rules").click()


def read_until(page: Page, text: str) -> None:
    """Read the page again until it says so: what it knows of the topics may be some seconds old."""
    deadline = time.monotonic() + 60
    while text not in page.locator("main").inner_text():
        assert time.monotonic() < deadline, page.locator("main").inner_text()
        page.reload()


def see_what_waits(page: Page) -> None:
    """Follow the menu to the rules, and from there to the version that waits for approval."""
    rules_of(page)
    read_until(page, "Waiting for approval")
    page.locator("#waiting").get_by_role("link", name="card-burst").click()
    read_until(page, "waits for approval")


def say_why(page: Page, place: str, why: str, button: str) -> None:
    """Give a reason in a form, and press its button."""
    page.locator(place).get_by_label("why (one line)").fill(why)
    page.locator(place).get_by_role("button", name=button).click()


def propose(page: Page, text: str, why: str, version: int) -> None:
    """Replace the text of the editor, and propose it."""
    page.locator("#text").fill(text)
    expect(page.locator("#verdict")).to_have_text("No error.")
    say_why(page, "#editor", why, "Propose")
    expect(page.get_by_role("status")).to_contain_text(f"Version {version} is sent, and waits until somebody else")
    assert "nobody approves a version of their own" in page.locator("#waiting").inner_text()


def written_and_tried(page: Page) -> None:
    """What Ann does until she proposes the rule."""
    rules_of(page)
    page.get_by_role("link", name="New rule").click()
    page.locator("#text").fill(RULE.replace("payments >= 3", "payment >= 3"))
    expect(page.locator("#details")).to_contain_text("payment")
    expect(page.locator("#verdict")).to_have_text("1 error.")
    page.locator("#text").fill(RULE)
    expect(page.locator("#verdict")).to_have_text("No error.")
    expect(page.locator("#details")).to_contain_text("card-burst: a new rule")
    page.get_by_role("button", name="Try on the newest events").click()
    expect(page.locator("#trial")).to_contain_text("108 alerts on the newest 18,000 events, 36.0 a day")
    for name, value in (("first", "2026-01-05"), ("last", "2026-01-07"), ("threshold", "payments")):
        page.locator(f"#backtest [name={name}]").fill(value)
    page.get_by_role("button", name="Backtest").click()
    expect(page.get_by_role("status")).to_have_text("It has ended.", timeout=BACKTEST_MS)
    expect(page.locator("main")).to_contain_text("95 of the alerts (88.0%)")
    page.locator("details summary").click()
    expect(page.locator("details tr", has_text="20.67")).to_contain_text("100.0%")
    page.get_by_role("button", name="Edit").click()
    propose(page, RULE.replace("payments >= 3", "payments >= 4"), "copied cards", 1)


def test_two_people_lead_an_idea_to_a_live_rule(walk: Walk, addresses: list[str]) -> None:
    """And one of them declines the next idea."""
    with chromium() as ann:
        assert ann.context.browser is not None
        bob = ann.context.browser.new_page()
        for page, address in zip((ann, bob), addresses, strict=True):
            page.goto(address)
        written_and_tried(ann)
        see_what_waits(bob)
        say_why(bob, "#waiting", "looked at three days", "Approve")
        expect(bob.locator("main")).to_contain_text("approved by bob (looked at three days)")
        read_until(bob, "Version 1 is accepted.")
        expect(bob.locator("main")).to_contain_text("Applies from: 2")
        bob.get_by_role("navigation").get_by_role("link", name="Alerts").click()
        expect(bob.locator("#live")).to_contain_text("Live: new alerts appear here")
        walk.run(SHOP)
        alert = bob.locator("#alerts tr").first
        expect(alert).to_contain_text("4 payments at 4 terminals within ten minutes")
        alert.get_by_role("link").first.click()
        expect(bob.locator("main")).to_contain_text("4 events of the group")
        say_why(bob, "#said", "the customer has called", "Fraud")
        expect(bob.locator("#said li")).to_contain_text("fraud by bob")
        walk.run(ARCHIVE)
        rules_of(bob)
        expect(bob.locator("tr", has_text="card-burst")).to_contain_text("100% of 1")

        rules_of(ann)
        ann.get_by_role("link", name="card-burst").click()
        ann.get_by_role("link", name="Edit").click()
        propose(ann, RULE.replace("payments >= 3", "payments >= 2"), "two may be enough", 2)
        see_what_waits(bob)
        expect(bob.locator("#waiting")).to_contain_text("-when: payments >= 4")
        say_why(bob, "#waiting", "two payments are no sign of anything", "Decline")
        expect(bob.locator("main")).to_contain_text("by bob (two payments are no sign of anything)")
        rules_of(bob)
        expect(bob.locator("tr", has_text="card-burst")).to_contain_text("active")
