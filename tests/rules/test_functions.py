"""Each function of measures has all its parts; docs/how-to/add-a-measure.md names them."""

from dataclasses import replace

import pytest

from nightjar.rules.engine.plan import Aggregate, Fold, MaskKey, Window
from nightjar.rules.functions import SPECS, Function, result_type
from nightjar.rules.types import DOUBLE, INT64, FieldType, Kind
from tests.support import histories, reference

WINDOW = Window(60_000_000, since=None, per=(), excluding_current=False, resolution=1_000_000)


def of_kind(kind: Kind) -> FieldType:
    return FieldType(kind, 12, 2) if kind is Kind.DECIMAL else FieldType(kind)


@pytest.mark.parametrize("function", Function)
def test_every_function_has_all_parts(function: Function) -> None:
    """Those of the spec fit together, and the random histories and the reference have the function, too."""
    spec = function.spec
    assert {kind.value for kind in spec.takes} == histories._FUNCTIONS[function]
    for kind in spec.takes:
        assert result_type(function, of_kind(kind)).kind == histories._RESULT.get(function, kind)
    assert spec.is_list or spec.takes_conditions or spec.computation.carried > 0
    sums = spec.computation is not None and spec.computation.place is not None
    assert (spec.of_doubles is not None) >= sums, "sums of doubles have an answer of their own"
    assert spec.counts <= (spec.empty == 0 and result_type(function, INT64) == result_type(function, DOUBLE) == INT64)
    assert (function in histories._FOLDING) == (spec.family is not None)
    assert spec.folds_doubles == (function in histories._FOLDING and function not in histories._SUMMING)
    over_nothing = reference.Measure(function, "number", 0)
    assert reference.value(over_nothing, {}, []) == spec.empty


@pytest.mark.parametrize("function", [function for function in Function if function.spec.family])
def test_every_function_with_a_resolution_folds(function: Function) -> None:
    """Equal aggregates of a family share one fold, whose name is in durable state."""
    fold = Fold.of(("who",), Aggregate(function, "number", MaskKey(frozenset(), "number"), WINDOW))
    assert fold.columns
    assert reference._FAMILIES[function] == fold.family


def test_computations_are_told_apart_by_their_codes() -> None:
    """Two functions of one code are carried alike, or one would write beyond the other's state."""
    answers = [a for spec in SPECS.values() for a in (spec.computation, spec.of_doubles) if a is not None]
    assert len({replace(answer, place=None) for answer in answers}) == len({answer.code for answer in answers})
