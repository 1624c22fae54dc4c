"""From sqlglot's tree to the typed tree: the allowed constructs, and the types that each takes.

Conversions become separate nodes here, so later steps have no choices left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial

from sqlglot import exp

from nightjar.rules.errors import PredicateError
from nightjar.rules.names import did_you_mean, unknown_name
from nightjar.rules.predicates.calls import call
from nightjar.rules.predicates.coercion import (
    Unfit,
    aligned,
    as_held,
    bounded,
    require_alike,
    same_scale,
    to_double,
    widest,
)
from nightjar.rules.predicates.nodes import (
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    TIMESTAMP,
    Node,
    Op,
    Type,
    exact,
    literal,
    number_literal,
    type_of_field,
)
from nightjar.rules.predicates.parsing import MAX_DEPTH, too_deep
from nightjar.rules.predicates.source import Source
from nightjar.rules.predicates.zones import is_zone
from nightjar.rules.tables import ValueType, asked_of, membership
from nightjar.rules.timestamps import MAX_TIMESTAMP, parse_timestamp
from nightjar.rules.types import FieldType

# Polars operations. Each costs a batch some microseconds, whatever the number of rows.
MAX_WEIGHT = 600
# `%` and `_` in a pattern. Matching takes time proportional to their number times the length of the string.
MAX_WILDCARDS = 64

_COMPARISONS: dict[type[exp.Expr], Op] = {
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
}
_ARITHMETIC: dict[type[exp.Expr], Op] = {
    exp.Add: Op.ADD,
    exp.Sub: Op.SUB,
    exp.Mul: Op.MUL,
    exp.Div: Op.DIV,
    exp.Mod: Op.MOD,
}
_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Week: "WEEK",
    exp.Day: "DAY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
    exp.Second: "SECOND",
    exp.DayOfWeek: "DAYOFWEEK",
    exp.DayOfYear: "DAYOFYEAR",
}
# The parts that EXTRACT takes, each with its largest value.
PARTS = {
    "YEAR": 9999,
    "QUARTER": 4,
    "MONTH": 12,
    "WEEK": 53,
    "DAY": 31,
    "HOUR": 23,
    "MINUTE": 59,
    "SECOND": 59,
    "DAYOFWEEK": 7,
    "ISODOW": 7,
    "DAYOFYEAR": 366,
    "EPOCH": MAX_TIMESTAMP,
}
# Conditions. As operands of a comparison they need parentheses, since dialects of SQL bind them differently.
_PREDICATES = (*_COMPARISONS, exp.Between, exp.In, exp.Like, exp.Is, exp.Not, exp.And, exp.Or)

# The parts of sqlglot's nodes that are read. Any other part would be ignored silently, and so is refused.
_KNOWN_PARTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this"}),
    exp.In: frozenset({"this", "expressions", "field"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.If: frozenset({"this", "true"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.Is: frozenset({"this", "expression", "negate"}),
    exp.AtTimeZone: frozenset({"this", "zone"}),
    exp.Anonymous: frozenset({"this", "expressions"}),
}
_NEEDED = "Give it a value of that type"
_COMMON_PARTS = frozenset({"this", "expression"})


def analyse(
    tree: exp.Expr,
    source: Source,
    columns: Mapping[str, FieldType],
    unknown: Container[str] = (),
    *,
    condition: bool = True,
) -> Node | None:
    """The typed tree of a whole predicate, which is boolean; PredicateError with every invalid part.

    unknown: names of columns of unknown type; returns None if one is used and the rest is valid. condition: without it,
    an expression of any type.
    """
    analysis = _Analysis(source, columns, unknown)
    root: Node | None = None
    try:
        root = analysis.node(tree, 0)
        root = analysis.boolean(root, tree) if condition else root
    except PredicateError as error:
        analysis.errors.append(error)
    except _UntypedError:
        pass
    if analysis.errors:
        raise PredicateError.of(analysis.errors)
    return root


class _UntypedError(Exception):
    """A part has no type, for a reason that has been reported."""


class _Analysis:
    def __init__(self, source: Source, columns: Mapping[str, FieldType], unknown: Container[str]) -> None:
        self.source = source
        self.columns = columns
        self.unknown = unknown
        self.errors: list[PredicateError] = []
        self.handlers: dict[type[exp.Expr], Callable[..., Node]] = {
            exp.Paren: self.paren,
            exp.Column: self.column,
            exp.Literal: self.literal,
            exp.Boolean: lambda tree, _: literal(BOOLEAN, bool(tree.this)),
            exp.Null: lambda _tree, _: literal(NULL, None),
            exp.And: self.connective,
            exp.Or: self.connective,
            exp.Not: self.negation,
            exp.In: self.membership,
            exp.Between: self.between,
            exp.Like: self.like,
            exp.Is: self.is_null,
            exp.Neg: self.negative,
            exp.Case: self.case,
            exp.Coalesce: self.coalesce,
            exp.Abs: self.absolute,
            exp.Lower: self.lower,
            exp.Upper: self.upper,
            exp.Length: self.length,
            exp.Extract: self.extract,
            exp.Cast: self.cast,
            exp.AtTimeZone: self.local,
            exp.Anonymous: lambda tree, depth: call(self, tree, depth),
            **dict.fromkeys(_COMPARISONS, self.comparison),
            **dict.fromkeys(_ARITHMETIC, self.arithmetic),
            **dict.fromkeys(_PARTS, self.part),
        }

    def node(self, tree: exp.Expr, depth: int) -> Node:
        """The typed node of a construct, `depth` operations below the root."""
        handler = self.handlers.get(type(tree))
        if handler is None:
            raise self.refused(tree)
        known = _KNOWN_PARTS.get(type(tree), _COMMON_PARTS)
        for part, value in tree.args.items():
            if part not in known and value not in (None, False, []):
                raise self.error(tree, f"{part.upper()} is not allowed in {_name(tree)}", "Leave it out")
        if depth > MAX_DEPTH:
            raise too_deep(self.source, self.source.span(tree)[0])
        try:
            built = handler(tree, depth)
        except Unfit as refusal:
            raise self.error(tree, refusal.what, refusal.remedy) from None
        if built.weight > MAX_WEIGHT:
            raise self.error(
                tree,
                f"takes {built.weight} operations per event, more than {MAX_WEIGHT}",
                "Write IN for many alternatives, name a repeated value once, or split the rule in two",
            )
        return built

    def all_of(self, parts: Sequence[Callable[[], Node]]) -> list[Node]:
        """The nodes of independent parts: the problems of one do not hide those of another."""
        nodes: list[Node] = []
        for part in parts:
            try:
                nodes.append(part())
            except PredicateError as error:
                self.errors.append(error)
            except _UntypedError:
                pass
        if len(nodes) < len(parts):
            raise _UntypedError
        return nodes

    def error(self, tree: exp.Expr, what: str, remedy: str) -> PredicateError:
        return self.source.error_at(tree, what, remedy)

    def refused(self, tree: exp.Expr) -> PredicateError:
        if isinstance(tree, exp.Alias | exp.Concat):
            return self.error(
                tree, "two expressions are side by side", "Join conditions with AND or OR, and close quotes"
            )
        if isinstance(tree, exp.Star):
            return self.error(tree, "* stands for no value", "Name the field")
        return self.error(
            tree,
            f"{_name(tree)} is not allowed in a predicate",
            "Use the functions and operators of SQL's simple conditions",
        )

    # Values

    def paren(self, tree: exp.Paren, depth: int) -> Node:
        return self.node(tree.this, depth)

    def column(self, tree: exp.Column, _depth: int) -> Node:
        name = tree.name
        declared = self.columns.get(name)
        if declared is None and name in self.unknown:
            raise _UntypedError
        if declared is None:
            raise self.error(
                tree,
                unknown_name(name),
                did_you_mean(name, [c for c in self.columns if asked_of(c) is None], "Known are"),
            )
        column = declared.column if isinstance(declared, ValueType) else name
        return Node(Op.COLUMN, type_of_field(declared), value=column)

    def literal(self, tree: exp.Literal, _depth: int) -> Node:
        if tree.is_string:
            return literal(STRING, tree.this)
        try:
            built = number_literal(Decimal(tree.this))
        except InvalidOperation:
            built = None
        if built is None:
            raise self.error(tree, f"{tree.this[:60]} is not a number nightjar can hold", "Doubles reach about 1.8e308")
        return built

    def cast(self, tree: exp.Cast, depth: int) -> Node:
        to = tree.to.this
        if to == exp.DType.TIMESTAMP and isinstance(tree.this, exp.Literal) and tree.this.is_string:
            instant = parse_timestamp(tree.this.this, zone_required=False)
            if instant is None:
                raise self.error(
                    tree,
                    f"{tree.this.this!r} is not a point in time",
                    "Write TIMESTAMP '2018-04-01 12:00:00', with a zone (+02:00) where it is not UTC",
                )
            return literal(TIMESTAMP, instant)
        if to != exp.DType.DOUBLE:
            raise self.error(
                tree, f"CAST to {tree.to.sql()} is not allowed in a predicate", "The one cast is CAST(value AS DOUBLE)"
            )
        return to_double(self.number(tree.this, depth))

    # Conditions

    def connective(self, tree: exp.Connector, depth: int) -> Node:
        """a AND b AND c …, as one node: chains of conditions may be long, but not deep."""
        parts: list[exp.Expr] = [tree]
        while type(parts[0]) is type(tree):
            parts[0:1] = [parts[0].this, parts[0].expression]
        op = Op.AND if isinstance(tree, exp.And) else Op.OR
        args = self.all_of([partial(self.condition, part, depth) for part in parts])
        return Node(op, BOOLEAN, tuple(args))

    def condition(self, tree: exp.Expr, depth: int) -> Node:
        return self.boolean(self.node(tree, depth + 1), tree)

    def negation(self, tree: exp.Not, depth: int) -> Node:
        return Node(Op.NOT, BOOLEAN, (self.boolean(self.node(tree.this, depth + 1), tree.this),))

    def comparison(self, tree: exp.Binary, depth: int) -> Node:
        left, right = self.all_of([partial(self.operand, part, depth) for part in (tree.this, tree.expression)])
        return self.compare(_COMPARISONS[type(tree)], left, right, tree)

    def compare(self, op: Op, left: Node, right: Node, tree: exp.Expr) -> Node:
        if NULL in (left.type, right.type):
            raise self.error(tree, f"{op.value} with NULL is never true", "Write IS NULL or IS NOT NULL")
        left, right = aligned((left, right), "compared")
        if left.type == BOOLEAN and op not in (Op.EQ, Op.NE):
            raise self.error(tree, f"booleans have no order for {op.value}", "Compare them with = or <>")
        return Node(op, BOOLEAN, (left, right))

    def between(self, tree: exp.Between, depth: int) -> Node:
        parts = (tree.this, tree.args["low"], tree.args["high"])
        value, low, high = self.all_of([partial(self.operand, part, depth) for part in parts])
        ends = self.all_of(
            [
                lambda: self.compare(Op.GE, value, low, tree),
                lambda: self.compare(Op.LE, value, high, tree),
            ]
        )
        return Node(Op.AND, BOOLEAN, tuple(ends))

    def membership(self, tree: exp.In, depth: int) -> Node:
        if tree.args.get("field") is not None:
            return self.in_table(tree)
        value = self.operand(tree.this, depth)
        if not tree.expressions:
            raise self.error(tree, "IN needs a list of values", "Write IN (1, 2, 3)")
        elements = self.all_of([partial(self.element, item, value, depth) for item in tree.expressions])
        values = [held for element in elements if (held := as_held(element, value.type)) is not None]
        return Node(Op.IN, BOOLEAN, (value,), tuple(dict.fromkeys(values)))

    def in_table(self, tree: exp.In) -> Node:
        """Whether a field's value is in a table: a column of its own."""
        name = membership(tree.this.name, tree.args["field"].name)
        if not isinstance(tree.this, exp.Column) or name not in self.columns:
            remedy = "Write the field's name alone before it, as in ip IN blocked_ips or ip NOT IN blocked_ips"
            raise self.error(tree, "a table is asked about a field of the event", remedy)
        return Node(Op.COLUMN, BOOLEAN, value=name)

    def element(self, item: exp.Expr, value: Node, depth: int) -> Node:
        element = self.node(item, depth + 1)
        if not element.is_literal:
            raise self.error(item, "IN takes values only", "Compare with a field by =, joined with OR")
        if element.type == NULL:
            raise self.error(item, "NULL in IN never matches, and spoils NOT IN", "Leave it out, or add OR … IS NULL")
        try:
            require_alike(value.type, element.type, "compared")
        except Unfit as refusal:
            raise self.error(item, refusal.what, refusal.remedy) from None
        return element

    def like(self, tree: exp.Like, depth: int) -> Node:
        value = self.string(tree.this, depth)
        pattern = tree.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self.error(tree, "LIKE takes a pattern in quotes", "Write LIKE 'abc%'")
        wildcards = sum(pattern.this.count(wildcard) for wildcard in "%_")
        if wildcards > MAX_WILDCARDS:
            raise self.error(
                tree, f"LIKE has {wildcards} wildcards, more than {MAX_WILDCARDS}", "Compare with a shorter pattern"
            )
        return _negated_if(tree, Node(Op.LIKE, BOOLEAN, (value,), pattern.this))

    def is_null(self, tree: exp.Is, depth: int) -> Node:
        if not isinstance(tree.expression, exp.Null):
            raise self.error(
                tree, "IS is followed by NULL or NOT NULL only", "Write a condition by itself, or NOT before it"
            )
        return _negated_if(tree, Node(Op.IS_NULL, BOOLEAN, (self.operand(tree.this, depth),)))

    # Arithmetic

    def arithmetic(self, tree: exp.Binary, depth: int) -> Node:
        op = _ARITHMETIC[type(tree)]
        parts = (tree.this, tree.expression)
        nodes = self.all_of([partial(self.operand, part, depth) for part in parts])
        if op is Op.SUB and [node.type for node in nodes] == [TIMESTAMP, TIMESTAMP]:
            later, earlier = (part.sql() for part in parts)
            remedy = f"Write SECONDS_BETWEEN({earlier}, {later})"
            raise self.error(tree, "one timestamp cannot be subtracted from another", remedy)
        left, right = self.all_of(
            [partial(self.as_number, node, part) for node, part in zip(nodes, parts, strict=True)]
        )
        if op is Op.DIV:
            return Node(op, DOUBLE, (to_double(left), to_double(right)))
        if DOUBLE in (left.type, right.type):
            if op is Op.MOD:
                raise self.error(tree, "% of doubles is not exact", "Use it on int64 and decimal values")
            return Node(op, DOUBLE, (to_double(left), to_double(right)))
        if op is Op.MUL:
            limit, scale = left.type.limit * right.type.limit, left.type.scale + right.type.scale
        else:
            left, right = same_scale((left, right))
            limit, scale = left.type.limit + right.type.limit, left.type.scale
            if op is Op.MOD:
                limit = min(left.type.limit, right.type.limit)
        return Node(op, bounded(limit, scale), (left, right))

    def negative(self, tree: exp.Neg, depth: int) -> Node:
        value = self.number(tree.this, depth)
        if value.is_literal:
            return literal(value.type, -value.value)
        return Node(Op.NEG, _like_magnitude(value), (value,))

    def absolute(self, tree: exp.Abs, depth: int) -> Node:
        value = self.number(tree.this, depth)
        return Node(Op.ABS, _like_magnitude(value), (value,))

    # Choices

    def case(self, tree: exp.Case, depth: int) -> Node:
        compared = None if tree.this is None else self.operand(tree.this, depth)
        default = tree.args.get("default")

        def condition(branch: exp.Expr, below: int) -> Node:
            if compared is None:
                return self.condition(branch.this, below)
            return self.compare(Op.EQ, compared, self.operand(branch.this, below), branch)

        parts: list[Callable[[], Node]] = []
        for at, branch in enumerate(tree.args["ifs"]):
            # Every WHEN is evaluated within the ELSE of the one before it.
            below = depth + at
            parts += [partial(condition, branch, below), partial(self.node, branch.args["true"], below + 1)]
        parts.append(partial(literal, NULL, None) if default is None else partial(self.node, default, depth + 1))
        *found, last = self.all_of(parts)
        *values, otherwise = aligned([*found[1::2], last], "results of one CASE")
        pairs = [part for pair in zip(found[::2], values, strict=True) for part in pair]
        return Node(Op.CASE, widest([*values, otherwise]), (*pairs, otherwise))

    def coalesce(self, tree: exp.Coalesce, depth: int) -> Node:
        values = self.all_of([partial(self.node, part, depth + 1) for part in (tree.this, *tree.expressions)])
        values = [value for value in values if value.type != NULL] or values
        values = list(aligned(values, "alternatives of one COALESCE"))
        return Node(Op.COALESCE, widest(values), tuple(values))

    # Functions

    def lower(self, tree: exp.Lower, depth: int) -> Node:
        return Node(Op.LOWER, STRING, (self.string(tree.this, depth),))

    def upper(self, tree: exp.Upper, depth: int) -> Node:
        return Node(Op.UPPER, STRING, (self.string(tree.this, depth),))

    def length(self, tree: exp.Length, depth: int) -> Node:
        return Node(Op.LENGTH, exact(2**31), (self.string(tree.this, depth),))

    def extract(self, tree: exp.Extract, depth: int) -> Node:
        part = tree.this.name.upper()
        if part not in PARTS:
            raise self.error(tree, f"{part} is not a part of a timestamp", did_you_mean(part, PARTS, "Parts are"))
        return self.part_of(part, tree.expression, depth)

    def part(self, tree: exp.Func, depth: int) -> Node:
        return self.part_of(_PARTS[type(tree)], tree.this, depth)

    def part_of(self, part: str, tree: exp.Expr, depth: int) -> Node:
        if isinstance(tree, exp.AtTimeZone) and part != "EPOCH":
            value = self.node(tree.this, depth + 1)
            if value.type == TIMESTAMP:
                value = self.in_zone(value, tree.args["zone"], depth)
        else:
            value = self.node(tree, depth + 1)
        if value.type != TIMESTAMP:
            raise self.error(tree, f"{part} needs a timestamp and this is {value.type.family.value}", _NEEDED)
        # A timestamp is stored as seconds since 1970 with six decimal digits.
        kind = exact(PARTS[part], 6 if part == "EPOCH" else 0)
        return Node(Op.PART, kind, (value,), part)

    def local(self, tree: exp.AtTimeZone, _depth: int) -> Node:
        """Elsewhere than in a part, where another time would look like a point in time."""
        remedy = "Write it within a part, as in HOUR(event_time AT TIME ZONE 'Europe/Berlin')"
        raise self.error(tree, "AT TIME ZONE is for the parts of a time", remedy)

    def in_zone(self, value: Node, name: exp.Expr, depth: int) -> Node:
        """A time in the zone that a literal names, or a string at each event."""
        remedy = "Write one of the IANA time zone database, as in 'Europe/Berlin' or 'UTC', or a field with such names"
        if isinstance(name, exp.Literal):
            if not (name.is_string and is_zone(name.this)):
                raise self.error(name, f"{name.sql()} is not a time zone", remedy)
            return Node(Op.LOCAL, TIMESTAMP, (value,), str(name.this))
        zone = self.operand(name, depth)
        if zone.type != STRING:
            raise self.error(name, f"the name of a time zone is needed and this is {zone.type.family.value}", remedy)
        return Node(Op.LOCAL, TIMESTAMP, (value, zone))

    # Types

    def operand(self, tree: exp.Expr, depth: int) -> Node:
        if isinstance(tree, _PREDICATES):
            raise self.error(
                tree, "a condition is an operand here", "Put it in parentheses, or join conditions with AND"
            )
        return self.node(tree, depth + 1)

    def boolean(self, node: Node, tree: exp.Expr) -> Node:
        if node.type != BOOLEAN:
            raise self.error(
                tree, f"a condition is needed and this is {node.type.family.value}", "Compare it, as in amount > 100"
            )
        return node

    def number(self, tree: exp.Expr, depth: int) -> Node:
        return self.as_number(self.operand(tree, depth), tree)

    def as_number(self, node: Node, tree: exp.Expr) -> Node:
        if not node.type.is_number:
            remedy = f"Write {_epoch(tree)}, its seconds since 1970" if node.type == TIMESTAMP else _NEEDED
            raise self.error(tree, f"a number is needed and this is {node.type.family.value}", remedy)
        return node

    def string(self, tree: exp.Expr, depth: int) -> Node:
        node = self.operand(tree, depth)
        if node.type != STRING:
            raise self.error(tree, f"a string is needed and this is {node.type.family.value}", _NEEDED)
        return node


def _epoch(tree: exp.Expr) -> str:
    """How to write the seconds since 1970 of a timestamp."""
    return f"EXTRACT(EPOCH FROM {tree.sql()})"


def _like_magnitude(value: Node) -> Type:
    return DOUBLE if value.type == DOUBLE else bounded(value.type.limit, value.type.scale)


def _negated_if(tree: exp.Expr, node: Node) -> Node:
    """Wrap in NOT: sqlglot has some negations as part of the construct (`NOT LIKE`), others as a NOT around it."""
    return Node(Op.NOT, BOOLEAN, (node,)) if tree.args.get("negate") else node


def _name(tree: exp.Expr) -> str:
    return tree.sql_name() if isinstance(tree, exp.Func) else tree.key.upper()
