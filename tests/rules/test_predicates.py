"""Predicates by hand: what they mean on a few rows, how exact they are, and what is refused, by name and place."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar.rules.errors import PredicateError
from nightjar.rules.predicates import MAX_DEPTH, MAX_TEXT, MAX_WEIGHT, compile_predicate, truths
from nightjar.rules.predicates.analysis import MAX_WILDCARDS
from nightjar.rules.types import BOOLEAN, DOUBLE, INT64, STRING, TIMESTAMP, FieldType, Kind, decimal

COLUMNS: dict[str, FieldType] = {
    "amount": decimal(12, 2),
    "large": decimal(18, 4),
    "sum": FieldType(Kind.DECIMAL, 19, 2),
    "number": INT64,
    "other": INT64,
    "ratio": DOUBLE,
    "status": STRING,
    "flag": BOOLEAN,
    "seen": TIMESTAMP,
    "timestamp": TIMESTAMP,
    "comment": STRING,
    "order": INT64,
}
LONGEST = 2**63 - 1
NOON = int(datetime(2018, 4, 1, 12, 5, 7, tzinfo=UTC).timestamp()) * 1_000_000
# Three rows: ordinary values, NULL everywhere, the extremes.
ROWS = pl.DataFrame(
    {
        "amount": [1234, None, -5],
        "large": [20_000, None, 10**18 - 1],
        "sum": [50_000, None, LONGEST],
        "number": [7, None, -(2**63)],
        "other": [2, None, LONGEST],
        "ratio": [0.5, None, -1e300],
        "status": ["FAIL", None, "a_b%"],
        "flag": [True, None, False],
        "seen": [NOON, None, -1],
        "timestamp": [NOON, None, 0],
        "comment": ["x", None, ""],
        "order": [1, None, 0],
    },
    schema={
        name: {DOUBLE: pl.Float64, STRING: pl.String, BOOLEAN: pl.Boolean}.get(kind, pl.Int64)
        for name, kind in COLUMNS.items()
    },
)


def truth(text: str, rows: pl.DataFrame = ROWS) -> str:
    """One letter a row, T or F."""
    (found,) = truths([compile_predicate(text, COLUMNS)], {column.name: column for column in rows}, len(rows))
    assert (found.dtype, len(found)) == (np.uint8, len(rows))
    return "".join("T" if value else "F" for value in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amount = 12.34", "TFF"),
        ("amount > 12", "TFF"),
        ("amount < 12.345", "TFT"),
        ("amount * 0 < 0.0000000000000000000000000001", "TFT"),
        ("amount IS NULL", "FTF"),
        ("NOT (amount > 0)", "FFT"),
        ("amount > 0 OR amount IS NULL", "TTF"),
        ("flag", "TFF"),
        ("NOT flag", "FFT"),
        ("flag = FALSE", "FFT"),
        ("TRUE", "TTT"),
        ("1 = 2", "FFF"),
        ("amount BETWEEN -0.05 AND 12.34", "TFT"),
        ("amount NOT BETWEEN 0 AND 20", "FFT"),
        ("number IN (7, 8.0)", "TFF"),
        ("number IN (7.5)", "FFF"),
        ("number NOT IN (7.5)", "TFT"),
        ("amount IN (-0.05, 12.34, 99999999999999999999)", "TFT"),
        ("ratio IN (0.5, 1)", "TFF"),
        ("status IN ('FAIL', 'OK')", "TFF"),
        ("status LIKE 'F%'", "TFF"),
        ("status LIKE '%L'", "TFF"),
        ("status LIKE '%AI%'", "TFF"),
        ("status LIKE 'FAIL'", "TFF"),
        ("status LIKE '____'", "TFT"),
        ("status LIKE 'F%I_'", "TFF"),
        ("status LIKE '%'", "TFT"),
        ("status NOT LIKE 'F%'", "FFT"),
        ("LOWER(status) = 'fail'", "TFF"),
        ("UPPER(status) = 'A_B%'", "FFT"),
        ("LENGTH(status) = 4", "TFT"),
        ("number % 4 = 3", "TFF"),
        ("number % 10 = -8", "FFT"),
        ("number % 0 IS NULL", "TTT"),
        ("number / 2 = 3.5", "TFF"),
        ("number / 0 IS NULL", "TTT"),
        ("number / (other - 2) > 0", "FFF"),
        ("ABS(number) = 9223372036854775808", "FFT"),
        ("- number = 9223372036854775808", "FFT"),
        ("number - other < -18446744073709551614", "FFT"),
        ("other + 1 > other", "TFT"),
        ("large * 10000 = 999999999999999999", "FFT"),
        ("large * 10000 = 999999999999999999.0", "FFT"),
        ("large = 99999999999999.9999", "FFT"),
        ("large * large > 9999999999999999000000000000", "FFT"),
        ("sum > 500 OR sum = 500", "TFT"),
        ("sum * sum > 8507059173023461584739690778423250", "FFT"),
        ("- sum * 4 < -2000", "FFT"),
        ("sum = 92233720368547758.07", "FFT"),
        ("number < 1e30", "TFT"),
        ("CAST(amount AS DOUBLE) * 2 = 24.68", "TFF"),
        ("CASE WHEN flag THEN amount ELSE number END = 12.34", "TFF"),
        ("CASE status WHEN 'FAIL' THEN 1 WHEN 'a_b%' THEN 2.5 END = 2.5", "FFT"),
        ("CASE WHEN flag THEN NULL ELSE 1 END IS NULL", "TFF"),
        ("COALESCE(amount, 0) = 0", "FTF"),
        ("COALESCE(status, 'none') = 'none'", "FTF"),
        ("1 = COALESCE(ABS(amount), 1)", "FTF"),
        ("seen = TIMESTAMP '2018-04-01 14:05:07+02:00'", "TFF"),
        ("seen < TIMESTAMP '1970-01-01'", "FFT"),
        ("HOUR(seen) = 12 AND MINUTE(seen) = 5 AND SECOND(seen) = 7", "TFF"),
        ("EXTRACT(YEAR FROM seen) = 1969 AND DAYOFYEAR(seen) = 365 AND HOUR(seen) = 23", "FFT"),
        ("EXTRACT(EPOCH FROM seen) - EXTRACT(EPOCH FROM timestamp) = -0.000001", "FFT"),
        ("seen >= timestamp AND comment = 'x' AND order = 1", "TFF"),
        ("flag AND number > 0 OR amount < 0", "TFT"),
        ("NOT flag AND amount < 0", "FFT"),
        ("2 + number * 2 = 16", "TFF"),
    ],
)
def test_a_predicate_is_true_where_sql_is(text: str, expected: str) -> None:
    """Each predicate holds on exactly the rows it is worked out for by hand; NULL is false in the end."""
    assert truth(text) == expected


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize(
    "text", ["TRUE", "1 = 1 AND NOT FALSE", "3 = ABS(COALESCE(number, other, 3))", "number IS NULL"]
)
def test_there_is_one_value_a_row_whatever_the_rows_hold(text: str, rows: int) -> None:
    """Constants and rows that are all NULL do not shorten the result."""
    assert truth(text, pl.DataFrame({name: [None] * rows for name in ROWS.columns}, schema=ROWS.schema)) == "T" * rows


INT64S = st.integers(-(2**63), LONGEST) | st.integers(-3, 3)
DECIMALS = st.integers(-(10**18) + 1, 10**18 - 1)
EXPRESSIONS = {
    "number + other": lambda n, o, a: n + o,
    "number - other": lambda n, o, a: n - o,
    "number * other": lambda n, o, a: n * o,
    "large + number": lambda n, o, a: a + n,
    "large * large": lambda n, o, a: a * a,
    "large * 4 - 0.5": lambda n, o, a: a * 4 - Fraction(1, 2),
    "ABS(number) - other": lambda n, o, a: abs(n) - o,
    "- number + large": lambda n, o, a: a - n,
}


@given(INT64S, INT64S, DECIMALS, st.sampled_from(sorted(EXPRESSIONS)), st.integers(-1, 1))
def test_exact_arithmetic_never_rounds_or_wraps(number: int, other: int, large: int, text: str, off: int) -> None:
    """Integers and decimals at their limits give the result of arithmetic on whole fractions."""
    exact = EXPRESSIONS[text](Fraction(number), Fraction(other), Fraction(large, 10_000))
    scaled = int((exact + off) * 10**8)
    digits = f"{abs(scaled):09d}"
    literal = f"{'-' if scaled < 0 else ''}{digits[:-8]}.{digits[-8:]}".rstrip("0").rstrip(".")
    rows = ROWS.head(1).with_columns(
        number=pl.lit(number, pl.Int64), other=pl.lit(other, pl.Int64), large=pl.lit(large, pl.Int64)
    )
    assert truth(f"{text} = {literal}", rows) == ("F" if off else "T")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("read_csv('/etc/passwd') IS NULL", "function READ_CSV"),
        ("read_text('x') = 'y'", "function READ_TEXT"),
        ("exec('x')", "function EXEC"),
        ("__import__('os')", "function __IMPORT__"),
        ("(SELECT 1) = 1", "SELECT"),
        ("number IN (SELECT 1)", "SELECT"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("number IN other", "IN takes a list in parentheses"),
        ("SUM(amount) > 1", "aggregate function SUM"),
        ("COUNT(*) > 1", "aggregate function COUNT"),
        ("ROW_NUMBER() OVER (ORDER BY number) = 1", "function ROW_NUMBER"),
        ("number OVER (number) = 1", "OVER"),
        ("flag; DROP TABLE events", ";"),
        ("flag;", ";"),
        ("flag -- and more", "comment"),
        ("flag /* more */", "comment"),
        ("/*+ hint */ flag", "comment"),
        ('"amount" > 1', "quoted identifier 'amount'"),
        ("`amount` > 1", "`"),
        ("[amount] > 1", "["),
        ("events.amount > 1", "."),
        ("list_filter(status, x -> x)", "function LIST_FILTER"),
        ("status -> 'x' = 1", "->"),
        ("status || 'x' = 'y'", "||"),
        ("status ILIKE 'x'", "ILIKE"),
        ("status SIMILAR TO 'x'", "SIMILAR TO"),
        ("status LIKE 'x' ESCAPE '!'", "ESCAPE"),
        ("status LIKE comment", "LIKE takes a pattern"),
        ("REGEXP_MATCHES(status, '(a+)+')", "function REGEXP_MATCHES"),
        ("number & 1 = 1", "&"),
        ("number << 60 > 1", "BITWISELEFTSHIFT"),
        ("CAST(number AS VARCHAR) = '1'", "VARCHAR"),
        ("number::INT = 1", "INT"),
        ("TRY_CAST(number AS DOUBLE) = 1", "function TRY_CAST"),
        ("CURRENT_TIMESTAMP > seen", "CURRENT_TIMESTAMP"),
        ("NOW() > seen", "function NOW"),
        ("RANDOM() > 0.5", "function RANDOM"),
        ("seen > DATE '2018-01-01'", "DATE"),
        ("INTERVAL '1' DAY IS NULL", "INTERVAL"),
        ("flag IS TRUE", "IS is followed by NULL"),
        ("flag IS DISTINCT FROM TRUE", "IS"),
        ("number <=> 1", "<=>"),
        ("IF(flag, 1, 2) = 1", "function IF"),
        ("LOG(number, 1) = 1", "function LOG"),
        ("LOWER(DISTINCT status) = 'a'", "DISTINCT"),
        ("ABS(number) FILTER (WHERE flag) = 1", "FILTER"),
        ("status COLLATE nocase = 'a'", "COLLATE"),
        ("COLUMNS(*) > 1", "function COLUMNS"),
        ("* > 1", "*"),
        ("? = 1", "?"),
        ("@x = 1", "@"),
        ("$1 = 1", "$1"),
        ("{{ number }} = 1", "{"),
        ("{'a': 1} IS NULL", "{"),
        ("LENGTH(status, 1) = 1", "LENGTH"),
        ("flag flag", "side by side"),
        ("status = 'a' 'b'", "side by side"),
        ("number = 0x1F", "side by side"),
    ],
)
def test_what_is_not_allowed_is_refused_by_its_name(text: str, named: str) -> None:
    """Functions that read, subqueries, aggregates, windows, statements and other dialects' ways in are all named."""
    with pytest.raises(PredicateError) as refusal:
        compile_predicate(text, COLUMNS, where="when")
    assert named in refusal.value.what
    assert refusal.value.problems[0].remedy or refusal.value.problems[0].excerpt


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("amuont > 1", "unknown name 'amuont'", "Did you mean amount?"),
        ("Amount > 1", "unknown name 'Amount'", "Did you mean amount?"),
        ("amount", "a condition is needed", "Compare it"),
        ("amount > '5'", "an exact number and a string cannot be compared", "without quotes"),
        ("seen > '2018-01-01'", "a timestamp and a string cannot be compared", "Write TIMESTAMP"),
        ("seen > TIMESTAMP 'yesterday'", "'yesterday' is not a point in time", "2018-04-01 12:00:00"),
        ("amount = NULL", "= with NULL is never true", "IS NULL"),
        ("number IN (1, NULL)", "NULL in IN", "IS NULL"),
        ("number IN (1, other)", "IN takes values only", "OR"),
        ("flag > TRUE", "booleans have no order", "<>"),
        ("0 < number < 5", "a condition is an operand", "parentheses"),
        ("number = other IS NULL", "a condition is an operand", "parentheses"),
        ("flag = flag IS NULL", "a condition is an operand", "parentheses"),
        ("flag IS NULL = (flag)", "a condition is an operand", "parentheses"),
        ("(flag) IS NULL IS NULL", "a condition is an operand", "parentheses"),
        ("ABS(status) = 1", "a number is needed and this is a string", ""),
        ("HOUR(number) = 1", "HOUR needs a timestamp", ""),
        ("EXTRACT(CENTURY FROM seen) = 1", "CENTURY is not a part", "Parts are"),
        ("ratio % 2 = 1", "% of doubles", "int64 and decimal"),
        ("number * number * number > 1", "more than 38 digits", "CAST(… AS DOUBLE)"),
        ("COALESCE(NULL, NULL) IS NULL", "only NULL", "at least one value"),
        ("CASE WHEN flag THEN 1 ELSE 'x' END = 1", "cannot be results of one CASE", ""),
        ("ratio > 1e400", "not a number nightjar can hold", "1.8e308"),
        ("ratio > 1e99999999999999999999999", "not a number nightjar can hold", "1.8e308"),
        ("amount > 1 AND", "nothing stands after AND", ""),
        ("status = 'x", "a quote is not closed", "Close it"),
        ("  ", "is empty", "Write a condition"),
    ],
)
def test_a_mistake_is_explained_with_its_remedy(text: str, what: str, remedy: str) -> None:
    """The error of a predicate has the problem and the remedy."""
    with pytest.raises(PredicateError) as refusal:
        compile_predicate(text, COLUMNS, where="when")
    assert what in refusal.value.what
    assert remedy in refusal.value.remedy


