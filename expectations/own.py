"""Reads the expectations that a team brings: conditions in SQL, and suites of Great Expectations.

    FOLDER/events_transactions/amounts.toml      conditions in SQL, as the shipped ones are
    FOLDER/events_transactions/terminals.json    a suite as Great Expectations stores it
    FOLDER/violations/few.py                     a module whose `suite` is a great_expectations.ExpectationSuite

How it works: a folder has the name of a suite of suites.py, whose rows its files are about. Conditions are added to
that suite and counted with it; Great Expectations runs its own suites on the rows (native.py).

What it does not do: import Great Expectations, or run a module.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nightjar.expectations.measured import polars_schema
from nightjar.expectations.suites import Expectation, Severity, Suite
from nightjar.rules.errors import DeclarationError
from nightjar.rules.names import IDENTIFIER, did_you_mean

_NATIVE = (".json", ".py")
# What the values of several rows are put together by, as Polars names it.
_OF_SEVERAL = frozenset({"Agg", "Over", "Window", "Len", "Shift", "Range", "Rolling", "AnonymousAgg"})
_NO_CONDITION = 'Say what holds for each row, such as `holds = "amount > 0"`, or `unique = ["transaction_id"]`'


class _Declared(BaseModel):
    """An expectation as written in a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sentence: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    holds: Annotated[str, Field(min_length=1, max_length=5000)] | None = None
    unique: Annotated[list[str], Field(min_length=1, max_length=20)] | None = None
    where: Annotated[str, Field(max_length=5000)] = ""
    severity: Severity = "warning"
    at_most: Annotated[float, Field(ge=0, lt=1)] = 0.0


@dataclass(frozen=True)
class OwnExpectations:
    """What a folder has, by the name of the suite whose rows it is about."""

    declared: Mapping[str, tuple[Expectation, ...]] = field(default_factory=dict)
    native: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """Files of suites of Great Expectations, by name."""

    def added_to(self, suite: Suite) -> Suite:
        """The suite with the conditions that were declared for it."""
        return replace(suite, expectations=(*suite.expectations, *self.declared.get(suite.name, ())))


def own_expectations(folder: Path | None, suites: Iterable[Suite]) -> OwnExpectations:
    """What the folder has; nothing if it is None. suites: those that it can be about.

    Raises:
        DeclarationError: something in it cannot be used, with the file, the name and the remedy.
    """
    if folder is None:
        return OwnExpectations()
    if not folder.is_dir():
        raise DeclarationError(
            "is no folder", where=str(folder), remedy="Make it, or remove the setting `expectations`"
        )
    about = {suite.name: suite for suite in suites}
    declared: dict[str, tuple[Expectation, ...]] = {}
    native: dict[str, tuple[Path, ...]] = {}
    for part in _entries(folder):
        suite = about.get(part.name)
        if suite is None or not part.is_dir():
            what = "is not a folder that has the name of a suite"
            raise DeclarationError(what, where=str(part), remedy=did_you_mean(part.name, about, "Suites are"))
        found = list(_entries(part))
        if others := [file for file in found if file.suffix not in {".toml", *_NATIVE}]:
            remedy = "Conditions are in files .toml, suites of Great Expectations in files .json or .py"
            raise DeclarationError("is no file of expectations", where=str(others[0]), remedy=remedy)
        taken = {each.name for each in suite.expectations}
        written = [each for file in found if file.suffix == ".toml" for each in _of_file(file, suite, taken)]
        declared[part.name] = tuple(written)
        native[part.name] = tuple(file for file in found if file.suffix in _NATIVE)
    return OwnExpectations(declared, native)


def _entries(folder: Path) -> Iterator[Path]:
    """What is in a folder by name, without notes, hidden files and caches."""
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith((".", "__")) and entry.suffix != ".md":
            yield entry


