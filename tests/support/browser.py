"""A real browser for what only a browser shows, and a client that has its session."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import FrameLocator, Page, expect, sync_playwright

from nightjar.airflow.local.airflow import USER, LocalAirflow
from nightjar.pages.serving import bound, server_of
from tools.test_servers import axe

# Milliseconds until a page must show what is expected: it is slow where much else runs.
_LONGEST = 30_000
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


def session_of(airflow: LocalAirflow, user: str | None = USER) -> httpx.Client:
    """A client with the session's cookie, as a browser has it after the login; without one if `user` is None."""
    client = httpx.Client(base_url=airflow.url, trust_env=False, timeout=30, follow_redirects=False)
    if user is not None:
        password = json.loads(airflow.password_file.read_text())[user]
        answer = client.post("/auth/token", json={"username": user, "password": password})
        client.cookies.set("_token", answer.json()["access_token"], path=f"{client.base_url.path}")
    return client


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """An application on a free port of this machine; its address."""
    server = server_of(app)
    with bound(0) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@contextmanager
def chromium(*, dark: bool = False, width: int = 1400) -> Iterator[Page]:
    """A page of Chromium that reaches this machine only. dark: the system's theme."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        )
        try:
            page = browser.new_page(color_scheme="dark" if dark else "light", viewport={"width": width, "height": 900})
            page.set_default_timeout(_LONGEST)
            expect.set_options(timeout=_LONGEST)
            yield page
        finally:
            browser.close()


def barriers(page: Page) -> list[str]:
    """What axe-core finds that keeps people from a page, by the WCAG 2.2 at level AA and by good practice."""
    page.evaluate(axe().read_text())
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate("tags => axe.run({runOnly: tags})", tags)
    assert found["passes"], "it has run"
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]]


@contextmanager
def browsing(airflow: LocalAirflow, *, dark: bool = False, width: int = 1400) -> Iterator[Page]:
    """A page of Chromium that has logged in to Airflow through its form. dark: the system's theme."""
    with chromium(dark=dark, width=width) as page:
        page.goto(airflow.url)
        page.get_by_label("Username").fill(USER)
        page.get_by_label("Password").fill(json.loads(airflow.password_file.read_text())[USER])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{airflow.url}/**")
        yield page


def opened(page: Page, entry: str) -> FrameLocator:
    """The frame in which Airflow shows what an entry of its menu *Browse* leads to."""
    page.get_by_role("button", name="Browse").click()
    page.get_by_role("menuitem", name=entry).click()
    return page.frame_locator("iframe")
