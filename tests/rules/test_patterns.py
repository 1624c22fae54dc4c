"""REGEXP_LIKE: what its patterns mean, and which are refused."""

from __future__ import annotations

import re
import time

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import check_predicate, compile_predicate, truths
from nightjar.rules.predicates.coercion import Unfit
from nightjar.rules.predicates.patterns import MAX_PATTERN, MAX_PIECES, translated
from nightjar.rules.types import STRING
from tests.support.exact_evaluator import _as_python_reads
from tests.support.sql_conditions import REGEXPS

COLUMNS = {"s": STRING, "p": STRING}


def found(pattern: str, *texts: str | None) -> list[bool]:
    """Whether each text has a match."""
    predicate = compile_predicate(f"REGEXP_LIKE(s, '{pattern.replace(chr(39), chr(39) * 2)}')", COLUMNS)
    (holds,) = truths([predicate], {"s": pl.Series(texts, dtype=pl.String)}, len(texts))
    return [bool(each) for each in holds]


@pytest.mark.parametrize(
    ("pattern", "texts", "expected"),
    [
        ("b", ["abc", "B", None], [True, False, False]),
        ("^a.c$", ["abc", "a\nc", "abcd", "abc\n"], [True, False, False, False]),
        ("^a|c$", ["ab", "bc", "b"], [True, True, False]),
        (r"^\d{4}-\d+$", ["2026-1", "٢٠٢٦-1"], [True, False]),
        (r"^\w+$", ["a_9", "é"], [True, False]),
        (r"^[^\w]$", ["é", "a"], [True, False]),
        (r"^\S$", ["\N{NO-BREAK SPACE}", " "], [True, False]),
        (r"\bcash\b", ["in cash.", "cashier", "écash"], [True, False, True]),
        ("(?i)^fail[a-c]", ["FAILB", "Faila", "failed"], [True, True, False]),
        ("(?i)k", ["K", "\N{KELVIN SIGN}"], [True, False]),
        ("(?i)[^a]", ["A", "b"], [False, True]),
        (r"[\]\-\\^]", ["]", "-", "\\", "^", "x"], [True, True, True, True, False]),
        ("[a-]", ["-", "b"], [True, False]),
        ("]", ["]]"], [True]),
        ("a}", ["a}"], [True]),
        (r"\x41\t", ["A\t"], [True]),
        (r"\<a\>", ["<a>", "a"], [True, False]),
        ("a b#c", ["a b#c"], [True]),
        ("it's", ["it's"], [True]),
        ("^$", ["", "\n"], [True, False]),
        ("", ["", "a", None], [True, True, False]),
        ("(a|)b", ["b"], [True]),
        ("^(?:a{2}?){1,}$", ["aaaa", "aaa"], [True, False]),
    ],
)
def test_a_pattern_is_searched_for(pattern: str, texts: list[str | None], expected: list[bool]) -> None:
    assert found(pattern, *texts) == expected


@given(REGEXPS, st.lists(st.text("abA.%_é\n -1]K\N{KELVIN SIGN}", max_size=6), min_size=1, max_size=5))
def test_a_pattern_means_what_python_reads(pattern: str, texts: list[str]) -> None:
    """Of the subset Python's engine and Rust's have one understanding."""
    try:
        holds = found(pattern, *texts)
    except PredicateError:
        return
    assert holds == [re.search(_as_python_reads(pattern), text, re.ASCII) is not None for text in texts]


@given(st.text(st.sampled_from(r"ab(|)[]{}?*+^$\.-,1&:i=!<>P#~ é" + "\n"), max_size=12))
def test_any_text_is_refused_or_can_be_matched(pattern: str) -> None:
    """And where both engines take it, they agree."""
    try:
        written = translated(pattern)
    except Unfit:
        return
    (holds,) = pl.Series(["ab-1"]).str.contains(written, strict=True).to_list()
    assert holds == (re.search(_as_python_reads(pattern), "ab-1", re.ASCII) is not None)


