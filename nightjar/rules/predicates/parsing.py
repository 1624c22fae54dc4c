"""From a predicate's text to sqlglot's tree, with bounds before anything recursive runs.

The tokens are checked first: length, comments, nesting, and whether each word and function belongs to the language. So
what is not allowed is refused by name and place, and the parser sees only small, harmless text. Fields and measures may
have the names of SQL words that are not in this language (show, any, order): the parser sees them under other names.

New rules are checked with `strict`: exactly as in docs/reference/rules.md. Without it other spellings that sqlglot
knows are accepted too (`==`, `x::double`), so that a rule which an earlier release accepted still runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Sequence
from typing import Any, ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from nightjar.rules.errors import PredicateError
from nightjar.rules.functions import Function
from nightjar.rules.names import did_you_mean, is_usable_name
from nightjar.rules.predicates.source import Source
from nightjar.rules.predicates.syntax import mistakes
from nightjar.rules.tables import membership

# Characters; a page of SQL. Longer conditions are lists of values, which belong in a field of the event.
MAX_TEXT = 4096
# Levels of nested parentheses, CASE, NOT and operators; the parser uses about 25 stack frames per level.
MAX_DEPTH = 32

# Functions that are read as a name and arguments, whatever else dialects allow within their parentheses.
CALLS = frozenset(
    {
        "CEIL",
        "CONCAT",
        "DISTANCE_KM",
        "ENDS_WITH",
        "EXP",
        "FLOOR",
        "GREATEST",
        "IP_IN",
        "LEAST",
        "LN",
        "NULLIF",
        "POWER",
        "REGEXP_LIKE",
        "ROUND",
        "SECONDS_BETWEEN",
        "SQRT",
        "STARTS_WITH",
        "SUBSTRING",
        "TRIM",
    }
)
FUNCTIONS = CALLS | frozenset(
    {
        "ABS",
        "CAST",
        "COALESCE",
        "DAY",
        "DAYOFWEEK",
        "DAYOFYEAR",
        "EXTRACT",
        "HOUR",
        "LENGTH",
        "LOWER",
        "MINUTE",
        "MONTH",
        "QUARTER",
        "SECOND",
        "UPPER",
        "WEEK",
        "YEAR",
    }
)
_AGGREGATES = {"ANY_VALUE", "ARRAY_AGG", "MEAN", "MEDIAN", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE"} | {
    function.upper() for function in Function
}

_KEYWORDS = frozenset(
    {
        TokenType.AND,
        TokenType.OR,
        TokenType.NOT,
        TokenType.IN,
        TokenType.BETWEEN,
        TokenType.LIKE,
        TokenType.IS,
        TokenType.NULL,
        TokenType.TRUE,
        TokenType.FALSE,
        TokenType.CASE,
        TokenType.WHEN,
        TokenType.THEN,
        TokenType.ELSE,
        TokenType.END,
        TokenType.FROM,
        TokenType.ALIAS,
    }
)
_SYMBOLS = frozenset(
    {
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.COMMA,
        TokenType.EQ,
        TokenType.NEQ,
        TokenType.LT,
        TokenType.LTE,
        TokenType.GT,
        TokenType.GTE,
        TokenType.PLUS,
        TokenType.DASH,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.MOD,
        TokenType.DCOLON,
    }
)
_OTHERS = frozenset(
    {
        TokenType.VAR,
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.TIMESTAMP,
        TokenType.DOUBLE,
    }
)
_ALLOWED = _KEYWORDS | _SYMBOLS | _OTHERS

# The spellings of the language's words and symbols; sqlglot knows others for some of them.
_SPELLINGS = frozenset(
    {
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "LIKE",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "FROM",
        "AS",
        "TIMESTAMP",
        "DOUBLE",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "*",
        "/",
        "%",
    }
)
_ZONE = ("AT", "TIME", "ZONE")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
EXTRACTED = frozenset(
    {
        "YEAR",
        "QUARTER",
        "MONTH",
        "WEEK",
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "DAYOFWEEK",
        "DAYOFYEAR",
        "EPOCH",
    }
)

_REGEXP = "Write REGEXP_LIKE(field, 'pattern')"
_SECONDS_BETWEEN = "Write SECONDS_BETWEEN(earlier, later)"
_QUOTED = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER})  # never names
_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})
_REMEDIES = {
    ";": "A predicate is one expression, without a semicolon",
    ".": "Fields stand alone, without a table before them",
    "->": "There are no lambdas and no JSON paths; declare the value as a field of the stream",
    "RLIKE": _REGEXP,
    "REGEXP": _REGEXP,
    "~": _REGEXP,
    "ILIKE": "Write LOWER(field) LIKE 'pattern'",
    "OVER": "Declare a measure, and compare with its name",
    "SELECT": "There are no subqueries; declare a measure, and compare with its name",
    "||": "Write OR between conditions, and CONCAT(one, other) to join strings",
    "&&": "Write AND",
    "!": "Write NOT before a condition, or <> between values",
    "=>": "Write >=",
    "==": "Write =",
    "::": "Write CAST(value AS DOUBLE)",
    "~~": "Write LIKE",
    "ISODOW": "Write DAYOFWEEK, where 1 is Sunday",
    "INTERVAL": _SECONDS_BETWEEN,
    "TIME": "A zone is written HOUR(event_time AT TIME ZONE 'Europe/Berlin'), its name in single quotes or a field",
}
# Names that functions have in other dialects, and what to write instead.
_OTHER_NAMES = {
    **dict.fromkeys(("AGE", "DATEDIFF", "DATE_DIFF", "TIMEDIFF", "TIME_DIFF"), _SECONDS_BETWEEN),
    **dict.fromkeys(("TIMESTAMPDIFF", "TIMESTAMP_DIFF"), _SECONDS_BETWEEN),
    **dict.fromkeys(("RLIKE", "REGEXP", "REGEXP_MATCHES", "REGEXP_CONTAINS"), _REGEXP),
    **dict.fromkeys(("SUBSTR", "MID"), "Write SUBSTRING(field, 1, 6)"),
    **dict.fromkeys(("IFNULL", "NVL"), "Write COALESCE(field, 0)"),
    "LEFT": "Write SUBSTRING(field, 1, 6)",
    "RIGHT": "Write SUBSTRING(field, LENGTH(field) - 3) for the last four characters",
    "CEILING": "Write CEIL(value)",
    "POW": "Write POWER(value, 2)",
    "LOG": "Write LN(value), the natural logarithm; LN(value) / LN(10) is that to base 10",
    "MOD": "Write one % other",
}
# What word processors and messengers make of straight quotes.
_TYPOGRAPHIC = (
    "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\N{SINGLE LOW-9 QUOTATION MARK}"
    "\N{SINGLE HIGH-REVERSED-9 QUOTATION MARK}\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
    "\N{DOUBLE LOW-9 QUOTATION MARK}\N{DOUBLE HIGH-REVERSED-9 QUOTATION MARK}\N{PRIME}\N{DOUBLE PRIME}"
    "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}\N{ACUTE ACCENT}"
)
# Prefix of a column's name while sqlglot parses: not in any SQL word or valid field name.
_PREFIX = "\N{GREEK SMALL LETTER PHI}"
_DEFAULT_REMEDY = (
    "A predicate compares fields, measures and values with AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL and CASE"
)


class _Words(Tokenizer):
    # Words such as SHOW and EXPLAIN would swallow the rest of the text.
    COMMANDS: ClassVar[set[TokenType]] = set()


class _Calls(Parser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {name: made for name, made in Parser.FUNCTIONS.items() if name not in CALLS}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser for name, parser in Parser.FUNCTION_PARSERS.items() if name not in CALLS
    }


class _Predicates(Dialect):
    Tokenizer = _Words
    Parser = _Calls


_DIALECT = _Predicates()


def parse(source: Source, columns: Container[str], *, strict: bool = False, tables: Collection[str] = ()) -> exp.Expr:
    """The tree of a text within the bounds and of allowed words only; else PredicateError with all that are not.

    tables: the names of those that there are, for remedies.
    """
    if len(source.text) > MAX_TEXT:
        raise source.error(
            f"has {len(source.text)} characters, more than {MAX_TEXT}",
            remedy="Split the rule in two, or send the value to compare with as a field of the event",
        )
    try:
        tokens = _DIALECT.tokenize(source.text)
    except TokenError:
        raise source.error("a quote is not closed", *_last_quote(source.text), "Close it") from None
    if not tokens:
        raise source.error("is empty", remedy="Write a condition, as in amount > 100")
    tokens = _with_values(tokens, columns, tables)
    _refuse_typographic_quotes(source, tokens)
    _refuse_hidden_text(source, tokens)
    refused = [
        error
        for at in range(len(tokens))
        for error in _refusals(source, tokens, at, columns, strict=strict, tables=tables)
    ]
    if refused:
        raise PredicateError.of(refused)
    names: dict[str, str] = {}
    for at, token in enumerate(tokens):
        if (token.text in columns or _asks_table(tokens, at - 1, columns)) and _is_column(tokens, at):
            # Fields may have names that are SQL words but not words of this language: timestamp, any, order.
            token.token_type = TokenType.VAR
            names[f"{_PREFIX}{at}"] = token.text
            token.text = f"{_PREFIX}{at}"
    _check_depth(source, tokens)
    try:
        trees = _DIALECT.parser().parse(tokens, source.text)
    except ParseError as failure:
        raise PredicateError.of(mistakes(source, tokens) or [_syntax_error(source, failure)]) from None
    except RecursionError:
        raise source.error("is nested too deep", remedy="Split the rule in two") from None
    if len(trees) != 1 or trees[0] is None:
        raise source.error("is not one expression", remedy=_DEFAULT_REMEDY)
    for identifier in trees[0].find_all(exp.Identifier):
        identifier.set("this", names.get(identifier.name, identifier.name))
    _refuse_added_parentheses(source, tokens, trees[0])
    return trees[0]


def _with_values(tokens: Sequence[Token], columns: Container[str], tables: Collection[str]) -> list[Token]:
    """The words, of which `cards.country` is one where it is the name of a column, or begins with that of a table."""
    found: list[Token] = []
    for token in tokens:
        table, dot = found[-2:] if len(found) > 1 else (token, token)
        name = f"{table.text}.{token.text}"
        together = table.end + 1 == dot.start and dot.end + 1 == token.start and dot.token_type is TokenType.DOT
        plain = not {table.token_type, token.token_type} & _QUOTED
        if together and plain and (name in columns or table.text in tables):
            found[-2:] = [Token(TokenType.VAR, name, token.line, token.col, table.start, token.end)]
        else:
            found.append(token)
    return found


def _refuse_typographic_quotes(source: Source, tokens: Sequence[Token]) -> None:
    """Name the first quote, outside of strings, that is not a straight one."""
    for token in tokens:
        written = source.text[token.start : token.end + 1]
        at = next((at for at, character in enumerate(written) if character in _TYPOGRAPHIC), None)
        if at is not None and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            inner = written.strip(_TYPOGRAPHIC).replace("'", "''") or "text"
            whole = token is tokens[0] and at == 0
            remedy = "Put the condition in straight quotes" if whole else f"Write straight quotes, as in '{inner}'"
            raise source.error(f"{written[at]} is a typographic quote", token.start + at, remedy=remedy)


def _refuse_hidden_text(source: Source, tokens: Sequence[Token]) -> None:
    """What the tokenizer skipped and is not white space is a comment."""
    last = 0
    for token in tokens:
        _refuse_gap(source, last, token.start)
        last = token.end + 1
    _refuse_gap(source, last, len(source.text))


def _refuse_gap(source: Source, start: int, stop: int) -> None:
    gap = source.text[start:stop]
    if gap.strip():
        position = start + len(gap) - len(gap.lstrip())
        raise source.error(
            "a comment is not allowed in a predicate", position, len(gap.strip()), "Explain the rule in its description"
        )


def _refusals(
    source: Source,
    tokens: Sequence[Token],
    at: int,
    columns: Container[str],
    *,
    strict: bool,
    tables: Collection[str],
) -> Iterator[PredicateError]:
    """Check one word."""
    token = tokens[at]
    position, length = token.start, token.end + 1 - token.start
    is_word = token.token_type not in _SYMBOLS | _QUOTED
    if is_word and token.token_type not in _KEYWORDS and _followed_by(tokens, at, TokenType.L_PAREN):
        name = token.text.upper()
        if name not in FUNCTIONS:
            what = f"aggregate function {name}" if name in _AGGREGATES else f"function {name}"
            remedy = _OTHER_NAMES.get(name, f"Allowed functions are {', '.join(sorted(FUNCTIONS))}")
            if name in _AGGREGATES:
                remedy = "Declare a measure, as in total: {sum: amount, over: 1h}, and compare with its name"
            yield source.error(f"{what} is not allowed in a predicate", position, length, remedy)
        return
    if token.token_type is TokenType.IDENTIFIER:
        yield source.error(
            f"the quoted identifier {token.text!r} is not allowed in a predicate",
            position,
            length,
            "Write a field without quotes, and a string in single quotes",
        )
        return
    if (token.text in columns and _is_column(tokens, at)) or _names_zone(tokens, at):
        return
    if _asks_table(tokens, at, columns) or _asks_table(tokens, at - 1, columns):
        return
    written = source.text[position : position + length]
    if token.token_type not in _ALLOWED or (strict and not _is_documented(tokens, at, written)):
        shown = token.text.upper() if token.text and token.token_type is not TokenType.STRING else written
        remedy = _REMEDIES.get(written.upper(), _DEFAULT_REMEDY)
        if at and tokens[at - 1].token_type is TokenType.ALIAS:
            remedy = "The one cast is CAST(value AS DOUBLE); integers and decimals are compared exactly without one"
        yield source.error(f"{shown} is not allowed in a predicate", position, length, remedy)
    elif token.token_type is TokenType.IN and not _followed_by(tokens, at, TokenType.L_PAREN):
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        value = after is not None and after.token_type in (TokenType.STRING, TokenType.NUMBER)
        listed = source.text[after.start : after.end + 1] if after is not None and value else "'a', 'b'"
        what, remedy = "IN takes a list in parentheses", f"Write {written} ({listed})"
        if after is not None and after.text in tables:
            what = f"IN {after.text} asks about a field of the event that has the type of the table's key"
            remedy = f"Write such a field's name alone before it, as in ip {written} {after.text}"
        elif after is not None and not value and tables:
            what, remedy = f"{what}, or a table", did_you_mean(after.text, tables, f"{remedy}; tables are")
        yield source.error(what, position, length, remedy)


def _asks_table(tokens: Sequence[Token], at: int, columns: Container[str]) -> bool:
    """Whether a word is the IN of `field IN table`, or of `field NOT IN table`."""
    if not 0 < at < len(tokens) - 1 or tokens[at].token_type is not TokenType.IN:
        return False
    before = at - 2 if tokens[at - 1].token_type is TokenType.NOT else at - 1
    return before >= 0 and membership(tokens[before].text, tokens[at + 1].text) in columns


def _is_documented(tokens: Sequence[Token], at: int, written: str) -> bool:
    """Whether docs/reference/rules.md has the word, in this spelling and place."""
    token, before = tokens[at], tokens[at - 1] if at else None
    extracting = at > 1 and tokens[at - 2].text.upper() == "EXTRACT" and tokens[at - 1].token_type is TokenType.L_PAREN
    if extracting:
        followed = _followed_by(tokens, at, TokenType.FROM)
        return token.token_type is not TokenType.STRING and written.upper() in EXTRACTED and followed
    if before is not None and before.token_type is TokenType.ALIAS:
        return written.upper() == "DOUBLE"
    match token.token_type:
        case TokenType.NUMBER:
            return _NUMBER.fullmatch(written) is not None
        case TokenType.STRING | TokenType.VAR:
            return True
        case TokenType.PLUS:
            return before is not None and _ends_operand(before)
        case TokenType.COMMA:
            return not _followed_by(tokens, at, TokenType.R_PAREN)
        case _:
            return written.upper() in _SPELLINGS


def _ends_operand(token: Token) -> bool:
    """Whether a value may end with the word, so that a + after it adds."""
    operands = (TokenType.VAR, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN, TokenType.END)
    return token.token_type in operands or token.token_type not in _ALLOWED


def _names_zone(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word is one of `AT TIME ZONE` before what may name a zone."""
    starts = (start for start in range(at - 2, at + 1) if start > 0 and start + len(_ZONE) < len(tokens))
    return any(
        _may_be_zone(tokens[start + len(_ZONE)])
        and all(tokens[start + n].text.upper() == word for n, word in enumerate(_ZONE))
        for start in starts
    )


