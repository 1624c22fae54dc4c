"""Generates rules that a careless or malicious person could publish, from a seed.

A rule starts valid; then one or more of its parts are replaced: predicates by injections, by random expressions of the
language and by damaged text, the rest by values of wrong types and extreme sizes. Then the whole text may be damaged.
Most limits are tried on both sides.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from nightjar.rules.documents import MAX_BYTES
from nightjar.rules.functions import Function
from nightjar.rules.measures import HELD, Measure
from nightjar.rules.predicates import FUNCTIONS, MAX_DEPTH, MAX_TEXT
from nightjar.rules.predicates.analysis import MAX_WILDCARDS
from nightjar.rules.streams import Stream
from nightjar.rules.types import Kind

_FILE = "'/etc/passwd'"
_INJECTIONS = (
    "1 = 1; DROP TABLE events", "amount > 1; --", "amount > 1 -- true", "amount > 1 /* x */ AND TRUE", "/* amount > 1",
    "' OR '1'='1", "amount > 1 UNION SELECT * FROM events", "(SELECT 1) = 1", "EXISTS (SELECT 1)", "SELECT TRUE",
    "amount IN (SELECT amount FROM events)", "amount > ANY (SELECT 1)", "amount > ALL(ARRAY[1])", "TABLE events",
    f"read_csv({_FILE}) IS NULL", f"READ_PARQUET({_FILE}) = 1", f"scan_parquet({_FILE}) IS NOT NULL", f"glob({_FILE})",
    f"read_text({_FILE}) LIKE '%root%'", f"read_json({_FILE})", f"pg_read_file({_FILE}) = ''", f"LOAD_FILE({_FILE})",
    f"FROM {_FILE}", f"COPY events TO {_FILE}", f"amount > 1 INTO OUTFILE {_FILE}", "ATTACH 'x' AS y",
    "PRAGMA version", "getenv('HOME') = 'x'", "SYSTEM('id')", "xp_cmdshell('id')", "SLEEP(10) = 0",
    "pg_sleep(10) IS NULL", "BENCHMARK(1, 1)", "RANDOM() > 0.5", "NOW() > event_time",
    "CURRENT_TIMESTAMP > event_time", "CURRENT_DATE = event_time", "UUID() = 'x'", "RANGE(1000000000) IS NULL",
    "REPEAT('x', 1000000000) = 'x'", "RPAD('x', 1000000000) = ''", "REGEXP_MATCHES('a', '(a+)+$')",
    "customer_id SIMILAR TO '(a+)+'", "customer_id RLIKE '(a|a)*b'", "customer_id ~ '(a+)+$'", "customer_id GLOB '*'",
    "customer_id ILIKE 'a'", "customer_id LIKE customer_id", "customer_id LIKE 'a' ESCAPE 'a'",
    "customer_id LIKE ANY ('a')", "amount::double > 1", "CAST(amount AS INT) > 1", "CAST(amount AS BLOB) = 'x'",
    "amount::text = '1'", "TRY_CAST(amount AS INT)", "COUNT(*) > 1", "SUM(amount) OVER () > 1", "MAX(amount) > 1",
    "COUNT(DISTINCT amount) FILTER (WHERE TRUE) > 1", "amount > 1 LIMIT 1", "amount > 1 ORDER BY 1",
    "amount > 1 GROUP BY 1", "x -> 1", "LAMBDA x: x > 1", "amount.x > 1", "events.amount > 1", '"amount" > 1',
    "`amount` > 1", "[amount] > 1", "$1 > 1", ":amount > 1", "? > 1", "@amount > 1", "{{ amount }} > 1",
    "{% if x %} TRUE", "$$amount$$ = 'x'", "E'\\x41' = 'A'", "X'41' = 'A'", "B'1' = 1", "N'x' = 'x'",
    "U&'\\0041' = 'A'", "0x10 > 1", "1e400 > 1", "1e308 * 10 > 1", "1e-400 < 1", "amount > 1e999999999999999999999",
    "1_000 > 1", "amount = NULL", "NULL", "NULL IS NULL", "TRUE", "FALSE", "NOT NULL", "amount", "1", "'x'", "()", "(",
    ")", "''", "'", '"', "AND", "amount >", "> 1", "amount > 1 AND", "amount >> 1", "amount => 1", "amount == 1",
    "amount <=> 1", "amount ** 2 > 1", "amount ^ 2 > 1", "amount || 'x' = 'y'", "amount & 1 = 1", "~amount = 1",
    "!TRUE", "amount !> 1", "amount / 0 > 1", "amount % 0 = 1", "amount / (amount - amount) > 1", "0 / 0 = 0",
    "1 / 0 > 1", "-amount % -1 = 0", "amount IN ()", "amount IN (1", "amount IN (NULL)", "amount IN (amount)",
    "amount BETWEEN 1", "amount BETWEEN 2 AND 1", "amount IS TRUE", "amount IS NOT 1", "CASE END",
    "CASE WHEN TRUE THEN 1 END", "CASE amount WHEN 1 THEN TRUE END", "CASE WHEN amount > 1 THEN TRUE ELSE 1 END",
    "COALESCE()", "COALESCE(NULL)", "COALESCE(NULL, amount) > 1", "ABS() > 1", "ABS(1, 2) > 1", "LENGTH(amount) > 1",
    "ABS('x') > 1", "EXTRACT(CENTURY FROM event_time) = 20", "EXTRACT(HOUR FROM amount) = 1",
    "DATE '2020-01-01' < event_time", "YEAR(amount) > 1", "TIMESTAMP 'x' < event_time",
    "TIMESTAMP '9999-12-31 23:59:59' > event_time", "TIMESTAMP '0001-01-01' < event_time", "INTERVAL '1 day' > 1",
    "event_time + INTERVAL 1 DAY > event_time", "event_time > '2020-01-01'", "event_time - event_time > 1",
    "amount > 99999999999999999999999999999999999999", "amount * 99999999999999999999 * 99999999999999999999 > 1",
    "amount = 0.00000000000000000000000000000000000001", "amount > -9223372036854775808",
    "ABS(-9223372036854775808) > 1",
)  # fmt: skip
_UNICODE = (
    "\u0430mount > 1", "amount\u00a0> 1", "amount\u200b > 1", "amount \uff1e 1", "amount > \uff11", "amount > \u00b2",
    "amount > \u0661", "\u202e1 < amount", "amount > 1\u2028AND TRUE", "amount > 1\x00", "\x00", "amount > 1\x1aTRUE",
    "customer_id = \u02bcx\u02bc", "customer_id = \u2018x\u2019", "\u0130 = 'i'", "LOWER(customer_id) = 'i\u0307'",
    "\ufb01 = 1", "amount \u2265 1", "😀 = 1", "customer_id = '😀'", "customer_id = '\x00'", "\ufeffamount > 1",
    "amount > 1 \uff1bDROP", "customer_id LIKE '\u0301%'", "customer_id = '\ufffd'", "amount > 1\x0b",
    "amount > 1\x85AND TRUE", "\ufdfd > 1",
)  # fmt: skip
_NAMES = (
    "amount", "AMOUNT", "event_time", "arrival_time", "partition", "offset", "arrival_seq", "late", "group", "order",
    "select", "count", "sum", "len", "literal", "__class__", "_", "a" * 63, "a" * 64, "1a", "a-b", "a b", "", "*", "é",
    "timestamp", "double", "date", "null", "true", "and", "case", "end", "x", "b", "n", "e", "u", "r", "text",
    "rule_id", "\u212a", "a.b", "{x}", "%", "interval", "index", "self",
)  # fmt: skip
_DURATIONS = (
    "1h", "1ms", "0s", "400d", "401d", "100000d", "99999999999999999999d", "1e3s", "-1h", "1.5h", "0.0001ms",
    "0.0000000001s", "1 h", " 1h ", "1H", "1w", "1y", "h", "", "1", "\u221e", "\uff11h", "1h30m", "NaNs", "1h\n",
    "1" * 400 + "d", "1" + " " * 5000,
)  # fmt: skip
_IDS = (
    "../../etc/passwd", "a/b", "a\\b", "a\nb", "a\n", "a\0b", "", ".", "..", "-", "a..", "A", "é", "a b", "a" * 100,
    "a" * 101, "a" * 100_000, "con", "{id}", "%2e%2e", "a\tb", "a\u2028", "'; DROP TABLE rules; --", "<script>",
    "$(id)", "a\u200b", "\uff41",
)  # fmt: skip
_TEXTS = (
    "{", "}", "{}", "{{}}", "{0}", "{amount}", "{amount!r}", "{amount.__class__}", "{amount:>1000000000}", "{n}{n}{n}",
    "{__class__}", "%s", "{customer_id}" * 64, "{customer_id}" * 65, "{amount}" * 512, "{" * 4096, "x" * 4096,
    "x" * 4097, "\x00", "\n\t", "<b>", "é😀", "{am ount}", "{missing}", "{nothing", "$amount", "${amount}",
    "{arrival_time}", "{}" * 1000, '"\\', "\u202e",
)  # fmt: skip
_INSTANTS = (
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59-05:00", "0000-01-01", "10000-01-01", "2026-02-30", "now", "", "0", 0, -1, 10**400, 1e400,
    True, None, [], {}, "2026-01-01T00:00:00+99:00",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 10**30, 1.5, float("inf"), float("nan"), "", "x", "*", [], {}, [None], [[]], {"a": 1},
    {"": None}, [1, "x"], ["x"] * 9, ["amount"] * 2, "x" * 5000, {"x" * 5000: 1}, [{}], {"sum": "amount"}, "active",
    "\x00", "😀", {"$ref": "#"}, -0.0,
)  # fmt: skip
_TAGS = (
    "!!python/object/apply:os.system ['id']", "!!python/name:os.system", "!!binary aGk=", "!!set {a, b}",
    "!!omap [a: 1]", "!!timestamp x", "!!int x", "!!float ''", "!!bool x", "!!null x", "!!str 5", "!x y", "&a x", "*a",
    "<<", "{<<: {id: x}}", "{<<: 5}", "? [a]\n: b", "=", "0x", "0b_", "0o8", "1:99", "190:20:30.15", ".inf", "-.inf",
    ".nan", "._", "1e1_0", "0_", "2026-99-99", "0001-01-01T00:00:00+05:00", "~", "no", "9999-12-31 23:59:59 -5",
    "|\n  x", ">", "%YAML 1.1", "@x", "`x`", "'", '"', '"\\ud800"', '"\\x00"', "[", "{", "- -", "\t", "\u2028", "...",
)  # fmt: skip


class Hostile(NamedTuple):
    """A text, as a message or a file, and what was done to it."""

    text: bytes
    what: str


class HostileRules:
    """Endless texts about the given streams."""

    def __init__(self, streams: dict[str, Stream], rng: random.Random) -> None:
        self._streams, self._rng = streams, rng
        self._stream = next(iter(streams.values()))
        self._changes: tuple[tuple[str, Callable[[dict[str, Any]], None]], ...] = (
            ("where", lambda rule: rule.update(where=self._predicate({}))),
            ("when", lambda rule: rule.update(when=self._predicate(rule["measures"]))),
            ("when", lambda rule: rule.update(when=self._predicate(rule["measures"]))),
            ("of a measure", self._condition),
            ("measures", lambda rule: rule.update(measures=self._measures())),
            ("a computed measure", self._computed),
            ("many measures", self._many),
            ("group by", lambda rule: rule.update(group_by=self._fields())),
            ("id", lambda rule: rule.update(id=self._one(_IDS))),
            ("description", lambda rule: rule.update(description=self._one(_TEXTS))),
            ("effective", lambda rule: rule.update(effective=self._one(_INSTANTS))),
            ("reset", lambda rule: rule.update(reset_after_alert=True)),
            ("what must not follow", self._unless),
            ("stream", lambda rule: rule.update(stream=self._one(("Transactions", "", "../x", "payments", *_NAMES)))),
            ("a wrong value", lambda rule: rule.update({self._one((*_KEYS, *_NAMES)): self._one(_VALUES)})),
            ("a key less", lambda rule: rule.pop(self._one(tuple(rule)))),
            ("a control", self._control),
        )

    def text(self) -> Hostile:
        """The next one."""
        rng = self._rng
        self._stream = rng.choice(list(self._streams.values()))
        rule = self._good()
        what = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            kind, change = rng.choice(self._changes)
            change(rule)
            what.append(kind)
            if not {"measures", "stream", "id"} <= rule.keys() or not isinstance(rule["measures"], dict):
                break
        text = self._written(rule)
        if rng.random() < 0.25:
            kind, text = self._whole(text, rule)
            what.append(kind)
        return Hostile(text, ", ".join(what))

    def _one(self, values: tuple[Any, ...]) -> Any:
        return self._rng.choice(values)

    def _good(self) -> dict[str, Any]:
        rng, stream = self._rng, self._stream
        return {
            "id": f"r{rng.randrange(1000)}",
            "stream": stream.name,
            "group_by": [rng.choice(stream.entities)],
            "measures": {"n": {"count": "*", "over": "1h"}, "m": self._measure(good=True)},
            "when": "n >= 1",
            "description": "{n} of {m}",
            "effective": "2000-01-01T00:00:00Z",
        }

    def _written(self, rule: dict[str, Any]) -> bytes:
        if self._rng.random() < 0.6:
            return json.dumps(rule, ensure_ascii=self._rng.random() < 0.5).encode("utf-8", "surrogatepass")
        text: str = yaml.dump(rule, Dumper=_Dumper, allow_unicode=True, sort_keys=False)
        return text.encode("utf-8", "surrogatepass")

    # Parts of a rule

    def _measure(self, *, good: bool = False) -> dict[str, Any]:
        rng, fields = self._rng, self._stream.fields
        function = rng.choice(list(Function))
        of: list[Any] = [name for name, kind in fields.items() if kind.kind in function.spec.takes]
        if function.spec.takes_conditions:
            of = [[self._predicate({}) for _ in range(2)]]
        if not of or (not good and rng.random() < 0.2):
            of = [*fields, "*"]
        if good and "*" in of:
            function, of = Function.COUNT, ["*"]
        field = rng.choice(of)
        under = function.of(field) if good or rng.random() < 0.9 else field
        measure: dict[str, Any] = {function.value: under, "over": rng.choice(("1h", "1d", "400d"))}
        if rng.random() < 0.2:
            del measure["over"]
            measure["episode"] = rng.choice(("1h", "100d"))
        if rng.random() < 0.2:
            measure |= {"per": [rng.choice(list(fields))], "excluding_current": rng.random() < 0.5}
        if not good and rng.random() < 0.6:
            options = [name for name in Measure.model_fields if name not in HELD]
            key = rng.choice((*options, "function", "field", "variance", function))
            measure[key] = (
                rng.choice(_DURATIONS)
                if key in ("over", "delay", "episode", "session") and rng.random() < 0.7
                else self._one((*_VALUES, *_NAMES, self._fields()))
            )
        return measure

    def _measures(self) -> Any:
        rng = self._rng
        if rng.random() < 0.1:
            return self._one(_VALUES)
        names = ("n", "m", *rng.sample(_NAMES, rng.randrange(3)))
        return {name: self._measure() if rng.random() < 0.9 else self._one(_VALUES) for name in names}

    def _many(self, rule: dict[str, Any]) -> None:
        count = self._rng.choice((62, 63, 64, 500))
        rule["measures"] |= {f"m{number}": self._measure(good=True) for number in range(count)}

    def _condition(self, rule: dict[str, Any]) -> None:
        measure = self._measure(good=True)
        measure[self._one(("where", "until" if "episode" in measure else "since"))] = self._predicate({})
        rule["measures"] = {**rule["measures"], "m": measure}

    def _unless(self, rule: dict[str, Any]) -> None:
        rule["unless"] = {"within": self._one(_DURATIONS), "where": self._predicate({})}
        if self._rng.random() < 0.2:
            rule["unless"] = self._one((*_VALUES, {**rule["unless"], self._one(_NAMES): self._one(_VALUES)}))

    def _computed(self, rule: dict[str, Any]) -> None:
        name = self._one(("c", "m", "n"))
        rule["measures"] = {**rule["measures"], name: self._predicate({**rule["measures"], name: None})}

    def _fields(self) -> Any:
        rng = self._rng
        fields = list(self._stream.fields)
        drawn = rng.random()
        if drawn < 0.5:
            return rng.sample(fields, rng.randrange(min(5, len(fields))))
        if drawn < 0.7:
            return rng.choices((*fields, *_NAMES), k=rng.randrange(12))
        return self._one((fields, [f"k{number}" for number in range(10_000)], *_VALUES))

    def _control(self, rule: dict[str, Any]) -> None:
        own = dict(rule)
        rule.clear()
        rule["control"] = self._one(
            ("pause", "resume", "retire", "shadow", "approve", "decline", "activate", "Pause", *_VALUES)
        )
        rule["rule"] = self._one(("base", own["id"], *_IDS, *_VALUES))
        if self._rng.random() < 0.5:
            rule[self._one(("effective", "rule_version", "version", "x"))] = self._one((*_INSTANTS, *_VALUES))

    # Predicates

    def _predicate(self, measures: Any) -> str:
        rng = self._rng
        names = [*self._stream.fields, *(measures if isinstance(measures, dict) else ())]
        drawn = rng.random()
        if drawn < 0.2:
            return self._one(_INJECTIONS)
        if drawn < 0.25:
            return self._one(_UNICODE)
        if drawn < 0.7:
            return self._expression(names, "boolean", rng.randrange(1, 6))
        if drawn < 0.8:
            return self._large(names)
        if drawn < 0.9:
            return self._damaged(self._expression(names, "boolean", 2))
        soup = (*_SOUP, *names, *FUNCTIONS)
        return " ".join(rng.choices(soup, k=rng.randrange(1, 20)))

    def _expression(self, names: list[str], kind: str, depth: int) -> str:
        """A random expression that is mostly of the kind; a few of its parts are of another."""
        rng = self._rng
        if rng.random() < 0.02:
            kind = rng.choice(("boolean", "number", "string", "timestamp"))
        again = lambda of: self._expression(names, of, depth - 1)  # noqa: E731  a name for the recursion
        if depth <= 0:
            return self._leaf(names, kind)
        match kind:
            case "boolean":
                of = rng.choice(("number", "number", "string", "timestamp"))
                return rng.choice((
                    lambda: f"{again(of)} {rng.choice(('=', '<>', '!=', '<', '<=', '>', '>='))} {again(of)}",
                    lambda: f"({again('boolean')} {rng.choice(('AND', 'OR'))} {again('boolean')})",
                    lambda: f"NOT ({again('boolean')})",
                    lambda: f"{again(of)} IS {rng.choice(('', 'NOT '))}NULL",
                    lambda: f"{again(of)} {rng.choice(('', 'NOT '))}IN ({self._values(of)})",
                    lambda: f"{again(of)} BETWEEN {again(of)} AND {again(of)}",
                    lambda: f"{again('string')} {rng.choice(('', 'NOT '))}LIKE '{self._pattern()}'",
                    lambda: f"IP_IN({again('string')}, {', '.join(rng.choices(_NETWORKS, k=rng.randrange(4)))})",
                    lambda: f"REGEXP_LIKE({again('string')}, '{self._regexp()}')",
                    lambda: f"CASE WHEN {again('boolean')} THEN {again('boolean')} ELSE {again('boolean')} END",
                    lambda: f"{rng.choice(('STARTS_WITH', 'ENDS_WITH'))}({again('string')}, {again('string')})",
                ))()  # fmt: skip
            case "number":
                return rng.choice((
                    lambda: f"({again('number')} {rng.choice('+-*/%')} {again('number')})",
                    lambda: f"-{again('number')}",
                    lambda: f"ABS({again('number')})",
                    lambda: f"{rng.choice(('SQRT', 'LN', 'EXP', 'ROUND', 'FLOOR', 'CEIL'))}({again('number')})",
                    lambda: f"ROUND({again('number')}, {rng.randrange(-19, 20)})",
                    lambda: f"{rng.choice(_PAIRED)}({again('number')}, {again('number')})",
                    lambda: f"DISTANCE_KM({', '.join(again('number') for _ in range(4))})",
                    lambda: f"SECONDS_BETWEEN({again('timestamp')}, {again('timestamp')})",
                    lambda: f"CAST({again('number')} AS DOUBLE)",
                    lambda: f"LENGTH({again('string')})",
                    lambda: f"{rng.choice(_PARTS)}({again('timestamp')})",
                    lambda: f"{rng.choice(_PARTS)}({again('timestamp')} AT TIME ZONE '{rng.choice(_ZONES)}')",
                    lambda: f"{rng.choice(_PARTS)}({again('timestamp')} AT TIME ZONE {again('string')})",
                    lambda: f"EXTRACT({rng.choice((*_PARTS, 'EPOCH', 'ISODOW'))} FROM {again('timestamp')})",
                    lambda: f"COALESCE({again('number')}, {again('number')})",
                    lambda: f"CASE WHEN {again('boolean')} THEN {again('number')} END",
                ))()  # fmt: skip
            case "string":
                return rng.choice((
                    lambda: f"{rng.choice(('LOWER', 'UPPER', 'TRIM'))}({again('string')})",
                    lambda: f"CONCAT({', '.join(again('string') for _ in range(rng.randrange(1, 4)))})",
                    lambda: f"SUBSTRING({again('string')}, LENGTH({again('string')}) - {rng.randrange(9)})",
                    lambda: f"SUBSTRING({again('string')}, {again('number')}, {rng.randrange(9)})",
                    lambda: f"COALESCE({again('string')}, {again('string')})",
                    lambda: f"CASE {again('number')} WHEN {again('number')} THEN {again('string')} ELSE '' END",
                    lambda: self._leaf(names, "string"),
                ))()  # fmt: skip
        return self._leaf(names, kind)

    def _values(self, kind: str) -> str:
        return ", ".join(self._leaf([], kind) for _ in range(self._rng.randrange(1, 5)))

    def _leaf(self, names: list[str], kind: str) -> str:
        rng, fields = self._rng, self._stream.fields
        of_kind = {
            "number": lambda name: name not in fields or fields[name].is_number,
            "string": lambda name: name in fields and fields[name].kind is Kind.STRING,
            "timestamp": lambda name: name in fields and fields[name].kind is Kind.TIMESTAMP,
            "boolean": lambda name: name in fields and fields[name].kind is Kind.BOOLEAN,
        }[kind]
        fitting = [name for name in names if of_kind(name)]
        if fitting and rng.random() < 0.7:
            return rng.choice(fitting)
        match kind:
            case "number":
                return rng.choice((
                    "0", "1", "-1", "2.5", "0.01", "1e3", "1e-7", "1e300", "9223372036854775807", "1e38", "NULL",
                    "-9223372036854775808",
                    str(rng.randrange(10**6)), f"{rng.randrange(10**18)}.{rng.randrange(10**18)}", "9" * 38, "9" * 39,
                ))  # fmt: skip
            case "string":
                return f"'{rng.choice(('', 'x', 'c000001', 'é', '%', '1', 'x' * 100, chr(39) * 2, '😀'))}'"
            case "timestamp":
                instants = ("2026-01-05", "2026-01-05 12:00:00+02:00", "0001-01-01", "9999-12-31 23:59:59")
                return f"TIMESTAMP '{rng.choice(instants)}'"
        return rng.choice(("TRUE", "FALSE", "NULL IS NULL"))

    def _regexp(self) -> str:
        rng = self._rng
        if rng.random() < 0.3:
            return self._one(_REGEXPS)
        return "".join(rng.choices(_REGEXP_PARTS, k=rng.choice((3, 10, 100, 400))))

    def _pattern(self) -> str:
        rng = self._rng
        parts = ("%", "%", "_", "a", "c0", "\\", "(", "[a-z]+", ".", "*", "$", "^", "é", "(a+)+", "''", "{9999}", "😀")
        return "".join(rng.choices(parts, k=rng.choice((0, 1, 3, 10, MAX_WILDCARDS))))

    def _large(self, names: list[str]) -> str:
        rng = self._rng
        name = rng.choice(names)
        levels = rng.choice((MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 1000))
        wild = rng.choice((MAX_WILDCARDS // 2, MAX_WILDCARDS // 2 + 1, 1000))
        return rng.choice((
            lambda: "(" * levels + f"{name} IS NULL" + ")" * levels,
            lambda: "NOT " * levels + f"{name} IS NULL",
            lambda: "-" * levels + f"{name} > 1",
            lambda: "- " * levels + "1 > 1",
            lambda: "CASE WHEN TRUE THEN " * levels + "TRUE" + " END" * levels,
            lambda: "ABS(" * levels + name + ")" * levels + " > 1",
            lambda: " AND ".join([f"{name} IS NULL"] * levels * 3),
            lambda: " OR ".join(f"{name} = {number}" for number in range(levels)),
            lambda: " + ".join([name] * levels) + " > 1",
            lambda: " * ".join([name] * levels) + " > 1",
            lambda: f"{name} IN ({', '.join(map(str, range(levels * 4)))})",
            lambda: f"{name} = '{'x' * (MAX_TEXT - len(name) - 5 + rng.randrange(-1, 2))}'",
            lambda: f"customer_id LIKE '{'%_' * wild}'",
            lambda: f"customer_id LIKE '{'%a' * wild}b'",
            lambda: f"customer_id LIKE '{'_' * wild * 2}'",
            lambda: f"{'x' * levels} > 1",
            lambda: f"{name} > {'9' * levels * 4}",
            lambda: f"{name} > 0.{'0' * levels * 4}1",
            lambda: "COALESCE(" + ", ".join([name] * levels * 2) + ") IS NULL",
            lambda: "CASE " + "".join(f"WHEN {name} IS NULL THEN TRUE " for _ in range(levels)) + "END",
            lambda: " " * 5000,
            lambda: f"{name}{' ' * 4000}IS NULL",
        ))()  # fmt: skip

    def _damaged(self, text: str) -> str:
        rng = self._rng
        at = rng.randrange(len(text) + 1)
        return (
            text[:at]
            + rng.choice(("", "'", '"', "(", ")", ";", "--", "/*", "\x00", "\\", ",", " ", "%", "\ud800", "é"))
            + text[at + rng.randrange(3) :]
        )

    # The text as a whole

    def _whole(self, text: bytes, rule: dict[str, Any]) -> tuple[str, bytes]:
        rng = self._rng
        at = rng.randrange(len(text) + 1)
        levels = rng.choice((10, 15, 16, 17, 900, 980, 990, 2000, 100_000))
        many = [f"k{number}" for number in range(rng.choice((100, 15_000)))]
        return rng.choice((
            lambda: ("cut off", text[:at]),
            lambda: ("bytes put in", text[:at] + bytes([rng.randrange(256)]) + text[at:]),
            lambda: ("bytes changed", text[:at] + bytes([rng.choice(_NOTABLE)]) + text[at + 1 :]),
            lambda: ("a key twice", text[:-1] + b', "when": "TRUE"}'),
            lambda: ("a key twice", text + b"\nwhen: 'TRUE'\n"),
            lambda: ("a trick of YAML", text + f"\nx: {rng.choice(_TAGS)}\n".encode()),
            lambda: ("a trick of YAML", f"id: {rng.choice(_TAGS)}\nwhen: {rng.choice(_TAGS)}\n".encode()),
            lambda: ("deep", b'{"id": ' + b"[" * levels + b"]" * levels + b"}"),
            lambda: ("deep", b'{"a":' * levels + b"1" + b"}" * levels),
            lambda: ("deep", b"a: " + b"[" * levels),
            lambda: ("deep", b"- " * levels),
            lambda: ("many keys", json.dumps(rule | dict.fromkeys(many, 1), default=str).encode()),
            lambda: ("many keys", "\n".join(f"{key}: 1" for key in many).encode()),
            lambda: ("large", text + b" " * (MAX_BYTES - len(text) + rng.randrange(-1, 2))),
            lambda: ("large", b'{"id": "' + b"a" * rng.choice((1000, 200_000, 900_000)) + b'"}'),
            lambda: ("two documents", text + rng.choice((b"", b"\n---\n", b"\n", b",")) + text),
            lambda: ("a list", b"[" + text + b"]"),
            lambda: ("byte order mark", b"\xef\xbb\xbf" + text),
            lambda: ("UTF-16", text.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-32")))),
            lambda: ("half a pair", text.replace(b'"', b'"\\ud800', rng.randrange(1, 9))),
            lambda: ("no rule", rng.choice(_NO_RULES)),
            lambda: ("no rule", b'{"id": ' + b"9" * 5000 + b"}"),
        ))()  # fmt: skip


_NOTABLE = b"{}[]\",:\\ -&*!|>'%@`#?\n\t\x00\xff0"
_NO_RULES = (
    b"", b" ", b"null", b"[]", b"{}", b"5", b'"x"', b"NaN", b"1" * 5000, b'{"x": 1e999}', b"\xff", b"- a\n- b",
)  # fmt: skip
_ZONES = ("Europe/Berlin", "America/New_York", "UTC", "Nowhere", "+02:00")
_PARTS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "DAYOFWEEK", "DAYOFYEAR", "QUARTER", "MINUTE", "SECOND")
_KEYS = (
    "id", "stream", "state", "group_by", "where", "measures", "when", "severity", "description", "effective",
    "reset_after_alert",
)  # fmt: skip
_NETWORKS = (
    "'10.0.0.0/8'", "'0.0.0.0/0'", "'::/0'", "'2001:db8::/32'", "'::ffff:10.0.0.0/104'", "'10.0.0.1/8'",
    "'10.0.0.0/33'", "''", "'fe80::1%eth0'", "'010.0.0.0/8'", "'1::2::3'", "'10.0.0.0/-1'", "'/'", "customer_id",
    "'10.0.0.0/08'", "'x'", "5",
)  # fmt: skip
_REGEXPS = (
    "(a+)+$", "(a|a)*b", "(a?){250}a{250}", ".{250}x", "(?:.?){250}c", "([^a]{9}){27}", "(x*)*(x*)*y",
    "(?i)(?:x{1,9}){30}", "(?:a|b)*a(?:a|b){400}c", "((((((((((((((((((a))))))))))))))))))", "\\w{250}$", "(?=a)",
    "(a)\\1", "[", "a{9999}", "(?:){999}", "(?:(?:(?:){999}){999}){999}", "", "é{300}", "[a-zé]*$", "^(?:x|é)*$",
)  # fmt: skip
_REGEXP_PARTS = (
    "a", "x", "é", "😀", ".", "*", "+", "?", "|", "(", ")", "(?:", "[", "]", "[^", "-", "{2,3}", "{9}", "{", "}", "^",
    "$", "\\d", "\\W", "\\s", "\\b", "\\.", "\\", "(?i)", "(?=", "%", "[a-z]", ".*", "x+", "''",
)  # fmt: skip
_PAIRED = ("POWER", "GREATEST", "LEAST", "NULLIF")
_SOUP = (
    "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "TRUE", "FALSE",
    "FROM", "AS", "(", ")", ",", "=", "<>", "<", ">", "+", "-", "*", "/", "%", "::", "1", "0.5", "'x'", "TIMESTAMP",
    "DOUBLE", "INTERVAL", "DATE", "EXTRACT", "SELECT", ".", ";", "||", "ESCAPE", "DISTINCT", "OVER", "ANY", "EXISTS",
    "STRUCT", "ARRAY", "MAP", "UNNEST", "LATERAL", "VALUES", "SET", "[", "]", "{",
)  # fmt: skip


class _Dumper(yaml.SafeDumper):
    """Writes no YAML references, which would replace repeated parts of a rule."""

    def ignore_aliases(self, _: Any) -> bool:
        return True