@pytest.mark.parametrize(
    ("pattern", "what", "remedy"),
    [
        ("(?=a)b", "look-ahead (?=…) is not possible in linear time (character 2 of the pattern)", "AND or NOT"),
        ("b(?!a)", "look-ahead (?!…)", "AND or NOT"),
        ("(?<=a)b", "look-behind (?<=…)", "AND or NOT"),
        ("(?<!a)b", "look-behind (?<!…)", "AND or NOT"),
        ("(?>a)", "an atomic group", "AND or NOT"),
        (r"(a)\1", r"the back-reference \1 is not possible in linear time (character 5", "AND or NOT"),
        ("(?P=a)", "a back-reference (?P=…)", "AND or NOT"),
        ("(?P<a>b)", "this kind of group is unknown", "(?:…)"),
        ("a(?i)b", "(?i) stands within the pattern", "at the beginning"),
        ("(?s)a", "this kind of group is unknown", "(?:…)"),
        ("(a", "a group is not closed", "Add )"),
        ("a)", "this ) closes no group", "\\)"),
        ("[a", "a class is not closed", "Add ]"),
        ("[]", "] stands within a class", "\\]"),
        ("[[:alpha:]]", "[ stands within a class", "\\["),
        ("[a&&b]", "& stands within a class", "\\&"),
        ("[z-a]", "this is no range of characters", "a-z"),
        (r"[\d-z]", "this is no range of characters", "a-z"),
        ("*a", "* stands after nothing", "\\*"),
        ("a**", "a repetition follows another", "in a group"),
        ("a*+", "a repetition follows another", "in a group"),
        ("^*", "nothing stands here that can be repeated", "Leave it out"),
        ("a{,3}", "{ begins a number of repetitions", "\\{"),
        ("a{x}", "{ begins a number of repetitions", "\\{"),
        ("a{3,2}", "{3,2} ends before it begins", "smaller number first"),
        (r"\p{L}", r"\p is unknown", "Known are \\d"),
        (r"\Z", r"\Z is unknown", "ends are ^ and $"),
        (r"\B", r"\B is unknown", "Known are"),
        ("a\\", "\\ is unknown", "Known are"),
        (r"\xG0", r"\x is unknown", r"\xHH"),
        ("a" * (MAX_PATTERN + 1), "the pattern has 1001 characters, more than 1000", "several REGEXP_LIKE"),
        ("a{1001}", f"stands for 1001 pieces (a class counts as four), more than {MAX_PIECES}", "Repeat less"),
        (r"\d{251}", "stands for 1004 pieces", "Repeat less"),
        ("(?:(?:(?:){99}){99}){99}", "stands for 970299 pieces", "Repeat less"),
        ("(" * 17 + "a" + ")" * 17, "nested deeper than 16", "several REGEXP_LIKE"),
    ],
)
def test_a_pattern_is_refused_with_its_remedy(pattern: str, what: str, remedy: str) -> None:
    with pytest.raises(PredicateError) as refused:
        check_predicate(f"REGEXP_LIKE(s, '{pattern}')", COLUMNS)
    (problem,) = refused.value.problems
    assert what in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize("pattern", ["p", "CONCAT('a', p)", "NULL", "5"])
def test_the_pattern_is_a_literal(pattern: str) -> None:
    """A pattern of an event's field would be compiled for each event, unchecked."""
    with pytest.raises(PredicateError, match="REGEXP_LIKE takes a pattern in quotes"):
        check_predicate(f"REGEXP_LIKE(s, {pattern})", COLUMNS)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(?:a?){250}a{250}b", "(a*)*(a*)*b", "(?:a|b)*a(?:a|b){400}c"]
)
def test_no_pattern_takes_more_than_linear_time(pattern: str) -> None:
    """Patterns for which engines that backtrack need years; a text is as long as a field may be."""
    began = time.process_time()
    found(pattern, *["a" * 2047 + "!"] * 5)
    assert time.process_time() - began < 2