def _may_be_zone(token: Token) -> bool:
    begins = (TokenType.STRING, TokenType.L_PAREN, TokenType.CASE)
    return token.token_type in begins or is_usable_name(token.text)


def _is_column(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word with the name of a field is that field, not a function, a literal's type or a cast's target."""
    if _names_zone(tokens, at):
        return False
    if tokens[at].token_type in _QUOTED or not all(map(is_usable_name, tokens[at].text.split("."))):
        return False
    after_cast = at > 0 and tokens[at - 1].token_type in (TokenType.ALIAS, TokenType.DCOLON)
    return not (after_cast or _followed_by(tokens, at, TokenType.L_PAREN) or _followed_by(tokens, at, TokenType.STRING))


def _refuse_added_parentheses(source: Source, tokens: Sequence[Token], tree: exp.Expr) -> None:
    """Refuse `a = b IS NULL`: sqlglot chooses the precedence and adds parentheses; dialects differ."""
    written = sum(
        token.token_type is TokenType.L_PAREN and (at == 0 or not _opens_arguments(tokens[at - 1]))
        for at, token in enumerate(tokens)
    )
    found = list(tree.find_all(exp.Paren))
    if len(found) > written:
        raise source.error_at(
            next((paren for paren in found if isinstance(paren.this, exp.Predicate)), tree),
            "a condition is an operand here",
            "Put it in parentheses, or join conditions with AND",
        )


def _opens_arguments(token: Token) -> bool:
    """Whether a parenthesis after the word contains arguments or a list, rather than grouping."""
    return token.token_type is TokenType.IN or token.text.upper() in FUNCTIONS


def _followed_by(tokens: Sequence[Token], at: int, kind: TokenType) -> bool:
    return at + 1 < len(tokens) and tokens[at + 1].token_type is kind


def _check_depth(source: Source, tokens: Sequence[Token]) -> None:
    """Check nesting: every parenthesis and CASE is a level, and every prefix operator until its operand ends."""
    levels: list[int] = []
    depth = prefixes = 0
    for token in tokens:
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            levels.append(1 + prefixes)
            depth, prefixes = depth + 1 + prefixes, 0
        elif token.token_type in (TokenType.R_PAREN, TokenType.END):
            depth -= levels.pop() if levels else 0
            prefixes = 0
        elif token.token_type in _PREFIXES:
            prefixes += 1
        else:
            prefixes = 0
        if depth + prefixes > MAX_DEPTH:
            raise too_deep(source, token.start)


def too_deep(source: Source, position: int = 0) -> PredicateError:
    """The refusal of text nested beyond MAX_DEPTH."""
    return source.error(
        f"is nested deeper than {MAX_DEPTH} levels",
        position,
        remedy="Remove parentheses that are not needed, or split the rule in two",
    )


def _last_quote(text: str) -> tuple[int, int]:
    position = max(text.rfind("'"), text.rfind('"'), text.rfind("/*"), 0)
    return position, 1


def _syntax_error(source: Source, failure: ParseError) -> PredicateError:
    detail = failure.errors[0] if failure.errors else {}
    highlight = str(detail.get("highlight") or "")
    line, column = detail.get("line"), detail.get("col")
    position = len(source.text)
    if isinstance(line, int) and isinstance(column, int):
        start_of_line = sum(len(part) + 1 for part in source.text.split("\n")[: line - 1])
        position = start_of_line + column - len(highlight)
    position = min(max(position, 0), max(len(source.text) - 1, 0))
    return source.error("cannot be read from here on", position, len(highlight) or 1, _DEFAULT_REMEDY)
