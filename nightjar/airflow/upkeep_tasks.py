"""The operators of the DAGs `lake_maintenance` and `stream_watchdog`. Imports nothing heavy."""

from typing import Any

from airflow.sdk import BaseOperator

from nightjar.airflow.reporting import reported
from nightjar.rules.errors import NightjarError


class MaintainLake(BaseOperator):
    """Does what `nightjar lake maintain` does."""

    ui_color = "#e8f0f8"

    def execute(self, context: Any) -> list[dict[str, Any]]:  # noqa: ARG002  Airflow's signature
        """Look after every table; returns what was done to each."""
        import time

        from nightjar.configuration.backfill import backfill_config
        from nightjar.configuration.settings import load_settings
        from nightjar.operations.lake_upkeep import upkeep
        from nightjar.rules.streams import load_streams

        done = []
        with reported(self.log):
            settings = load_settings()
            config = backfill_config(settings, load_streams(settings.streams), spark=False)
            for table in upkeep(settings, config, time.time_ns() // 1000):
                self.log.info("%s", table)
                done.append(table.as_dict())
        return done


class WatchStream(BaseOperator):
    """Fails if the job is silent, behind or on a host whose clock is off.

    behind: seconds that events may wait; skew: seconds that the host's clock may differ from the brokers'.
    """

    template_fields = ("behind", "skew")
    ui_color = "#f8f0e8"

    def __init__(self, *, behind: Any, skew: Any, **options: Any) -> None:
        super().__init__(**options)
        self.behind = behind
        self.skew = skew

    def execute(self, context: Any) -> None:  # noqa: ARG002
        """Look at the job's last reports.

        Raises:
            NightjarError: something is wrong, with the remedy.
        """
        from nightjar.configuration.settings import load_settings
        from nightjar.operations.status import read_status
        from nightjar.operations.watchdog import problems

        with reported(self.log):
            status = read_status(load_settings())
            found = problems(status, behind=float(self.behind), skew=float(self.skew))
            if found:
                raise NightjarError("\n".join(found))
        self.log.info("the job runs, and nothing waits longer than it may: %s", status.last and status.last["lag"])
