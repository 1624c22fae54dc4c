"""Names a predicate may use, spellings it may not, and everything that is wrong with it at once."""

from typing import Any

import pytest
from sqlglot import exp
from sqlglot.tokens import Tokenizer

from nightjar.rules.errors import PredicateError, RuleError
from nightjar.rules.model import parse_rule
from nightjar.rules.names import RESERVED_WORDS, is_usable_name
from nightjar.rules.predicates import FUNCTIONS, check_predicate, compile_predicate
from nightjar.rules.streams import load_streams
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, FieldType

COLUMNS: dict[str, FieldType] = {
    "n": INT64,
    "d": DOUBLE,
    "s": STRING,
    "t": TIMESTAMP,
    "u": TIMESTAMP,
    "b": BOOLEAN,
}
# Every word that sqlglot knows in some way: keywords, functions, and those its parser looks for by their text.
WORDS = sorted(
    {
        word.lower()
        for word in (*Tokenizer.KEYWORDS, *exp.FUNCTION_BY_NAME, *FUNCTIONS, "if", "interval", "exists", "some", "date")
        if is_usable_name(word)
    }
)
SHAPES = [
    "{0} > 1",
    "n > {0}",
    "({0}) + {0} > {0} * 2 AND {0} < 1",
    "CASE WHEN {0} > 1 THEN {0} ELSE {0} END > 0",
    "{0} IS NOT NULL",
    "{0} NOT BETWEEN 1 AND {0}",
    "NOT {0} IN (1, 2)",
    "- {0} < 0",
    "COALESCE({0}, 0) = {0}",
    "ABS({0}) / {0} % {0} = 1".replace(" / {0}", " - {0}"),
]


@pytest.mark.slow
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
        ("n == 1", "=="),
        ("d::double > 1", "::"),
        ("EXTRACT(ISODOW FROM t) = 1", "ISODOW"),
        ("s ~~ 'a%'", "~~"),
        ("CAST(n AS FLOAT8) > 1", "FLOAT8"),
        ("CAST(n AS DOUBLE PRECISION) > 1", "DOUBLE PRECISION"),
        ("CAST('2020-01-01' AS TIMESTAMP) < t", "TIMESTAMP"),
        ("n > 1.", "1."),
        ("n > +5", "+"),
        ("n - + 5 > 1", "+"),
        ("EXTRACT(HOUR, t) = 1", "HOUR"),
        ("EXTRACT('HOUR' FROM t) = 1", "'HOUR'"),
        ("s IN ('a',)", ","),
        ("b ISNULL", "ISNULL"),
        ("n DIV 2 = 1", "DIV"),
        ("s || 'a' = 'b'", "||"),
        ("n <=> 1", "<=>"),
    ],
)
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
    """The rest of the condition is still checked."""
    assert places({"measures": ["a"], "when": "a > 1 AND amount > 'x'"}) == ["measures", "when"]


def test_a_rule_that_was_accepted_in_another_spelling_still_runs() -> None:
    """Checking is strict, running a rule is not: an earlier release may have accepted it."""
    assert compile_predicate("d::double == 1", COLUMNS).columns == {"d"}


@pytest.mark.parametrize(
    ("text", "what", "remedy", "marked"),
    [
        ("(n > 1 AND b", "this parenthesis is not closed", "Add )", "("),
        ("n > 1)", "nothing is open that this ) closes", "Leave it out", ")"),
        ("s IN ('a'", "this parenthesis is not closed", "Add )", "("),
        ("n > 1 AND", "nothing stands after AND", "leave it out", "AND"),
        ("n >", "nothing stands after >", "leave it out", ">"),
        ("(n > 1 OR)", "nothing stands after OR", "leave it out", "OR"),
        ("OR n > 1", "nothing stands before OR", "Write a condition before it", "OR"),
        ("NOT", "nothing stands after NOT", "leave it out", "NOT"),
        ("n > 1 OR OR b", "OR stands right after OR", "between them", "OR"),
        ("n =< 1", "< stands right after =", "Write <=", "<"),
        ("n => 1", "=> is not allowed", "Write >=", "=>"),
        ("n > 1 && b", "&& is not allowed", "Write AND", "&&"),
        ("n > 1 || b", "|| is not allowed", "Write OR", "||"),
        ("!b", "! is not allowed", "Write NOT", "!"),
        ("n > 1 amd b", "amd stands right after 1", "Did you mean AND?", "amd"),
        ("s IN 'm1'", "IN takes a list in parentheses", "Write IN ('m1')", "IN"),
        ("n in 5", "IN takes a list in parentheses", "Write in (5)", "in"),
        ("s NOT IN d", "IN takes a list in parentheses", "Write IN ('a', 'b')", "IN"),
        ("CAST(d AS INT) > 1", "INT is not allowed", "CAST(value AS DOUBLE)", "INT"),
        ("n BETWEEN 1", "BETWEEN needs two ends", "BETWEEN 80 AND 100", "BETWEEN"),
        ("CASE WHEN b THEN TRUE", "this CASE has no END", "Add END", "CASE"),
        ("s = \u2018m1\u2019", "\u2018 is a typographic quote", "as in 'm1'", "\u2018"),
        ("s IN (\u201cm 1\u201d, 'a')", "\u201c is a typographic quote", "straight quotes", "\u201c"),
        ("\u201en > 1\u201c", "\u201e is a typographic quote", "Put the condition in straight quotes", "\u201e"),
        ("t - u < 60", "cannot be subtracted", "SECONDS_BETWEEN(u, t)", "t - u"),
        (
            "n > ABS(COALESCE(t, u) - t)",
            "cannot be subtracted",
            "SECONDS_BETWEEN(t, COALESCE(t, u))",
            "COALESCE(t, u) - t",
        ),
        ("t + 60 > n", "this is a timestamp", "Write EXTRACT(EPOCH FROM t)", "t"),
        ("t > 60", "a timestamp and an exact number cannot be compared", "EXTRACT(EPOCH FROM", "t > 60"),
        ("t < d", "a timestamp and a double cannot be compared", "EXTRACT(EPOCH FROM", "t < d"),
        ("DATEDIFF(t, u) > 1", "function DATEDIFF is not allowed", "SECONDS_BETWEEN(", "DATEDIFF"),
        ("t > u - INTERVAL 1", "INTERVAL is not allowed", "SECONDS_BETWEEN(", "INTERVAL"),
    ],
)
def test_a_mistake_is_reported_with_its_remedy(text: str, what: str, remedy: str, marked: str) -> None:
    """One problem, at the word that is wrong."""
    with pytest.raises(PredicateError) as refusal:
        check_predicate(text, COLUMNS)
    (problem,) = refusal.value.problems
    assert what in problem.message
    assert remedy in problem.remedy
    assert problem.found == marked


