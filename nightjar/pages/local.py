"""The pages of an installation on this machine, without Airflow."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI

from nightjar.configuration.backfill import backfill_config
from nightjar.configuration.settings import Settings
from nightjar.operations.labelling import send_labels
from nightjar.operations.unarchived import OnKafka
from nightjar.pages.application import application
from nightjar.pages.backtests import LocalBacktests
from nightjar.pages.lake_reader import LakeReader
from nightjar.pages.live import LiveAlerts
from nightjar.pages.rule_reader import RuleReader
from nightjar.pages.serving import LocalAccess
from nightjar.pages.snoozes import SnoozeReader
from nightjar.pages.stream_page import StreamReader
from nightjar.pages.table_reader import TableReader
from nightjar.rules.streams import Stream


def local_pages(settings: Settings, streams: Mapping[str, Stream]) -> tuple[FastAPI, LocalAccess]:
    """The application, and what lets people in: to look, and to label and snooze alerts, change lists and publish rules
    in the name of whoever runs this."""
    config = backfill_config(settings, streams, spark=False)
    snoozes = SnoozeReader.on_kafka(settings, config.lake.root)
    reader = LakeReader(config, lambda: OnKafka(settings), snoozes.known)
    live = LiveAlerts(settings, streams, snoozes.known)
    stream, access = StreamReader(settings, streams), LocalAccess()
    backtests = LocalBacktests(settings)
    tables, rules = TableReader.on_kafka(settings, streams), RuleReader.on_kafka(settings, streams)
    app = application(
        lambda: reader,
        lambda: live,
        lambda: stream,
        lambda: tables,
        lambda: rules,
        snoozes=lambda: snoozes,
        backtests=lambda: backtests,
        guard=access.guard,
        actor=access.actor,
        send=lambda label: send_labels(settings, [label]),
        links={},
    )
    access.protect(app)
    return app, access
