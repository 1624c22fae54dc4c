"""Archives topics, and runs the nights of past days, in this process and as the lake's only writer."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nightjar.backfill.config import BackfillConfig, RunRequest
from nightjar.configuration import data_dir
from nightjar.configuration.settings import Settings
from nightjar.kafka.clients import refuse_others
from nightjar.lake.config import LakeConfig
from nightjar.operations.backfill_requests import request_of
from nightjar.operations.locks import sole_writer
from nightjar.terminal.stages import Stages

if TYPE_CHECKING:
    from nightjar.backfill.run import Ended
    from nightjar.lake.archive import Archived


def archive_topics(settings: Settings, config: LakeConfig, stages: Stages, *, leave_out_deleted: bool) -> "Archived":
    """Copy the new records of every topic to the lake; see `nightjar.lake.archive.archive`.

    Raises:
        AlreadyRunningError: an archive or a backfill is running.
    """
    from nightjar.lake.archive import archive
    from nightjar.lake.session import open_session

    refuse_others(settings)
    data_dir.prepare(settings.data_dir)
    with sole_writer(config.root) as fence:
        config = replace(config, fence=fence)
        with stages.stage("Spark", "starting"):
            session = open_session(config)
        with stages.stage("Archive", f"{settings.bootstrap} to {config.root}"):
            return archive(session, config, leave_out_deleted=leave_out_deleted)


def run_nights(
    settings: Settings, config: BackfillConfig, requests: Sequence[RunRequest] | None, stages: Stages, *, publish: bool
) -> Iterator["Ended"]:
    """Run the requests one after the other, or all pending days where there are none, and yield what each came to.

    publish: of pending days.

    Raises:
        AlreadyRunningError: an archive or a backfill is running.
    """
    refuse_others(settings)
    data_dir.prepare(settings.data_dir)
    with sole_writer(config.lake.root) as fence:
        config = config.fenced(fence)
        with stages.stage("Spark", "starting"):
            from nightjar.operations import preload

            # Spark's JVM starts while Python imports the rest, most of which the stages need.
            starting = preload.start_session(config.lake)
            from nightjar.backfill.run import run_all
            from nightjar.backfill.stages import DOES
            from nightjar.backfill.upkeep.pending import pending_days
            from nightjar.lake.archive import archive

            session = starting.result()
            preload.import_gate()
        is_archived = requests is None
        if requests is None:
            with stages.stage("Archive", DOES["archive"]):
                archive(session, config.lake)
            requests = [request_of(each.day, config.streams, publish=publish) for each in pending_days(config)]
        yield from run_all(
            session,
            config,
            requests,
            archived=is_archived,
            announced=lambda request, stage: stages.stage(f"{request.day} {stage}", DOES[stage]),
        )