def test_an_error_points_at_its_place_in_the_text() -> None:
    """The text is shown with carets under the words that are meant, and its place in the rule before it."""
    with pytest.raises(PredicateError) as refusal:
        compile_predicate("flag AND\n amuont > 1", COLUMNS, where="measures.spent.where")
    error = refusal.value
    assert (error.position, error.length, error.text[error.position :][:6]) == (10, 6, "amuont")
    first, *excerpt = str(error).splitlines()
    assert first.startswith("measures.spent.where: unknown name 'amuont'. Did you mean amount?")
    assert excerpt == ["    flag AND  amuont > 1", "              ^^^^^^"]


N = 100_000
BOMBS = {
    "a megabyte": "x" * 1_000_000,
    "parentheses": "(" * N + "flag" + ")" * N,
    "parentheses within the length": "(" * 1000 + "flag" + ")" * 1000,
    "open parentheses": "(" * 4000,
    "not": "NOT " * 1000 + "flag",
    "not in parentheses": "NOT(" * 500 + "flag" + ")" * 500,
    "minus": "- " * 1000 + "number > 1",
    "minus and plus": "-+" * 1000 + "number > 1",
    "case": "CASE WHEN " * 100 + "flag" + " THEN flag END" * 100,
    "else": "CASE WHEN flag THEN 1 ELSE " * 100 + "1" + " END" * 100 + " = 1",
    "whens": "CASE " + "WHEN flag THEN 1 " * 200 + "END = 1",
    "functions": "ABS(" * 400 + "number" + ")" * 400 + " > 1",
    "sum": "+".join(["number"] * 400) + " > 1",
    "casts": "number" + "::double" * 400 + " > 1",
    "remainders": "(" * 31 + "number" + "%number)" * 31 + " > 1",
    "conditions": " AND ".join(["number>1"] * 300),
    "short conditions": " AND ".join(["flag"] * 440),
    "brackets": "[" * 4000,
    "braces": "{" * 4000,
    "betweens": "number BETWEEN " * 200 + "1" + " AND 2" * 200,
    "likes": "status" + " LIKE 'a'" * 300,
    "is": "flag" + " IS NULL" * 300,
    "comparisons": "number" + " = number" * 300,
    "digits": "number > " + "9" * 4000,
    "exponent": "number > 1e" + "9" * 18,
    "small exponent": "number > 1e-" + "9" * 18,
    "quotes": "'" * 3999,
}


