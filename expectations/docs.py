"""Builds the data docs: pages with the results of every run, readable offline.

How it works: results are stored as files; Great Expectations' SiteBuilder makes one page per result and an index, with
the templates of pages.py. A lock serializes concurrent builds. The oldest results are removed when there are too many.

What it does not do: fail a run. Pages that cannot be built are logged.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from nightjar.expectations import library, pages
from nightjar.expectations.findings import Checked
from nightjar.expectations.results import META, about
from nightjar.storage.paths import AnyPath, mirrored

_log = structlog.get_logger(__name__)

# The index reads every result again, which takes a second for this many.
MOST_RUNS = 60
_RESULTS, _SITE = "results", "site"
# Files of Great Expectations' own pages, which ours do not load; `assets` is of earlier releases.
_UNUSED = ("static", "assets")


class CheckedRun(NamedTuple):
    """What a result is about: a day, and a run of it."""

    day: date
    run: str

    @property
    def name(self) -> str:
        """A folder name for the run."""
        return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{self.day.isoformat()}_{self.run}")[:150]


def build(
    checked: Iterable[Checked],
    folder: AnyPath,
    *,
    run_id: str,
    day: date,
    at: datetime | None = None,
    keep: int = MOST_RUNS,
) -> AnyPath | None:
    """Add a run's results to the site in `folder`; return the path of its first page, or None if the build failed.

    at: when the run was checked (None: now), which distinguishes runs. keep: number of runs whose results are kept.
    """
    try:
        with mirrored(folder) as local, _locked(local):
            _build(list(checked), local, CheckedRun(day, run_id), at or datetime.now(UTC), keep)
        return folder / _SITE / "index.html"
    except Exception:  # noqa: BLE001  a problem with the pages must not fail the run
        _log.exception("data docs could not be built", folder=str(folder), run=run_id)
        return None


def _build(checked: list[Checked], folder: Path, of: CheckedRun, at: datetime, keep: int) -> None:
    context = _context(folder)
    from great_expectations.core.expectation_validation_result import expectationSuiteValidationResultSchema
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    keys = []
    for each in checked:
        result = expectationSuiteValidationResultSchema.load(each.validation)
        run = RunIdentifier(run_name=of.name, run_time=at)
        result.meta |= {"run_id": run, META: about(of.day, of.run, each.validation)}
        suite = ExpectationSuiteIdentifier(each.suite)
        key = ValidationResultIdentifier(expectation_suite_identifier=suite, run_id=run, batch_identifier=each.suite)
        context.stores["results"].set(key, result)
        keys.append(key)
    _prune(folder, keep)
    _render(context, folder, keys)


def erase(folder: AnyPath, names: Callable[[str], bool], masked: Callable[[str], str], *, dry_run: bool) -> int:
    """Remove the examples that name a person from all results, mask the person elsewhere, and render their pages again;
    returns how many results changed. Stop at the first failure: unlike `build`, this must be complete.

    names: whether a value names the person; masked: a text without the person.
    """
    if not (folder / _RESULTS).is_dir():
        return 0
    with mirrored(folder) as local, _locked(local):
        return _erase(local, names, masked, dry_run=dry_run)


def _erase(folder: Path, names: Callable[[str], bool], masked: Callable[[str], str], *, dry_run: bool) -> int:
    results, changed = folder / _RESULTS, []
    for file in sorted(results.rglob("*.json")):
        written = json.loads(file.read_text())
        without = _without(written, names, masked)
        if without != written:
            changed.append(file)
            if not dry_run:
                file.write_text(json.dumps(without))
    if changed and not dry_run:
        context = _context(folder)
        files = {file.relative_to(results).with_suffix("").parts for file in changed}
        store = context.stores["results"]
        _render(context, folder, [key for key in store.list_keys() if key.to_tuple() in files])
    return len(changed)


def _without(value: Any, names: Callable[[str], bool], masked: Callable[[str], str]) -> Any:
    """A result without the examples that name somebody, and with the names masked in other texts."""
    if isinstance(value, dict):
        return {
            key: _unnamed(each, names)
            if key == "examples" and isinstance(each, list)
            else _without(each, names, masked)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_without(each, names, masked) for each in value]
    return masked(value) if isinstance(value, str) else value


def _unnamed(rows: list[Any], names: Callable[[str], bool]) -> list[Any]:
    return [row for row in rows if not any(names(cell) for cell in row.values() if isinstance(cell, str))]


def _context(folder: Path) -> Any:
    """Great Expectations' context with the store of results."""
    library.load()
    import great_expectations as gx
    from great_expectations.data_context.store.validation_results_store import ValidationResultsStore

    context = gx.get_context(mode="ephemeral")
    store = ValidationResultsStore(store_backend=_backend(folder / _RESULTS), store_name="results")
    context.stores["results"] = store
    return context


def _render(context: Any, folder: Path, keys: list[Any]) -> None:
    """Write the pages of some results, and the index; of all results if an earlier release has written the others."""
    from great_expectations.render.renderer.site_builder import SiteBuilder

    site, ours = folder / _SITE, {"module_name": pages.__name__}
    builder = SiteBuilder(
        context,
        store_backend=_backend(site),
        site_name="nightjar",
        show_how_to_buttons=False,
        site_index_builder={**ours, "class_name": "IndexBuilder", "folder": str(folder / _RESULTS)},
        site_section_builders={
            "validations": {
                "source_store_name": "results",
                "renderer": {**ours, "class_name": "ResultRenderer"},
                "view": {**ours, "class_name": "PageView"},
            },
            "expectations": "None",
            "profiling": "None",
        },
    )
    builder.build(resource_identifiers=keys if pages.has_assets(site) else None)
    for unused in _UNUSED:
        shutil.rmtree(site / unused, ignore_errors=True)
    pages.bring_assets(site)


def _backend(folder: Path) -> dict[str, Any]:
    return {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)}


def _prune(folder: Path, keep: int) -> None:
    """Remove the oldest runs beyond `keep`; a run's results and pages are under suite, run name and time."""
    results = folder / _RESULTS
    runs = sorted({(path.parent.name, path.parent.parent.name) for path in results.rglob("*.json")}, reverse=True)
    for run_time, run_name in runs[keep:]:
        for root in (results, folder / _SITE / "validations"):
            for old in root.glob(f"*/{run_name}/{run_time}"):
                shutil.rmtree(old)
                if not any(old.parent.iterdir()):
                    old.parent.rmdir()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
