"""Find the mistake in a text that the parser could not read.

How it works: sqlglot stops at the first word that does not fit, which is seldom the mistake. Here the words are
examined pair by pair, for common mistakes: parentheses, a condition that ends too early, two operators or two values
side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sqlglot import Token, TokenType

from nightjar.rules.errors import PredicateError
from nightjar.rules.names import did_you_mean
from nightjar.rules.predicates.source import Source

_BINARY = frozenset(
    {
        TokenType.AND,
        TokenType.OR,
        TokenType.EQ,
        TokenType.NEQ,
        TokenType.LT,
        TokenType.LTE,
        TokenType.GT,
        TokenType.GTE,
        TokenType.PLUS,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.MOD,
        TokenType.BETWEEN,
        TokenType.LIKE,
        TokenType.IN,
        TokenType.IS,
    }
)
_OPERATORS = _BINARY | {TokenType.DASH, TokenType.NOT}
_NEGATED = (TokenType.IN, TokenType.BETWEEN, TokenType.LIKE)
_VALUES = frozenset(
    {
        TokenType.VAR,
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.TRUE,
        TokenType.FALSE,
        TokenType.NULL,
    }
)
_ENDS = _VALUES | {TokenType.R_PAREN, TokenType.END}
_BEGINS = _VALUES | {TokenType.CASE}

_AFTER = "Write what belongs after it, or leave it out"
_BETWEEN_THEM = "Write a field, a measure or a value between them"


def mistakes(source: Source, tokens: Sequence[Token]) -> list[PredicateError]:
    """All mistakes in the sequence of words; empty if none of the known ones is found."""
    return [*_unbalanced(source, tokens), *_neighbours(source, tokens), *_half_ranges(source, tokens)]


def _written(source: Source, token: Token) -> str:
    return source.text[token.start : token.end + 1]


def _error(source: Source, token: Token, what: str, remedy: str) -> PredicateError:
    return source.error(what, token.start, token.end + 1 - token.start, remedy)


def _unbalanced(source: Source, tokens: Sequence[Token]) -> Iterator[PredicateError]:
    """Parentheses, and CASE with its END."""
    for opening, closing, missing, added in (
        (TokenType.L_PAREN, TokenType.R_PAREN, "this parenthesis is not closed", "Add ) where it ends"),
        (TokenType.CASE, TokenType.END, "this CASE has no END", "Add END where it ends"),
    ):
        opened: list[Token] = []
        for token in tokens:
            if token.token_type is opening:
                opened.append(token)
            elif token.token_type is closing and not opened:
                word = _written(source, token)
                yield _error(
                    source, token, f"nothing is open that this {word} closes", "Leave it out, or open it before"
                )
            elif token.token_type is closing:
                opened.pop()
        for token in opened:
            yield _error(source, token, missing, added)


def _neighbours(source: Source, tokens: Sequence[Token]) -> Iterator[PredicateError]:
    first, last = tokens[0], tokens[-1]
    if first.token_type in _BINARY:
        yield _error(source, first, f"nothing stands before {_written(source, first)}", "Write a condition before it")
    if last.token_type in _OPERATORS:
        yield _error(source, last, f"nothing stands after {_written(source, last)}", _AFTER)
    misplaced: Token | None = None
    for one, other in pairwise(tokens):
        before, after = _written(source, one), _written(source, other)
        if one.token_type in _OPERATORS and other.token_type is TokenType.R_PAREN:
            yield _error(source, one, f"nothing stands after {before}", _AFTER)
        elif one.token_type is TokenType.L_PAREN and other.token_type in _BINARY - {TokenType.STAR}:
            yield _error(source, other, f"nothing stands before {after}", "Write what belongs before it")
        elif one.token_type in _OPERATORS and other.token_type in _BINARY:
            if one.token_type is not TokenType.NOT or other.token_type not in _NEGATED:
                reversed_ = f"Write {after}{before}" if before == "=" and after in ("<", ">") else _BETWEEN_THEM
                yield _error(source, other, f"{after} stands right after {before}", reversed_)
        elif one.token_type in _ENDS and other.token_type in _BEGINS and one is not misplaced:
            misplaced = other
            remedy = "Join conditions with AND or OR, and put text in single quotes"
            meant = did_you_mean(after, ("AND", "OR", "IN", "LIKE", "BETWEEN", "IS", "NOT"), "")
            near = meant.split("?")[0] + "? " if meant.startswith("Did") else ""
            yield _error(source, other, f"{after} stands right after {before}", f"{near}{remedy}")


def _half_ranges(source: Source, tokens: Sequence[Token]) -> Iterator[PredicateError]:
    """BETWEEN without its AND."""
    waiting: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.BETWEEN:
            waiting.append(token)
        elif token.token_type is TokenType.AND and waiting:
            waiting.pop()
    for token in waiting:
        yield _error(source, token, "BETWEEN needs two ends", "Write it as in amount BETWEEN 80 AND 100")
