"""The windows, aggregates and predicates that a rule set needs, each once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from nightjar.rules.allowing import allows_alerts, can_allow
from nightjar.rules.calendars import UTC, Calendar
from nightjar.rules.computed import in_order
from nightjar.rules.engine.columns import FEW
from nightjar.rules.engine.kernels import steps
from nightjar.rules.errors import Problem, RuleError
from nightjar.rules.functions import FoldFamily, Function
from nightjar.rules.model import Measure, Rule, State, measure_types
from nightjar.rules.named_rules import is_named
from nightjar.rules.over_alerts import counted, counts_violations
from nightjar.rules.predicates import Predicate, Screen, Value, compile_predicate, compile_value
from nightjar.rules.retention import kept_for, named_by, own, waits_for, widest
from nightjar.rules.streams import Stream
from nightjar.rules.tables import looked_up, value_columns
from nightjar.rules.types import FieldType
from nightjar.rules.versions import RuleSet, RuleVersion, by_rule, living

# Beside the predicates of measures with a resolution: that an event came in time for them (S14.4). No text of a rule.
IN_TIME = "$in time"


class MaskKey(NamedTuple):
    """Rows that meet all predicates (texts) and whose field, where one is given, is not NULL."""

    predicates: frozenset[str]
    field: str | None = None


class Window(NamedTuple):
    """The rows in a measure's window: `over` in µs; `since` as the rows that restart it.

    delay: µs, how long before the current row it ends; it leaves that out then.
    calendar: a unit and the zone by whose clocks it begins; `over` is its longest length then.
    session: µs, it begins behind the last pause longer than this between any rows of the group; 0 where it does not.
    resolution: µs, its start is rounded down to a multiple of it; 0 where it is not.
    An episode has the length `over`, and opens as the rows that may open it (None: no episode); `until` as the rows
    that close it.
    """

    over: int
    since: MaskKey | None
    per: tuple[str, ...]
    excluding_current: bool
    opens: MaskKey | None = None
    until: MaskKey | None = None
    resolution: int = 0
    delay: int = 0
    calendar: tuple[Calendar, str] | None = None
    session: int = 0

    @property
    def marks(self) -> tuple[MaskKey | None, ...]:
        """The marks that it looks at."""
        return self.since, self.opens, self.until


class PlanKey(NamedTuple):
    """What rules of one plan have in common: the group-by, and whether they wait for what follows an event (S19)."""

    group_by: tuple[str, ...]
    waits: bool

    @classmethod
    def of(cls, rule: Rule) -> PlanKey:
        """That of a rule."""
        return cls(rule.group_by, rule.unless is not None)


class Aggregate(NamedTuple):
    """One value per row, shared by equal measures of different rules."""

    @property
    def name(self) -> str:
        """A name unique among aggregates and fields."""
        keys: tuple[MaskKey | None, ...] = (self.mask, *self.window.marks)
        keys += self.steps[1:]
        marks = [None if key is None else (sorted(key.predicates), key.field) for key in keys]
        rest = self.window._replace(since=None, opens=None, until=None)
        return f"${[self.function.value, self.share, self.field, marks, rest]!r}"

    function: Function
    field: str | None
    mask: MaskKey
    window: Window
    share: int = 0
    """Of a percentile, in parts of functions.WHOLE."""
    steps: tuple[MaskKey, ...] = ()
    """Of a sequence; the first is `mask`."""

    @property
    def marks(self) -> set[MaskKey]:
        """The marks that it looks at."""
        return {key for key in (self.mask, *self.steps, *self.window.marks) if key is not None}


@dataclass(frozen=True, eq=False)
class Computed:
    """A measure that is an expression over fields and other measures of its rule.

    name: unique among aggregates and fields; value: over columns by their names in conditions; reads: what it
    depends on, by these names.
    """

    name: str
    value: Value
    kind: FieldType
    reads: frozenset[str]


@dataclass(frozen=True, eq=False)
class Tally:
    """A measure over violations of other rules (S23), from how many of each kind a window holds.

    name: unique among aggregates and fields; terms: by rule, of each kind of its violations the number and the score;
    function: count, sum (of scores) or count_distinct (of rules).
    """

    name: str
    function: Function
    terms: Mapping[str, tuple[tuple[Aggregate, int], ...]]

    @property
    def aggregates(self) -> list[Aggregate]:
        """The numbers of violations."""
        return [aggregate for terms in self.terms.values() for aggregate, _ in terms]


@dataclass(frozen=True, eq=False)
class Nested:
    """A condition of a measure that looks at other measures at the event itself (S18.3).

    text: unique among predicates; measures: what it reads beside fields, and the types of that, by its names in `when`;
    reach: how long before the event those may lie that these depend on, in µs.
    """

    text: str
    when: Predicate
    measures: dict[str, tuple[Aggregate, FieldType]]
    reach: int


class Fold(NamedTuple):
    """What measures with a resolution (µs) need of each step (S14), as kernels.steps keeps it."""

    group_by: tuple[str, ...]
    resolution: int
    family: FoldFamily
    mask: MaskKey
    field: str | None

    @classmethod
    def of(cls, group_by: tuple[str, ...], aggregate: Aggregate) -> Fold:
        """What an aggregate needs."""
        spec = aggregate.function.spec
        assert spec.family is not None
        field = None if spec.takes_rows else aggregate.field
        return cls(group_by, aggregate.window.resolution, spec.family, aggregate.mask, field)

    @property
    def name(self) -> str:
        """A name for durable state, the same in every process."""
        content = [*self[:3], sorted(self.mask.predicates), self.mask.field, self.field]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    @property
    def columns(self) -> tuple[int, ...]:
        """Its columns, by their places in kernels.steps."""
        return _FOLDED[self.family]

    def how(self, column: int) -> int:
        """How the values of a column are put together."""
        if column != steps.EXTREME:
            return steps.ADDED
        return steps.LEAST if self.family is FoldFamily.LEAST else steps.GREATEST


_FOLDED = {
    FoldFamily.COUNT: (steps.COUNT,),
    FoldFamily.TOTALS: (steps.COUNT, steps.HIGH, steps.LOW),
    FoldFamily.SPREAD: tuple(range(steps.EXTREME)),
    FoldFamily.LEAST: (steps.COUNT, steps.EXTREME),
    FoldFamily.GREATEST: (steps.COUNT, steps.EXTREME),
}


@dataclass(frozen=True)
class CompiledRule:
    """One version of a rule, ready to evaluate."""

    version: RuleVersion
    seen: MaskKey
    measures: dict[str, Aggregate | Computed | Tally]
    types: dict[str, FieldType]
    called: dict[str, str]
    """The name of each measure in conditions: that of its aggregate (two rules may use one name for different ones)."""
    when: Predicate
    predicates: dict[str, Predicate]
    """Those of the marks, by text; a nested one, which is no predicate of fields, holds nowhere."""
    nested: tuple[Nested, ...]
    awaited: MaskKey | None = None
    """What makes an event no violation if it follows, where the rule waits for that."""

    @property
    def rule(self) -> Rule:
        """The rule as written."""
        return self.version.rule

    def in_common(self, rows: int) -> dict[str, pa.Array]:
        """What so many of its announcements have in common, by the names of LEDGER_SCHEMA."""
        if rows <= FEW:
            return {name: column.slice(0, rows) for name, column in self._in_common.items()}
        return {name: pa.repeat(column[0], rows) for name, column in self._in_common.items()}

    @cached_property
    def _in_common(self) -> dict[str, pa.Array]:
        """FEW rows of it: a slice takes no time."""
        rule = self.rule
        values = {
            "rule_id": rule.id,
            "rule_version": self.version.version,
            "retracted": pa.scalar(value=False),
            "rule_state": rule.state.value,
            "severity": rule.severity.value,
            "muted": pa.scalar(value=False),
            "mute": rule.mute or 0,
        }
        return {name: pa.repeat(value, FEW) for name, value in values.items()}

    @property
    def resets(self) -> bool:
        """Whether its measures start again after its violations."""
        return self.rule.reset_after_alert and bool(self.aggregates)

    @property
    def aggregates(self) -> list[Aggregate]:
        """Its measures over windows."""
        return [*_aggregates(self.measures.values())]

    @property
    def computed(self) -> list[Computed]:
        """Its measures that are computed from others."""
        return [measure for measure in self.measures.values() if isinstance(measure, Computed)]

    @property
    def marks(self) -> set[MaskKey]:
        """The marks that it looks at."""
        awaited = set() if self.awaited is None else {self.awaited}
        return {self.seen}.union(awaited, *(aggregate.marks for aggregate in self.aggregates))


def _aggregates(measures: Iterable[Aggregate | Computed | Tally]) -> Iterator[Aggregate]:
    """Those over windows among measures, and those that others count."""
    for measure in measures:
        if isinstance(measure, Aggregate):
            yield measure
        elif isinstance(measure, Tally):
            yield from measure.aggregates


class Conditions:
    """Conditions that are evaluated together, and the measures that they read, each once.

    places: the number of each measure, those of aggregates first; called: its number and type by its name in
    conditions.
    """

    def __init__(
        self, whens: Iterable[Predicate], measures: Mapping[str, tuple[Aggregate | Computed | Tally, FieldType]]
    ) -> None:
        """measures: with their types, by their names in conditions."""
        self.whens = tuple(whens)
        found = dict.fromkeys(measure for measure, _ in measures.values())
        self.aggregates = tuple(dict.fromkeys(_aggregates(found)))
        self.computed = tuple(measure for measure in found if not isinstance(measure, Aggregate))
        every: tuple[Aggregate | Computed | Tally, ...] = (*self.aggregates, *self.computed)
        self.places = {measure: at for at, measure in enumerate(every)}
        self.called = {name: (self.places[measure], kind) for name, (measure, kind) in measures.items()}


class Program(Conditions):
    """Rule versions that are evaluated together."""

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        self.rules = tuple(rules)
        measures = {
            rule.called[name]: (rule.measures[name], kind) for rule in self.rules for name, kind in rule.types.items()
        }
        super().__init__((rule.when for rule in self.rules), measures)
        self.screen = Screen([when.bounds for when in self.whens])


class NestedConditions(Conditions):
    """The conditions of a group-by's measures that look at other measures. reach: of these, in µs."""

    def __init__(self, conditions: Iterable[Nested]) -> None:
        self.conditions = tuple(conditions)
        self.texts = tuple(each.text for each in self.conditions)
        super().__init__(
            (each.when for each in self.conditions),
            {name: measure for each in self.conditions for name, measure in each.measures.items()},
        )
        self.reach = max((each.reach for each in self.conditions), default=0)