HARMLESS = {"small exponent", "short conditions"}


@pytest.mark.parametrize("name", BOMBS)
def test_a_text_made_to_exhaust_the_parser_is_refused_at_once(name: str) -> None:
    """Too long, too deep or too much work is a clean error, or harmless, and never takes for ever."""
    if name in HARMLESS:
        compile_predicate(BOMBS[name], COLUMNS)
    else:
        with pytest.raises(PredicateError) as refusal:
            compile_predicate(BOMBS[name], COLUMNS)
        assert len(str(refusal.value)) < 1000


WORDS = [
    "amount",
    "number",
    "ratio",
    "status",
    "flag",
    "seen",
    "order",
    "AND",
    "OR",
    "NOT",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "<",
    "+",
    "-",
    "*",
    "/",
    "%",
    "1",
    "2.5",
    "1e5",
    "'x'",
    "'a%'",
    "NULL",
    "TRUE",
    "IS",
    "IN",
    "BETWEEN",
    "LIKE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "COALESCE(",
    "ABS(",
    "CAST(",
    "AS",
    "DOUBLE",
    "EXTRACT(",
    "HOUR",
    "FROM",
    "TIMESTAMP",
    "::",
    ".",
    ";",
    "[",
    "{",
    "->",
    "--",
    "/*",
    '"',
    "`",
    "@",
    "?",
    ":",
    "SELECT",
    "#",
    "\\",
    "\x00",
    "é",
    "'",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30))