def test_several_syntax_errors_are_reported_at_once() -> None:
    """Each at its place."""
    with pytest.raises(PredicateError) as refusal:
        check_predicate("(n > 1 AND OR b AND", COLUMNS)
    assert [problem.message for problem in refusal.value.problems] == [
        "this parenthesis is not closed",
        "nothing stands after AND",
        "OR stands right after AND",
    ]


def test_a_measure_in_a_condition_on_events_is_named() -> None:
    """It is known, and not there."""
    measure = {"count": "*", "over": "1h"}
    measures = {"n": measure, "m": measure | {"since": "n > 1"}}
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {"where": "n > 1 AND nn > 1", "measures": measures, "when": "m > 1"}, STREAMS)
    reported = {(problem.place, problem.message) for problem in refusal.value.problems}
    assert reported == {
        ("where", "'n' is a measure, and where is met or not by an event alone"),
        ("where", "unknown name 'nn'"),
        ("measures.m.since", "'n' is a measure, and since is met or not by an event alone"),
    }
    assert "Use measures in when" in str(refusal.value)


def test_measures_may_be_called_like_words_of_sql() -> None:
    """Words that the language of conditions does not have."""
    measures = {name: {"count": "*", "over": "1h"} for name in ("show", "any", "if")}
    parse_rule(RULE | {"measures": measures, "when": "show > 1 AND any > 1 AND if > 1"}, STREAMS)


@pytest.mark.parametrize(("key", "value"), [("id", 5), ("id", 1.5), ("author", 7)])
def test_text_that_looks_like_a_number_goes_into_quotes(key: str, value: object) -> None:
    """YAML has taken it for something else."""
    with pytest.raises(RuleError, match=rf"{key}: is {value}, not text. Put it in quotes, as in {key}: \"{value}\""):
        parse_rule(RULE | {key: value}, STREAMS)


@pytest.mark.parametrize(("word", "read"), [("no", "false"), ("yes", "true")])
def test_a_word_that_yaml_reads_as_a_boolean_is_named(word: str, read: str) -> None:
    """As it was written, not as Python shows it."""
    with pytest.raises(RuleError, match=f'id: is {read}, not text: YAML reads {word} .* as in id: "{word}"'):
        parse_rule(f"id: {word}\nstream: transactions\ngroup_by: []\nwhen: amount > 1\n", STREAMS)


def test_a_mistyped_key_comes_first_and_its_consequences_are_not_reported() -> None:
    """Names of the measures under it are not unknown; what else is wrong is."""
    rule = {key: value for key, value in RULE.items() if key != "measures"}
    mistyped = {"mesures": {"paid": {"sum": "amount", "over": "1h"}}, "when": "paid > 5 AND", "description": "{paid}"}
    with pytest.raises(RuleError) as refusal:
        parse_rule(rule | mistyped, STREAMS)
    assert [(problem.place, problem.message) for problem in refusal.value.problems] == [
        ("mesures", "is not a key of a rule"),
        ("when", "nothing stands after AND"),
    ]
    assert "Did you mean measures?" in refusal.value.problems[0].remedy


@pytest.mark.parametrize("tab", ["\tn: {count: '*', over: 1h}", "  n:\n  \t  count: '*'\n", "  n: 5\n\tm: 6"])
def test_a_tab_is_named(tab: str) -> None:
    """Where YAML takes spaces only. A tab between words is white space."""
    head = "id:\ta\nstream:\ttransactions\ngroup_by: []\nwhen: amount > 1\n"
    parse_rule(head, STREAMS)
    with pytest.raises(
        RuleError, match=r"a tab stands where only spaces may \(line [67], column \d\). Indent with spaces"
    ):
        parse_rule(f"{head}measures:\n{tab}\n", STREAMS)


def test_all_problems_of_a_measure_are_reported_at_once() -> None:
    """Its function is unknown, or its window cannot be read: the rest is looked at all the same."""
    measures = {
        "middle": {"middle": "amount", "over": "1 hour", "per": ["ip"]},
        "total": {"sum": "terminal_id", "over": "long", "where": "amonut > 1"},
    }
    with pytest.raises(RuleError) as refusal:
        parse_rule(RULE | {"measures": measures, "when": "middle > total"}, STREAMS)
    assert [problem.place for problem in refusal.value.problems] == [
        "measures.middle",
        "measures.middle.over",
        "measures.total.over",
        "measures.middle.per",
        "measures.total.sum",
        "measures.total.where",
    ]
    assert "there is none called 'middle'" in refusal.value.problems[0].message
    assert "count, sum, avg, min, max, stddev, count_distinct, first, last" in refusal.value.problems[0].remedy
