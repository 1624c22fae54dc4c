"""Makes a server of pages ready before somebody asks, so that a first answer takes no longer than those after it.

How it works: a thread has read what pages show first, through the readers that answer requests: what it reads is kept
there, and a request that needs the same meanwhile waits for that reading. Then it explains the newest alert and checks
the first rule of an editor, by which modules, the engine's compiled code and templates are loaded. Between two steps it
waits for requests that are being answered. Once a minute it reads again what the archive has brought, and connects to
Kafka.

What it does not do: report failures. Whoever asks for a page gets them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog

from nightjar.pages.editor import example, findings
from nightjar.pages.entity_reader import ENTITY_DAYS, entity
from nightjar.pages.lake_reader import DAYS_SHOWN, ROWS_SHOWN, Filter, LakeReader
from nightjar.pages.rendering import Rendering
from nightjar.pages.rule_reader import RuleReader
from nightjar.pages.stream_page import StreamReader
from nightjar.pages.table_reader import TableReader
from nightjar.rules.errors import NightjarError

_log = structlog.get_logger(__name__)

# Seconds between two looks at the lake, and for which a step waits for requests at the most.
_AGAIN, _GIVES_WAY = 60.0, 5.0


class Readiness:
    """Keeps the readers of an application ready. Its arguments are those of `application`."""

    def __init__(
        self,
        reader: Callable[[], LakeReader],
        stream: Callable[[], StreamReader],
        tables: Callable[[], TableReader],
        rules: Callable[[], RuleReader],
        rendering: Rendering,
    ) -> None:
        self._reader, self._stream, self._tables, self._rules = reader, stream, tables, rules
        self._rendering = rendering
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._answering = 0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A request is being answered inside the block."""
        with self._lock:
            self._answering += 1
        try:
            yield
        finally:
            with self._lock:
                self._answering -= 1

    def begin(self) -> None:
        """Begin in a thread, which ends with the process or with `end`."""
        threading.Thread(target=self._run, name="readiness", daemon=True).start()

    def end(self) -> None:
        """Do not begin anything any more."""
        self._stopped.set()

    def get_ready(self) -> None:
        """Everything, once."""
        self.renew()
        for step in (
            self._compile,
            self._explain,
            self._edit,
            self._look_at_an_entity,
            self._look_at_the_stream,
            self._list,
        ):
            self._attempt(step)

    def renew(self) -> None:
        """What pages show first, as far as it is not known yet or has changed."""
        for step in (self._read_rules, self._read_first_alerts, *self._reader().steps(ENTITY_DAYS)):
            self._attempt(step)

    def _read_rules(self) -> None:
        self._rules().book_or(self._reader().book)

    def _read_first_alerts(self) -> None:
        lake = self._reader()
        newest = lake.newest_day()
        if newest is not None:
            lake.alerts(Filter(newest - timedelta(days=DAYS_SHOWN - 1), newest))

    def _run(self) -> None:
        self.get_ready()
        while not self._stopped.wait(_AGAIN):
            self.renew()

    def _attempt(self, step: Callable[[], object]) -> None:
        until = time.monotonic() + _GIVES_WAY
        while self._answering and time.monotonic() < until:
            time.sleep(0.02)
        if self._stopped.is_set():
            return
        try:
            step()
        except NightjarError:
            pass  # of the configuration, the lake or Kafka: pages say it
        except Exception as failure:  # noqa: BLE001  a page that fails likewise says it; the others are to be ready
            _log.warning("not_ready", step=getattr(step, "__name__", "").strip("_"), why=repr(failure))

    def _compile(self) -> None:
        environment = self._rendering.environment
        for name in environment.list_templates(filter_func=lambda name: name.endswith(".html")):
            environment.get_template(name)

    def _explain(self) -> None:
        lake = self._reader()
        newest = lake.newest_day()
        if newest is None:
            return
        rows = lake.alerts(Filter(newest, newest)).found.head(ROWS_SHOWN).to_dicts()
        lake.outcomes(rows)
        for row in rows[:1]:
            found, _, _ = lake.explanation(row["alert_id"], row["event_time"])
            lake.labels_of(row["alert_id"], found.stream.name, found.event_id)

    def _look_at_an_entity(self) -> None:
        lake = self._reader()
        newest = lake.newest_day()
        alerts = () if newest is None else lake.alerts(Filter(newest, newest)).found.head(1).iter_rows(named=True)
        for row in alerts:
            for name, value in [*json.loads(row["group"]).items()][:1]:
                entity(lake, name, str(value), None, None)

    def _edit(self) -> None:
        rules = self._rules()
        findings(example(rules.streams), rules, self._reader())

    def _look_at_the_stream(self) -> None:
        self._stream().health()

    def _list(self) -> None:
        with self._tables().history():
            pass