def test_no_text_does_more_than_compile_or_be_refused(text: str) -> None:
    """Whatever is sent as a predicate is a PredicateError with a text, or runs and gives a boolean for every row."""
    try:
        predicate = compile_predicate(text, COLUMNS)
    except PredicateError as refusal:
        str(refusal)
        return
    assert truth(predicate.text) == truth(text)


def test_what_stays_within_the_limits_is_compiled() -> None:
    """The longest text, the deepest nesting and a long chain of conditions still work."""
    assert truth("flag" + " " * (MAX_TEXT - 4)) == "TFF"
    assert truth("(" * MAX_DEPTH + "flag" + ")" * MAX_DEPTH) == "TFF"
    assert truth("NOT(" * (MAX_DEPTH // 2) + "flag" + ")" * (MAX_DEPTH // 2)) == "TFF"
    assert truth(" OR ".join(f"number = {at}" for at in range(MAX_WEIGHT // 3 - 1))) == "TFF"
    assert truth("ratio/(" * 31 + "ratio" + ")" * 31 + " = 1") == "TFT", "each divisor is evaluated once"
    assert truth(f"status LIKE '{'%_' * (MAX_WILDCARDS // 2)}'") == "FFF"


@pytest.mark.parametrize("text", ["flag and  amount>1", "number in (1,2)", "seen > timestamp '2018-04-01'"])
def test_the_canonical_text_means_the_same(text: str) -> None:
    """Compiling a predicate's canonical text gives the same predicate again."""
    predicate = compile_predicate(text, COLUMNS)
    again = compile_predicate(predicate.text, COLUMNS)
    assert (again.text, again.columns) == (predicate.text, predicate.columns)
    assert truth(predicate.text) == truth(text)


def test_a_predicate_names_the_columns_it_reads() -> None:
    """The engine loads those columns only."""
    assert compile_predicate("amount > 1 AND NOT flag OR 1 = 2", COLUMNS).columns == {"amount", "flag"}
    assert compile_predicate("TRUE", COLUMNS).columns == frozenset()