def _of_file(file: Path, suite: Suite, taken: set[str]) -> Iterator[Expectation]:
    """The conditions of a file. taken: names that are used already; those of the file are added."""
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise DeclarationError(f"cannot be read: {failure}", where=str(file), remedy="It is TOML") from None
    for name, content in written.items():
        yield _expectation(name, content, suite, f"{file}: {name}", taken)
        taken.add(name)


def _expectation(name: str, content: Any, suite: Suite, place: str, taken: set[str]) -> Expectation:
    if not re.fullmatch(IDENTIFIER, name):
        raise DeclarationError("is not a name", where=place, remedy="A name has letters, digits and underscores")
    if name in taken:
        raise DeclarationError(f"{suite.name} has an expectation of this name", where=place, remedy="Choose another")
    if not isinstance(content, dict):
        raise DeclarationError("is not an expectation", where=place, remedy=f"It is a table [{name}]")
    try:
        read = _Declared.model_validate(content)
    except ValidationError as failure:
        problem = failure.errors()[0]
        at = ".".join((place, *map(str, problem["loc"])))
        raise DeclarationError(problem["msg"], where=at, remedy="See the guide Add an expectation") from None
    if (read.holds is None) == (read.unique is None):
        what = "has neither `holds` nor `unique`" if read.holds is None else "has both `holds` and `unique`"
        raise DeclarationError(what, where=place, remedy=_NO_CONDITION)
    if read.holds is not None:
        if read.where:
            remedy = "Write `NOT (…) OR …` in `holds`"
            raise DeclarationError("belongs to `unique`", where=f"{place}.where", remedy=remedy)
        _check_condition(read.holds, suite, f"{place}.holds")
        breaking = f"NOT coalesce({read.holds}, false)"
        return Expectation(name, read.sentence, read.severity, breaking=breaking, at_most=read.at_most)
    if read.at_most:
        raise DeclarationError("belongs to `holds`", where=f"{place}.at_most", remedy="Remove it")
    for column in read.unique or ():
        _check_column(column, suite, f"{place}.unique")
    if read.where:
        _check_condition(read.where, suite, f"{place}.where")
    return Expectation(name, read.sentence, read.severity, key=tuple(read.unique or ()), where=read.where)


def _check_column(name: str, suite: Suite, place: str) -> None:
    if name not in suite.columns:
        remedy = did_you_mean(name, suite.columns, f"Columns of {suite.name} are")
        raise DeclarationError(f"unknown column {name!r}", where=place, remedy=remedy)


def _check_condition(text: str, suite: Suite, place: str) -> None:
    """Refuse what is no condition of a row: rows are counted in parts, so that one must not depend on others."""
    try:
        condition = pl.sql_expr(text)
        for column in condition.meta.root_names():
            _check_column(column, suite, place)
        is_of_a_row = not _OF_SEVERAL.intersection(_nodes(json.loads(condition.meta.serialize(format="json"))))
        found = pl.DataFrame(schema=polars_schema(suite.columns)).select(condition.alias("found")).schema["found"]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        what = next(iter(str(problem).splitlines()), "")[:300]
        raise DeclarationError(f"is not SQL that can be used: {what}", where=place, remedy=_SQL) from None
    if not is_of_a_row:
        remedy = "Bring a suite of Great Expectations for what compares rows, or use `unique` or `at_most`"
        raise DeclarationError("is not about single rows", where=place, remedy=remedy)
    if found != pl.Boolean():
        raise DeclarationError(f"is not true or false, but of type {found}", where=place, remedy=_SQL)


_SQL = "Write a condition in Polars' SQL, such as \"amount > 0 AND status IN ('approved', 'declined')\""


def _nodes(plan: Any) -> Iterator[str]:
    """The names of what a serialized condition consists of."""
    if isinstance(plan, dict):
        for name, part in plan.items():
            yield name
            yield from () if name == "Literal" else _nodes(part)
    elif isinstance(plan, list):
        for part in plan:
            yield from _nodes(part)
    elif isinstance(plan, str):
        yield plan
