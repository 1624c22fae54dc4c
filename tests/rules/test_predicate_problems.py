"""Names a predicate may use, spellings it may not, and everything that is wrong with it at once."""

from typing import Any

import pytest
from sqlglot import exp
from sqlglot.tokens import Tokenizer

from rules.errors import PredicateError, RuleError
from rules.model import parse_rule
from rules.names import RESERVED_WORDS, is_usable_name
from rules.predicates import FUNCTIONS, check_predicate, compile_predicate
from rules.streams import load_streams
from rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, FieldType

COLUMNS: dict[str, FieldType] = {"n": INT64, "d": DOUBLE, "s": STRING, "t": TIMESTAMP, "b": BOOLEAN}
# Every word that sqlglot knows in some way: keywords, functions, and those its parser looks for by their text.
WORDS = sorted(
    {
        word.lower()
        for word in (*Tokenizer.KEYWORDS, *exp.FUNCTION_BY_NAME, *FUNCTIONS, "if", "interval", "exists", "some", "date")
        if is_usable_name(word)
    }
)
SHAPES = [
    "{0} > 1", "n > {0}", "({0}) + {0} > {0} * 2 AND {0} < 1", "CASE WHEN {0} > 1 THEN {0} ELSE {0} END > 0",
    "{0} IS NOT NULL", "{0} NOT BETWEEN 1 AND {0}", "NOT {0} IN (1, 2)", "- {0} < 0", "COALESCE({0}, 0) = {0}",
    "ABS({0}) / {0} % {0} = 1".replace(" / {0}", " - {0}"),
]  # fmt: skip


def test_any_name_that_is_usable_can_be_used() -> None:
    """A field or measure called like a word of SQL stands for itself wherever a value may stand."""
    assert {"show", "explain", "any", "if", "abs", "timestamp"} <= set(WORDS)
    for name in WORDS:
        for shape in SHAPES:
            predicate = compile_predicate(shape.format(name), COLUMNS | {name: INT64})
            assert name in predicate.columns, shape.format(name)


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_a_word_of_the_language_is_no_name(word: str) -> None:
    """The refusal names it."""
    rule = RULE | {"measures": {word.lower(): {"count": "*", "over": "1h"}}}
    with pytest.raises(RuleError, match=f"'{word.lower()}' cannot be the name of a measure"):
        parse_rule(rule, STREAMS)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("n == 1", "=="), ("d::double > 1", "::"), ("EXTRACT(ISODOW FROM t) = 1", "ISODOW"), ("s ~~ 'a%'", "~~"),
        ("CAST(n AS FLOAT8) > 1", "FLOAT8"), ("CAST(n AS DOUBLE PRECISION) > 1", "DOUBLE PRECISION"),
        ("CAST('2020-01-01' AS TIMESTAMP) < t", "TIMESTAMP"), ("n > 1.", "1."), ("n > +5", "+"), ("n - + 5 > 1", "+"),
        ("EXTRACT(HOUR, t) = 1", "HOUR"), ("EXTRACT('HOUR' FROM t) = 1", "'HOUR'"), ("s IN ('a',)", ","),
        ("b ISNULL", "ISNULL"), ("n DIV 2 = 1", "DIV"), ("s || 'a' = 'b'", "||"), ("n <=> 1", "<=>"),
    ],
)  # fmt: skip
def test_what_the_reference_does_not_have_is_refused_by_name(text: str, named: str) -> None:
    """Also where sqlglot would take it."""
    with pytest.raises(PredicateError) as refusal:
        check_predicate(text, COLUMNS)
    assert [problem.message for problem in refusal.value.problems] == [f"{named} is not allowed in a predicate"]


def test_every_problem_of_a_predicate_is_reported() -> None:
    """Words that are not allowed first; once all are, everything that has no meaning."""
    with pytest.raises(PredicateError) as refusal:
        check_predicate("n == 1 AND SUM(n) > 3 OR s || 'a'", COLUMNS)
    assert [problem.found for problem in refusal.value.problems] == ["==", "SUM", "||"]
    with pytest.raises(PredicateError) as refusal:
        check_predicate("x > 1 AND (s > 3 OR n IN (y, 'a')) AND CASE WHEN HOUR(n) = 1 THEN z END = x", COLUMNS)
    assert [problem.message for problem in refusal.value.problems] == [
        "unknown name 'x'",
        "a string and an exact number cannot be compared",
        "unknown name 'y'",
        "an exact number and a string cannot be compared",
        "HOUR needs a timestamp and this is an exact number",
        "unknown name 'z'",
    ]


STREAMS = load_streams()
RULE: dict[str, Any] = {"id": "r", "stream": "transactions", "group_by": [], "when": "TRUE"}


def places(rule: dict[str, Any]) -> list[str]:
    """Where a rule is wrong."""
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | rule, STREAMS)
    return [problem.place for problem in refusal.value.problems]


def test_one_bad_measure_does_not_hide_other_problems() -> None:
    """Neither those of other measures, nor those of the condition that have nothing to do with it."""
    measures: dict[str, Any] = {
        "unknown": {"sum": "nope", "over": "1h"},
        "shapeless": {"sum": "amount"},
        "fitting": {"count": "*", "over": "1h"},
        "worse": {"count": "*", "over": "1h", "where": "amount == 1 AND SUM(amount) > 1"},
    }
    found = places(
        {"measures": measures, "when": "unknown > 1 AND shapeless LIKE 'a' AND fitting > 'x' AND zz > 1 AND worse > 1"}
    )
    assert sorted(found) == [
        "measures.shapeless.over",
        "measures.unknown.sum",
        "measures.worse.where",
        "measures.worse.where",
        "when",
        "when",
    ]


def test_names_may_be_measures_where_those_cannot_be_read() -> None:
    """What else the condition says is still checked."""
    assert places({"measures": ["a"], "when": "a > 1 AND amount > 'x'"}) == ["measures", "when"]


def test_a_rule_that_was_accepted_in_another_spelling_still_runs() -> None:
    """Checking is strict, running a rule is not: an earlier release may have accepted it."""
    assert compile_predicate("d::double == 1", COLUMNS).columns == {"d"}
