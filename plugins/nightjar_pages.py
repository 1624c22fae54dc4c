"""Shows nightjar's pages inside Airflow, behind its login: *Alerts* in the menu; see nightjar/pages.

Whoever may see the DAG `nightly_backfill` may see the pages, which show alerts and events; whoever may trigger its runs
may say there what an alert was, snooze groups, change lists, and publish and approve rules.
"""

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin
from fastapi import FastAPI

from nightjar.airflow.plugin_access import BASE, actor_of, login_address, reader_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

_DAG = "nightly_backfill"
_BACKTEST_DAG = "rule_backtest"
_PREFIX = "/nightjar"


@cache
def _application() -> FastAPI:
    """The pages, of the settings that Airflow was started with."""
    from nightjar.airflow.dag_runs import DagRuns
    from nightjar.configuration.backfill import backfill_config
    from nightjar.configuration.settings import load_settings
    from nightjar.kafka.readers import keep_connections
    from nightjar.operations.labelling import send_labels
    from nightjar.operations.unarchived import OnKafka
    from nightjar.pages.acting import Acting
    from nightjar.pages.application import application
    from nightjar.pages.backtests import AirflowBacktests
    from nightjar.pages.lake_reader import LakeReader
    from nightjar.pages.live import LiveAlerts
    from nightjar.pages.rule_reader import RuleReader
    from nightjar.pages.snoozes import SnoozeReader
    from nightjar.pages.stream_page import StreamReader
    from nightjar.pages.table_reader import TableReader
    from nightjar.rules.streams import load_streams

    keep_connections()
    settings = load_settings()
    streams = load_streams(settings.streams)
    config = backfill_config(settings, streams, spark=False)
    snoozes = SnoozeReader.on_kafka(settings, config.lake.root)
    reader = LakeReader(config, lambda: OnKafka(settings), snoozes.known)
    live, stream = LiveAlerts(settings, streams, snoozes.known), StreamReader(settings, streams)
    backtests = AirflowBacktests(DagRuns(_BACKTEST_DAG), settings.data_dir)
    tables, rules = TableReader.on_kafka(settings, streams), RuleReader.on_kafka(settings, streams)
    pages = application(
        lambda: reader,
        lambda: live,
        lambda: stream,
        lambda: tables,
        lambda: rules,
        snoozes=lambda: snoozes,
        backtests=lambda: backtests,
        guard=reader_of(_DAG),
        actor=actor_of(_DAG, Acting),
        send=lambda label: send_labels(settings, [label]),
        links={"Data docs": f"{BASE}/plugin/data-docs", "Backfills": f"{BASE}/dags/{_DAG}"},
        login=lambda request: login_address(request, _PREFIX),
    )
    pages.state.readiness.begin()
    return pages


async def _pages(scope: "Scope", receive: "Receive", send: "Send") -> None:
    """Makes the application when a page is first asked for: each of Airflow's processes loads plugins, and few show
    pages."""
    await (await asyncio.to_thread(_application))(scope, receive, send)


app = FastAPI(title="nightjar", docs_url=None, redoc_url=None, openapi_url=None)
app.mount("", _pages)


class NightjarPages(AirflowPlugin):
    """Adds the pages, and the entry in the menu, which shows them in Airflow's frame."""

    name = "nightjar_pages"
    fastapi_apps: list[Any] = [{"app": app, "url_prefix": _PREFIX, "name": "nightjar"}]  # noqa: RUF012  Airflow's form
    external_views: list[Any] = [  # noqa: RUF012
        {
            "name": "Alerts",
            "href": f"{BASE}{_PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "nightjar",
        },
    ]