@dataclass(frozen=True)
class GroupPlan:
    """All that is evaluated over one group-by, of the rules that wait for what follows an event or of the others."""

    key: PlanKey
    versions: dict[str, tuple[RuleVersion, ...]]
    compiled: dict[tuple[str, int], CompiledRule]
    aggregates: frozenset[Aggregate]
    """Those of the versions that run."""
    reach: int
    """How long before an event those may lie that a rule which may still run depends on, in µs."""
    of_rows: int = 0
    """The same without measures with a resolution."""
    waiting: int = 0
    """The longest time after an event that a rule which may still run waits for, in µs."""
    kept: int = 0
    """How long before what is settled those may lie that such a rule depends on, in µs."""
    folds: dict[Fold, int] = field(default_factory=dict)
    """What these need, and the widest window over each, in µs."""
    looked_at: GroupPlan | None = None
    """The versions whose violations its rules count."""
    allowing: GroupPlan | None = None
    """The allow rules that can silence alerts of its rules (S24)."""
    _programs: dict[tuple[tuple[str, int], ...], tuple[Program, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def group_by(self) -> tuple[str, ...]:
        """The fields."""
        return self.key.group_by

    @cached_property
    def withins(self) -> tuple[int, ...]:
        """How long after an event (µs) its rules wait for what follows, ascending."""
        waits = (compiled.rule.unless for compiled in self.compiled.values())
        return tuple(sorted({unless.within for unless in waits if unless is not None}))

    @property
    def marks(self) -> set[MaskKey]:
        """The marks that its rules look at."""
        found = {fold.mask for fold in self.folds}
        for others in self.others:
            found |= others.marks
        return found.union(*(compiled.marks for compiled in self.compiled.values()))

    @property
    def others(self) -> list[GroupPlan]:
        """The plans of the versions that its own depend on."""
        return [plan for plan in (self.looked_at, self.allowing) if plan is not None]

    @cached_property
    def silencers(self) -> dict[tuple[str, int], tuple[tuple[str, int], ...]]:
        """By version, the allow rules' versions that can silence its alerts, in the order of S24.2."""
        allowing = sorted(self.allowing.compiled.items()) if self.allowing else ()
        found = {
            key: tuple(other for other, rule in allowing if allows_alerts(rule.rule, compiled.rule))
            for key, compiled in self.compiled.items()
        }
        return {key: others for key, others in found.items() if others}

    @cached_property
    def violations(self) -> dict[tuple[str, int], str]:
        """The marks of the violations that its rules count, by version."""
        needed = {text for compiled in self.compiled.values() for text in compiled.predicates}
        others = self.looked_at.compiled.items() if self.looked_at else ()
        found = {key: violation(compiled.rule) for key, compiled in others}
        return {key: text for key, text in found.items() if text in needed}

    @cached_property
    def newest_since(self) -> int:
        """Event time (µs) from which on every rule has its newest version."""
        return max(versions[-1].effective for versions in self.versions.values())

    @cached_property
    def newest(self) -> tuple[Program, ...]:
        """The newest versions, as `programs`."""
        newest = ((rule_id, versions[-1].version) for rule_id, versions in self.versions.items())
        return self.programs(tuple(key for key in newest if key in self.compiled))

    @cached_property
    def nested(self) -> NestedConditions | None:
        """The conditions that look at measures; None if there are none."""
        every = [*self.compiled.values(), *(each for plan in self.others for each in plan.compiled.values())]
        found = {each.text: each for compiled in every for each in compiled.nested}
        return NestedConditions(found.values()) if found else None

    @cached_property
    def looks_at_others(self) -> bool:
        """Whether a version depends on what holds at other events: its violations, or nested conditions."""
        by_marks = self.nested is not None or self.looked_at is not None
        return by_marks or any(compiled.resets for compiled in self.compiled.values())

    def programs(self, keys: tuple[tuple[str, int], ...]) -> tuple[Program, ...]:
        """These of the compiled versions: those that can be evaluated together, then each that starts again after its
        violations, by itself."""
        if keys not in self._programs:
            alone = [key for key in keys if self.compiled[key].resets]
            together = [self.compiled[key] for key in keys if key not in alone]
            self._programs[keys] = Program(together), *(Program((self.compiled[key],)) for key in alone)
        return self._programs[keys]

    @property
    def fields(self) -> set[str]:
        """The fields that its aggregates read."""
        found = {a.field for a in self.aggregates if a.field is not None and not a.function.spec.takes_rows}
        return found.union(*(plan.fields for plan in self.others))


@dataclass(frozen=True)
class Plan:
    """A rule set compiled for one stream: a plan per group-by, and the predicates that all rows are marked with.

    unfit: why versions cannot be evaluated on the stream as declared; they are treated like paused ones.
    """

    groups: tuple[GroupPlan, ...]
    predicates: dict[str, Predicate]
    unfit: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def compiled(self) -> dict[tuple[str, int], CompiledRule]:
        """All its rule versions."""
        plans = [*(plan for group in self.groups for plan in group.others), *self.groups]
        return {key: compiled for plan in plans for key, compiled in plan.compiled.items()}

    @cached_property
    def mutes(self) -> bool:
        """Whether a rule has `mute`."""
        return any(compiled.rule.mute for group in self.groups for compiled in group.compiled.values())

    @property
    def of_rows(self) -> int:
        """How long before what is settled rows are needed for all but measures with a resolution, in µs."""
        return max((group.of_rows for group in self.groups), default=0)

    @cached_property
    def waits(self) -> dict[tuple[str, int], int]:
        """How long after an event (µs) versions wait for what follows, of those that do."""
        rules = ((key, compiled.rule.unless) for key, compiled in self.compiled.items())
        return {key: unless.within for key, unless in rules if unless is not None}

    @cached_property
    def waiting(self) -> int:
        """The longest of these."""
        return max((group.waiting for group in self.groups), default=0)

    @cached_property
    def resolution(self) -> int:
        """The coarsest resolution of all, in µs; 0 where there is none."""
        return max((fold.resolution for group in self.groups for fold in group.folds), default=0)


def compile_plan(
    stream: Stream,
    ruleset: RuleSet,
    since: int | None,
    group_bys: frozenset[tuple[str, ...]] | None = None,
    known: Mapping[tuple[str, int], CompiledRule] | None = None,
) -> Plan:
    """Compile the versions of these group-bys (None: all) that can apply at or after `since` (µs; None: ever).

    If a rule changes its group-by, each version is in the plan of its own group-by, which also has the rule's other
    versions, so that every plan selects versions alike.
    """
    live, found = _live_versions(ruleset.of_stream(stream.name), since)
    every = [version for versions in live.values() for version in versions if version.key in found]
    ungrouped = _ungrouped(every, stream)
    grouped = [version for version in every if version.key not in ungrouped]
    rules = (version.rule for version in grouped)
    wanted = {PlanKey.of(rule) for rule in rules if group_bys is None or rule.group_by in group_bys}
    compiled: dict[tuple[str, int], CompiledRule] = {}
    unfit: dict[tuple[str, int], str] = {}
    for version in sorted(grouped, key=lambda version: version.rule.group_by):
        if PlanKey.of(version.rule) not in wanted or version.rule.state is State.RETIRED:
            continue
        try:
            compiled[version.key] = _compiled(version, stream, known)
        except RuleError as refusal:
            if version.rule.state is not State.PAUSED:
                unfit[version.key] = str(refusal)
    looked_at, allowing = (
        {key: _others(key, live, stream, since, compiled, known, depends) for key in wanted}
        for depends in (counted, _is_allowed)
    )
    groups = tuple(_group_plan(key, live, found, compiled, looked_at[key], allowing[key]) for key in sorted(wanted))
    others = (rule for group in groups for plan in group.others for rule in plan.compiled.values())
    return Plan(groups, _predicates(groups, [*compiled.values(), *others]), unfit | ungrouped)


def _compiled(
    version: RuleVersion, stream: Stream, known: Mapping[tuple[str, int], CompiledRule] | None
) -> CompiledRule:
    """The version compiled, again only if it has changed."""
    before = known.get(version.key) if known else None
    return before if before and before.version == version else _compile(version, stream)


def _is_allowed(rule: Rule, other: Rule) -> bool:
    """Whether the other one is an allow rule that can silence alerts of the rule."""
    return can_allow(other, rule)


def _others(
    key: PlanKey,
    live: Mapping[str, tuple[RuleVersion, ...]],
    stream: Stream,
    since: int | None,
    compiled: Mapping[tuple[str, int], CompiledRule],
    known: Mapping[tuple[str, int], CompiledRule] | None,
    depends: Callable[[Rule, Rule], bool],
) -> GroupPlan | None:
    """The plan of the versions that rules of a key depend on in one way; None if there are none.

    compiled: these rules; depends: whether a rule depends on another one.
    """
    found: dict[str, dict[int, RuleVersion]] = {}
    counts: dict[tuple[str, int], CompiledRule] = {}
    for version in (each for versions in live.values() for each in versions):
        if PlanKey.of(version.rule) != key or version.key not in compiled or not version.rule.state.is_evaluated:
            continue
        # one that waits for what follows still judges events from before what is settled
        judged = None if since is None else since - waits_for(version.rule)
        for rule_id, versions in named_by(version, judged).items() if version.named else ():
            if not any(depends(version.rule, other.rule) for other in versions):
                continue
            found.setdefault(rule_id, {}).update((other.version, other) for other in versions)
            for other in versions:
                if other.rule.state.is_evaluated and depends(version.rule, other.rule) and other.key not in counts:
                    try:
                        counts[other.key] = compiled.get(other.key) or _compiled(other, stream, known)
                    except RuleError:
                        continue  # it has no violations
    if not counts:
        return None
    every = {rule_id: tuple(of_rule[number] for number in sorted(of_rule)) for rule_id, of_rule in found.items()}
    aggregates = frozenset(aggregate for rule in counts.values() for aggregate in rule.aggregates)
    reach = max(own(rule.rule) for rule in counts.values())
    return GroupPlan(key, every, counts, aggregates, reach, reach)


def _live_versions(
    ruleset: RuleSet, since: int | None
) -> tuple[dict[str, tuple[RuleVersion, ...]], set[tuple[str, int]]]:
    """The versions of each rule among which an event that is still evaluated finds its own, and those it may find."""
    live, found = {}, set[tuple[str, int]]()
    for rule_id, versions in by_rule(ruleset.versions).items():
        waits = [waits_for(version.rule) for version in versions]
        found |= {version.key for version in living(versions, since, waits)}
        # as long as one waits, its events must not take it for one that has replaced it and was replaced
        live[rule_id] = living(versions, since, [*accumulate(waits, max)])
    return live, found


def _ungrouped(versions: list[RuleVersion], stream: Stream) -> dict[tuple[str, int], str]:
    """Why versions have no groups: by a field that the stream does not have."""
    unknown = ((v, next((name for name in v.rule.group_by if name not in stream.fields), None)) for v in versions)
    return {v.key: f"stream {stream.name} has no field {name!r}" for v, name in unknown if name is not None}


def _group_plan(
    key: PlanKey,
    live: Mapping[str, tuple[RuleVersion, ...]],
    found: Container[tuple[str, int]],
    compiled: Mapping[tuple[str, int], CompiledRule],
    looked_at: GroupPlan | None,
    allowing: GroupPlan | None,
) -> GroupPlan:
    """The plan of one key. live, found: see `_live_versions`; compiled: of this one and others, also what is paused."""
    versions = {
        rule_id: of_rule
        for rule_id, of_rule in live.items()
        if any(PlanKey.of(v.rule) == key and v.key in found for v in of_rule)
    }
    # a paused rule keeps its history, so that it can resume as if it had never been paused
    kept = [
        v
        for of_rule in versions.values()
        for v in of_rule
        if PlanKey.of(v.rule) == key and v.key in found and v.rule.state is not State.RETIRED
    ]
    fit = [compiled[v.key] for v in kept if v.key in compiled]
    # an allow rule is evaluated for those whose alerts it silences, and has none itself
    running = {each.version.key: each for each in fit if each.rule.state is not State.PAUSED and not each.rule.allows}
    return GroupPlan(
        key,
        versions,
        running,
        aggregates=frozenset(aggregate for r in running.values() for aggregate in r.aggregates),
        reach=max((widest(v) for v in kept), default=0),
        of_rows=max((kept_for(v) for v in kept), default=0),
        waiting=max((waits_for(v.rule) for v in kept), default=0),
        kept=max((widest(v) + waits_for(v.rule) for v in kept), default=0),
        folds=_folds(fit),
        looked_at=looked_at,
        allowing=allowing,
    )


def _folds(rules: Iterable[CompiledRule]) -> dict[Fold, int]:
    """What rules of one group-by need of steps, and the widest window over each, in µs."""
    folds: dict[Fold, int] = {}
    for compiled in rules:
        for aggregate in compiled.aggregates:
            if aggregate.window.resolution:
                fold = Fold.of(compiled.rule.group_by, aggregate)
                folds[fold] = max(folds.get(fold, 0), aggregate.window.over + fold.resolution)
    return folds


def _predicates(groups: Iterable[GroupPlan], rules: Iterable[CompiledRule]) -> dict[str, Predicate]:
    """The predicates of the marks that the groups look at."""
    needed = {text for group in groups for mark in group.marks for text in mark.predicates}
    return {text: each for compiled in rules for text, each in compiled.predicates.items() if text in needed}


def violation(rule: Rule) -> str:
    """The text of the mark of events at which a rule is violated. Versions that measures over alerts do not tell apart
    share it."""
    return f"$violation {[rule.group_by, rule.id, rule.score, rule.state.value, sorted(rule.tags)]!r}"


def _compile(version: RuleVersion, stream: Stream) -> CompiledRule:
    rule = version.rule
    for table, name in rule.lookup.items():
        if not looked_up({table: name}, stream.fields, stream.tables):
            what = f"there is no table {table!r} with values whose key has the type of {name}"
            raise RuleError([Problem(f"lookup.{table}", name, what)], where=f"rule {rule.id}")
    stream = stream.looking_up(rule.lookup)
    predicates: dict[str, Predicate] = {}
    over_alerts = rule.over_alerts
    over_events = {name: measure for name, measure in rule.aggregates.items() if name not in over_alerts}
    for name, measure in over_events.items():
        for used in (measure.field, *measure.per):
            if used is not None and used not in stream.fields:
                problem = Problem(f"measures.{name}", used, f"stream {stream.name} has no field {used!r}")
                raise RuleError([problem], where=f"rule {rule.id}")
        if measure.field is not None and stream.fields[measure.field].kind not in measure.function.spec.takes:
            problem = Problem(f"measures.{name}", measure.field, f"{measure.function} cannot take {measure.field}")
            raise RuleError([problem], where=f"rule {rule.id}")

    nested: dict[str, Nested] = {}
    # of predicates that fields alone do not determine
    nested_texts: set[str] = set()
    named: dict[str, str] = {}

    def key(*texts: str | None, field: str | None = None) -> MaskKey:
        given = frozenset(text for text in texts if text is not None)
        for text in given - named.keys():
            sql = "TRUE" if text == IN_TIME else "FALSE" if text in nested_texts else text
            found = compile_predicate(sql, stream.columns, where=f"rule {rule.id}")
            # by which fields values are looked up is not in the text, which another rule may have too
            asked = sorted(value_columns(found.columns)) if rule.lookup else []
            named[text] = f"$lookup {asked!r} {text}" if asked else text
            predicates[named[text]] = found
        return MaskKey(frozenset(named[text] for text in given), field)

    def aggregate(name: str, measure: Measure, violated: str | None = None) -> Aggregate:
        where = nested[name].text if name in nested else measure.where
        since = None if measure.since is None else key(rule.where, measure.since)
        opens = None if measure.episode is None else key(rule.where, where)
        until = None if measure.until is None else key(rule.where, measure.until)
        step, delay = measure.resolution or 0, measure.delay or 0
        # times are whole microseconds
        length = measure.length - measure.excluding_start
        excluding = measure.excluding_current or delay > 0
        calendar = None if measure.calendar is None else (measure.calendar, measure.zone or UTC)
        session = measure.session or 0
        window = Window(length, since, measure.per, excluding, opens, until, step, delay, calendar, session)
        if measure.steps:
            steps = tuple(key(rule.where, where, text) for text in measure.steps)
            return Aggregate(measure.function, None, steps[0], window, steps=steps)
        if violated is not None:
            return Aggregate(Function.COUNT, None, key(rule.where, where, violated), window)
        counts = key(rule.where, where, IN_TIME if step else None, field=measure.field)
        share = measure.share or measure.function.spec.share or 0
        return Aggregate(measure.function, measure.field, counts, window, share)

    def tally(name: str, measure: Measure) -> Tally:
        terms: dict[str, dict[str, tuple[Aggregate, int]]] = {}
        for other in (each.rule for versions in named_by(version).values() for each in versions):
            if is_named(measure.over_alerts, other) and counts_violations(rule, other):
                text = violation(other)
                nested_texts.add(text)
                terms.setdefault(other.id, {})[text] = aggregate(name, measure, text), other.score or 0
        found = {rule_id: tuple(of_rule.values()) for rule_id, of_rule in terms.items()}
        return Tally(f"$over {[rule.id, version.version, name]!r}", measure.function, found)

    types = measure_types(rule, stream)
    columns = {**stream.columns, **types}
    inner, aggregates = rule.inner, rule.aggregates
    plain = {name: aggregate(name, measure) for name, measure in over_events.items() if name not in inner}
    for name, read in inner.items():
        called = {each: plain[each].name for each in sorted(read)}
        known = {**stream.columns, **{each: types[each] for each in read}}
        when = compile_predicate(str(aggregates[name].where), known, where=f"rule {rule.id}", names=called)
        by = sorted(rule.lookup.items())
        text = f"$then {[rule.group_by, aggregates[name].where, called, *by]!r}"
        looked_at = {plain[each].name: (plain[each], types[each]) for each in read}
        nested[name] = Nested(text, when, looked_at, max(aggregates[each].reach for each in read))
        nested_texts.add(text)
    found: dict[str, Aggregate | Computed | Tally] = {
        name: plain[name] if name in plain else aggregate(name, measure) for name, measure in over_events.items()
    }
    found |= {name: tally(name, measure) for name, measure in over_alerts.items()}
    called = {name: measure.name for name, measure in found.items()}
    for name, text in in_order(rule.computed).items():
        where = f"rule {rule.id}: measures.{name}"
        value = compile_value(text, columns, where=where, names=called, strict=False)
        called[name] = f"$={[rule.id, version.version, name]!r}"
        known_ones = (found[read] for read, name_of in called.items() if name_of in value.columns)
        reads = value.columns.union(*(each.reads for each in known_ones if isinstance(each, Computed)))
        found[name] = Computed(called[name], value, types[name], reads)
    measures = {name: found[name] for name in rule.measures}
    when = compile_predicate(rule.when, columns, where=f"rule {rule.id}: when", names=called)
    seen = key(rule.where)
    awaited = None if rule.unless is None else key(rule.unless.where)
    return CompiledRule(version, seen, measures, types, called, when, predicates, tuple(nested.values()), awaited)
