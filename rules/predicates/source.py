"""From a predicate's text to sqlglot's tree, with bounds before anything recursive runs.

The words are looked at first: length, comments, nesting, and whether each word and function belongs to the language.
So what is not allowed is refused by its name and place, and the parser only ever sees small, tame text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from rules.errors import PredicateError

# Characters; a page of SQL. Longer conditions are lists of values, which belong into a field of the event.
MAX_TEXT = 4096
# Levels of parentheses, CASE, NOT and operators within each other; the parser takes some 25 stack frames a level.
MAX_DEPTH = 32

FUNCTIONS = frozenset({
    "ABS", "CAST", "COALESCE", "DAY", "DAYOFWEEK", "DAYOFYEAR", "EXTRACT", "HOUR", "LENGTH", "LOWER", "MINUTE", "MONTH",
    "QUARTER", "SECOND", "UPPER", "WEEK", "YEAR",
})  # fmt: skip
_AGGREGATES = frozenset({
    "ANY_VALUE", "ARRAY_AGG", "AVG", "COUNT", "FIRST", "LAST", "MAX", "MEAN", "MEDIAN", "MIN", "STDDEV", "STDDEV_POP",
    "STDDEV_SAMP", "SUM", "VARIANCE",
})  # fmt: skip

_KEYWORDS = frozenset({
    TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.BETWEEN, TokenType.LIKE, TokenType.IS,
    TokenType.NULL, TokenType.TRUE, TokenType.FALSE, TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE,
    TokenType.END, TokenType.FROM, TokenType.ALIAS,
})  # fmt: skip
_SYMBOLS = frozenset({
    TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE,
    TokenType.GT, TokenType.GTE, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD,
    TokenType.DCOLON,
})  # fmt: skip
_OTHERS = frozenset({
    TokenType.VAR, TokenType.NUMBER, TokenType.STRING, TokenType.TIMESTAMP, TokenType.DOUBLE,
})  # fmt: skip
_ALLOWED = _KEYWORDS | _SYMBOLS | _OTHERS

_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})
_REMEDIES = {
    ";": "A predicate is one expression, without a semicolon",
    ".": "Fields stand alone, without a table before them",
    "->": "There are no lambdas and no JSON paths; declare the value as a field of the stream",
    "ILIKE": "Write LOWER(field) LIKE 'pattern'",
    "OVER": "Declare a measure, and compare with its name",
    "SELECT": "There are no subqueries; declare a measure, and compare with its name",
    "||": "Strings can be compared, not built",
}
_DEFAULT_REMEDY = (
    "A predicate compares fields, measures and values with AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL and CASE"
)

_DIALECT = Dialect.get_or_raise(None)


@dataclass(frozen=True)
class Source:
    """The text of a predicate, the place in the rule where it stands, and how to point into it."""

    text: str
    where: str

    def error(self, what: str, position: int = 0, length: int = 1, remedy: str = "") -> PredicateError:
        """An error at a place of the text."""
        return PredicateError(what, text=self.text, position=position, length=length, where=self.where, remedy=remedy)

    def error_at(self, node: exp.Expr, what: str, remedy: str = "") -> PredicateError:
        """An error at the part of the text that became `node`."""
        return self.error(what, *self.span(node), remedy)

    def span(self, node: exp.Expr) -> tuple[int, int]:
        """Position and length of the words that became `node`; of the whole text where sqlglot kept no marks."""
        marks = [part.meta for part in node.walk() if "start" in part.meta]
        if not marks:
            return 0, len(self.text)
        start = min(mark["start"] for mark in marks)
        return start, max(mark["end"] for mark in marks) + 1 - start


def parse(source: Source, columns: Collection[str]) -> exp.Expr:
    """The tree of a text within the bounds and made of allowed words only; PredicateError otherwise."""
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
    _refuse_hidden_text(source, tokens)
    for at, token in enumerate(tokens):
        _check(source, tokens, at, columns)
        if token.text in columns and _is_column(tokens, at):
            # Fields may have names that are words of SQL but not of this language: timestamp, comment, order.
            token.token_type = TokenType.VAR
    _check_depth(source, tokens)
    try:
        trees = _DIALECT.parser().parse(tokens, source.text)
    except ParseError as failure:
        raise _syntax_error(source, failure) from None
    except RecursionError:
        raise source.error("is nested too deep", remedy="Split the rule in two") from None
    if len(trees) != 1 or trees[0] is None:
        raise source.error("is not one expression", remedy=_DEFAULT_REMEDY)
    _refuse_added_parentheses(source, tokens, trees[0])
    return trees[0]


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


def _check(source: Source, tokens: Sequence[Token], at: int, columns: Collection[str]) -> None:
    token = tokens[at]
    position, length = token.start, token.end + 1 - token.start
    is_word = token.token_type not in _SYMBOLS | {TokenType.NUMBER, TokenType.STRING, TokenType.IDENTIFIER}
    if is_word and token.token_type not in _KEYWORDS and _followed_by(tokens, at, TokenType.L_PAREN):
        name = token.text.upper()
        if name not in FUNCTIONS:
            what = f"aggregate function {name}" if name in _AGGREGATES else f"function {name}"
            remedy = f"Allowed functions are {', '.join(sorted(FUNCTIONS))}"
            if name in _AGGREGATES:
                remedy = "Declare a measure, as in total: {sum: amount, over: 1h}, and compare with its name"
            raise source.error(f"{what} is not allowed in a predicate", position, length, remedy)
        return
    if token.token_type is TokenType.IDENTIFIER:
        raise source.error(
            f"the quoted identifier {token.text!r} is not allowed in a predicate",
            position,
            length,
            "Write a field without quotes, and a string in single quotes",
        )
    if token.token_type not in _ALLOWED and not (token.text in columns and _is_column(tokens, at)):
        shown = token.text.upper() if token.text else source.text[position : position + length]
        raise source.error(
            f"{shown} is not allowed in a predicate", position, length, _REMEDIES.get(shown, _DEFAULT_REMEDY)
        )


def _is_column(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word that names a field stands for it, and is no function, no literal's type and no cast's target."""
    if tokens[at].token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER):
        return False
    after_cast = at > 0 and tokens[at - 1].token_type in (TokenType.ALIAS, TokenType.DCOLON)
    return not (after_cast or _followed_by(tokens, at, TokenType.L_PAREN) or _followed_by(tokens, at, TokenType.STRING))


def _refuse_added_parentheses(source: Source, tokens: Sequence[Token], tree: exp.Expr) -> None:
    """In `a = b IS NULL` sqlglot decides what belongs together and adds parentheses; dialects differ."""
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
    """Whether a parenthesis after the word holds arguments or a list, and does not group."""
    return token.token_type is TokenType.IN or token.text.upper() in FUNCTIONS


def _followed_by(tokens: Sequence[Token], at: int, kind: TokenType) -> bool:
    return at + 1 < len(tokens) and tokens[at + 1].token_type is kind


def _check_depth(source: Source, tokens: Sequence[Token]) -> None:
    """Every parenthesis and CASE is a level, and so is every prefix operator until the operand it waits for is over."""
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
