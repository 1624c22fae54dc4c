"""A checkpoint: nightjar's metadata, Spark's logs beside them, and the folder of the buckets' state."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from nightjar.rules.rulebook import ShuffleKey
from nightjar.storage.objects import ObjectPath
from nightjar.storage.paths import AnyPath, names_in, remove_tree, write_whole
from nightjar.streaming.config import JobConfig, JobError, Latency
from nightjar.streaming.partitioning import buckets_of
from nightjar.streaming.state import metadata, state_files
from nightjar.streaming.state.epochs import METADATA, QUERY, own_folder, take_over
from nightjar.streaming.state.metadata import FORMAT, REBUILD, Declaration, Metadata, Misfit, NumberedKey, Offsets
from nightjar.streaming.state.order_log import LoggedPositions
from nightjar.streaming.state.state_files import files_of
from nightjar.streaming.state.statelog import Head

_REBUILT = "rebuilt-"


class Checkpoint:
    """The checkpoint of a job, opened by who holds its lock or lease, or by a reader who sees it as it is now.

    folder: where it is; run_id: of the run of the query whose heads count.
    """

    def __init__(self, config: JobConfig) -> None:
        """The holder of a lease begins where the one before it has ended."""
        take_over(config.checkpoint, config.fence)
        self.folder, self._fence = config.checkpoint, config.fence
        self._streams, self._buckets = config.streams, config.buckets
        self._own = own_folder(self.folder, self._fence)
        self._file = self._own / METADATA
        self._found = metadata.read(self._file) if self._file.is_file() else None
        self._inner = self.metadata.folder if self.metadata else metadata.folder_in(self._file)
        self.run_id = state_files.last_run(self._run_file)
        self._logged = None if isinstance(self.state, ObjectPath) else LoggedPositions(self.state)

    @property
    def metadata(self) -> Metadata | None:
        """None if there are none yet, or none that this release reads."""
        return self._found if isinstance(self._found, Metadata) else None

    @property
    def query(self) -> AnyPath:
        """The folder of Spark's logs."""
        return self._own / self._inner / QUERY

    @property
    def state(self) -> AnyPath:
        """The folder of the buckets' state. In an object store all holders of the lease share it: its names are
        unique."""
        return (self.folder / self._inner / "state").resolve()

    @property
    def _run_file(self) -> AnyPath:
        return (self._own / self._inner if isinstance(self.folder, ObjectPath) else self.state) / state_files.RUN

    @property
    def _last_batch(self) -> int | None:
        """The last batch that was committed."""
        return self._newest("commits")

    def _newest(self, log: str) -> int | None:
        return max((int(name) for name in names_in(self.query / log) if name.isdigit()), default=None)

    def refuse_overtaken(self) -> None:
        """Raise LostLeaseError if another job has taken over the checkpoint."""
        if self._fence is not None:
            self._fence.check()

    def refuse_unfit(self) -> Metadata | None:
        """The metadata, None for a new checkpoint; raises what `settle` would, as far as that is known without the
        rules."""
        found = self._found
        if found is None and self.query.exists():
            found = Misfit(f"{METADATA} is missing", f"If the folder is nightjar's, `{REBUILD}` writes a new one")
        misfit = found.misfit(self._streams, self._buckets) if isinstance(found, Metadata) else found
        if misfit is not None:
            raise self._unfit(misfit)
        return self.metadata

    def settle(
        self,
        keys: list[ShuffleKey],
        begins: Callable[[], Offsets] = dict,
        *,
        unused: Collection[ShuffleKey] = (),
        wanted: Collection[ShuffleKey] = (),
    ) -> Metadata:
        """Check the checkpoint against the job and store what is new; creates the file for a new checkpoint.

        keys: all that the streams and rules have needed; those that the checkpoint lacks are numbered last. begins: the
        first offsets of events that Kafka has, called for a new checkpoint only. unused: shuffle keys to drop with
        their state. wanted: shuffle keys to take into use again, without state, if they were dropped.

        Raises:
            JobError: with a remedy if the checkpoint was written with other buckets or another declaration of a
                stream.
        """
        found = self.refuse_unfit()
        made, read = found or self._made(began=begins()), self.committed_offsets()
        known = made.shuffle_keys
        if not set(known) <= set(keys):
            remedy = "Name the rule_status_topic it was made with"
            raise self._unfit(Misfit("its shuffle keys are not those of the rules", remedy))
        again = {number for number in made.dropped if known[number] in wanted}
        # A stream that was declared later has its entity fields before the shuffle keys that rules need.
        added = [NumberedKey(key.stream, key.field) for key in keys if key not in known]
        numbered = list[NumberedKey]()
        for number, each in enumerate([*made.numbered, *added]):
            has_nothing = number in again or number >= len(known)
            stream = self._streams.get(each.stream)
            began = stream.by_partition(read) if has_nothing and stream is not None else None
            dropped = (each.dropped or each.key in unused) and number not in again
            numbered.append(NumberedKey(each.stream, each.field, began or each.began, dropped))
        settled = self._made(numbered, name=made.name, folder=made.folder, begins=made.begins, began=made.began or {})
        # What they had is removed while they are dropped: after a crash it is removed again, and never read.
        self._remove_state(again, settled)
        self._write(settled)
        self._remove_state(settled.dropped, settled)
        return settled

    def begin_at(self, offsets: Offsets) -> None:
        """Have every run begin at these offsets until a batch is committed: Spark does, and a run must know it."""
        assert self.metadata is not None  # noqa: S101  settled before
        self._write(msgspec.structs.replace(self.metadata, begins=offsets))

    def _remove_state(self, numbers: Iterable[int], settled: Metadata) -> None:
        for number in numbers:
            of_key = buckets_of(number, settled.shuffle_keys[number], self._buckets)
            state_files.remove(self.state, of_key, self._fence)

    def begin_run(self, exports: Collection[str] = ()) -> None:
        """Start a run of the query, with a new id, from the state after the last committed batch (see state_files.py).

        exports: of history that are not taken in yet.
        """
        run_id, last = uuid.uuid4().hex, self._last_batch
        version = None if last is None else last + 1
        state_files.begin(self.state, version, run_id, exports, last=self._run_file, fence=self._fence)
        self.run_id = run_id

    def committed_heads(self, buckets: Iterable[int]) -> list[Head]:
        """The heads of these buckets after the last committed batch of the run.

        Raises RuntimeError (STATE_LOST) also where a batch that is committed meanwhile has removed one: read them
        again.
        """
        last = self._last_batch
        version = 0 if last is None else last + 1
        return [files_of(self.state, bucket, self.run_id).before(version + 1) for bucket in buckets]

    def committed_offsets(self) -> Offsets:
        """Topic -> partition -> the offset after the last record of the last batch that was committed.

        Before the first batch: where the checkpoint begins; empty if no run has begun.
        """
        last = self._last_batch
        if last is None:
            return (self.metadata.begins if self.metadata else None) or {}
        lines = (self.query / "offsets" / str(last)).read_text().splitlines()
        # a line with the version, one with Spark's settings, then one per source: "-" if it had nothing yet
        read = {topic: of for line in lines[2:] if line != "-" for topic, of in json.loads(line).items()}
        return {topic: {int(p): offset for p, offset in of.items()} for topic, of in read.items()}

    def positions(self, committed: Offsets) -> Offsets:
        """Topic -> partition -> the offset after the last record whose evaluation is certain: that of
        `committed_offsets`, or of a group that the running real-time batch has logged."""
        found = {topic: dict(of) for topic, of in committed.items()}
        for topic, of in self._logged_positions().items():
            found.setdefault(topic, {}).update(of)
        return found

    @property
    def unfinished(self) -> Latency | None:
        """How the batch runs that was begun last, if it is not committed and records of it may have left; it has to be
        repeated in the same way."""
        if self._logged_positions():
            return "real-time"
        return "micro-batch" if self._newest("offsets") != self._last_batch else None

    @property
    def logged_time(self) -> int:
        """How long it took to evaluate the logged groups of the running real-time batch (µs), at most."""
        return 0 if self._logged is None else self._logged.took(self._running)

    def _logged_positions(self) -> Offsets:
        return {} if self._logged is None else self._logged.after(self._running)

    @property
    def _running(self) -> int:
        """The version of the batch that runs, or comes next."""
        last = self._last_batch
        return 1 if last is None else last + 2

    @contextmanager
    def rebuilding(self, keys: list[ShuffleKey], begins: Offsets) -> Iterator[AnyPath]:
        """Write a new checkpoint: yields the folder for its state.

        begins: the offsets from which it resumes. When the block succeeds, the new checkpoint replaces the old one by
        replacing one file; until then, and if the block fails, the old one is unchanged.
        """
        self._remove_others()
        name = uuid.uuid4().hex
        folder = self.folder / f"{_REBUILT}{name[:12]}"
        state = folder / "state"
        state.mkdir(parents=True)
        try:
            yield state
        except BaseException:
            remove_tree(folder)
            raise
        numbered = (NumberedKey(key.stream, key.field) for key in keys)
        self._write(self._made(numbered, name=name, folder=folder.name, begins=begins))
        self._remove_others()

    def _remove_others(self) -> None:
        """Remove what earlier checkpoints and interrupted rebuilds left in this folder."""
        ours = (self.query, self.query.parent, self.state, self.state.parent)
        found = [
            *self.folder.glob(f"{_REBUILT}*"),
            *self._own.glob(f"{_REBUILT}*"),
            self._own / QUERY,
            self.folder / "state",
        ]
        others = [old for old in found if old not in ours and old.is_dir()]
        self.refuse_overtaken()
        for old in others:
            remove_tree(old)

    def _made(
        self,
        numbered: Iterable[NumberedKey] = (),
        *,
        name: str = "",
        folder: str = "",
        begins: Offsets | None = None,
        began: Offsets | None = None,
    ) -> Metadata:
        """Metadata as this release and this job write them; without a name, of another checkpoint."""
        return Metadata(
            name=name or uuid.uuid4().hex,
            folder=folder,
            begins=begins,
            began=began,
            format=FORMAT,
            buckets=self._buckets,
            streams={name: Declaration.of(stream) for name, stream in self._streams.items()},
            numbered=tuple(numbered),
        )

    def _write(self, written: Metadata) -> None:
        write_whole(self._file, written.to_json())
        self._found, self._inner = written, written.folder

    def _unfit(self, misfit: Misfit) -> JobError:
        fresh = "A new folder as checkpoint_dir starts from nothing: the job then reads the topics from their beginning"
        return JobError(misfit.what, where=f"checkpoint {self.folder}", remedy=f"{misfit.remedy}. {fresh}")
