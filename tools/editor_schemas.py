"""JSON Schemas of the files that people write, rules and cases, so that an editor completes keys and marks errors.

How it works: keys, types, limits and descriptions are those of the pydantic models. A measure is shown as it is written
(`{sum: amount, over: 1h}`) and not as it is held.

What it does not do: fields, types and conditions, which need the stream's declaration; `nightjar rules check` looks at
those.
"""

from typing import Any

from nightjar.cases.case_files import CASE_KEYS
from nightjar.cases.model import KEYS
from nightjar.configuration.settings import Settings
from nightjar.rules.approval import APPROVE
from nightjar.rules.functions import Function
from nightjar.rules.measures import HELD, MAX_STEPS, MIN_STEPS
from nightjar.rules.model import Rule
from nightjar.rules.publishing import CONTROLS

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def editor_schemas() -> list[Schema]:
    """The schemas; `title` is the file's name without the ending."""
    return [rules_file(), case_file()]


def rules_file() -> Schema:
    """A file of rules: one, a list, or `rules: [...]`; of several YAML documents each is such a one."""
    rules = {"type": "array", "items": {"$ref": "#/$defs/Rule"}}
    wrapped: Schema = {
        "type": "object",
        "properties": {"rules": rules},
        "required": ["rules"],
        "additionalProperties": False,
    }
    return {
        "$schema": _DIALECT,
        "title": "rules",
        "description": "Rules, as `nightjar rules check` reads them.",
        "if": {"type": "array"},
        "then": rules,
        "else": {"if": {"type": "object", "required": ["rules"]}, "then": wrapped, "else": {"$ref": "#/$defs/Rule"}},
        "$defs": _rule_parts(),
    }


def case_file() -> Schema:
    """A case file (docs/reference/cases.md). What is none of our rules there may be a message in any other form."""
    time: Schema = {"type": ["string", "number"], "description": "ISO 8601, epoch milliseconds, or an offset: 5m."}
    control: Schema = {
        "type": "object",
        "properties": {"control": {"enum": sorted((*CONTROLS, APPROVE))}, "rule": {"type": "string"}},
    }
    message: Schema = {
        "if": {"type": "object", "required": ["id"]},
        "then": {"$ref": "#/$defs/Rule"},
        "else": {"type": ["object", "string"]},
    }
    step: Schema = {
        "type": "object",
        "properties": {
            "at": time,
            "crash": {"type": "boolean", "description": "All that is in memory is lost, and rebuilt."},
            "rules": _one_or_more(message),
            "control": _one_or_more({"if": {"type": "object"}, "then": control, "else": {"type": "string"}}),
            "tables": {
                **_one_or_more({"type": ["object", "string"]}),
                "description": "Changes: {table: cards, set: [...], values: [...], valid_from: 5m}; remove; approve.",
            },
            "events": {
                "type": "object",
                "description": "Events by stream, each a mapping, or the raw message as text.",
                "additionalProperties": _one_or_more({"type": ["object", "string"]}),
            },
        },
        "required": ["at"],
        "additionalProperties": False,
    }
    settings: Schema = {
        "type": "object",
        "properties": {name: {"description": of.description} for name, of in Settings.model_fields.items()},
        "additionalProperties": False,
    }
    rows = {
        section: _one_or_more(
            {"type": "object", "properties": {key: {} for key in keys}, "additionalProperties": False}
        )
        for section, keys in KEYS.items()
    }
    expect: Schema = {
        "type": "object",
        "properties": {**rows, "state": {"type": "object"}},
        "additionalProperties": False,
    }
    keys: dict[str, Schema] = {
        "title": {"type": "string"},
        "description": {"type": "string"},
        "streams": {"type": "object", "description": "Streams of its own, instead of the shipped ones."},
        "tables": {
            "type": "object",
            "description": "Tables that rules ask: {cards: {key: string, values: {country: string}}}.",
        },
        "settings": settings,
        "base": {**time, "description": "Where offsets begin."},
        "steps": _one_or_more(step),
        "expect": expect,
    }
    return {
        "$schema": _DIALECT,
        "title": "case",
        "description": "A case, as `nightjar simulate` reads it.",
        "type": "object",
        "properties": {key: keys[key] for key in CASE_KEYS},
        "required": ["steps"],
        "additionalProperties": False,
        "$defs": _rule_parts(),
    }


def _one_or_more(schema: Schema) -> Schema:
    """A list, or the one thing that stands for a list of one."""
    return {"if": {"type": "array"}, "then": {"type": "array", "items": schema}, "else": schema}


def _rule_parts() -> Schema:
    """`Rule` and what it is made of, as written."""
    rule = Rule.model_json_schema()
    parts: Schema = rule.pop("$defs")
    parts["Measure"] = _measure(parts.pop("Measure"))
    computed = {"description": "An expression over fields and other measures, as in `frauds / payments`."}
    rule["properties"]["measures"]["additionalProperties"] = {
        "if": {"type": "string"},
        "then": computed,
        "else": {"$ref": "#/$defs/Measure"},
    }
    parts.pop("Function")
    # a date without a time is one too, and in a case an offset
    rule["properties"]["effective"] = {
        "type": "string",
        "description": rule["properties"]["effective"]["description"],
    }
    rule["description"] = "What to look for in a stream."
    return {"Rule": _untitled(rule), **{name: _untitled(part) for name, part in sorted(parts.items())}}


def _measure(held: Schema) -> Schema:
    """The measure's schema with the function as the key of its field."""
    options = {name: of for name, of in held["properties"].items() if name not in HELD}
    functions: Schema = {
        function.value: _percentile(function)
        if function.spec.takes_p
        else {
            "type": "string",
            "description": f'{function} of "*" (events), or of this field\'s values'
            if function.spec.takes_rows
            else f"{function} of this field",
        }
        for function in Function
        if not function.spec.takes_conditions
    }
    functions |= {
        function.value: {
            "type": "array",
            "items": {"type": "string"},
            "minItems": MIN_STEPS,
            "maxItems": MAX_STEPS,
            "description": "How many events begin a chain that meets these conditions one after the other and ends "
            "with the current event",
        }
        for function in Function
        if function.spec.takes_conditions
    }
    return {
        **held,
        "description": "What is computed over the current event's window: {sum: amount, over: 1h}.",
        "properties": {**functions, **options},
        "required": [],
        "oneOf": [{"required": [function.value]} for function in Function],
        "allOf": [{"oneOf": [{"required": [length]} for length in ("over", "episode", "calendar")]}],
    }


def _percentile(function: Function) -> Schema:
    """What stands under a function that is written with a percentage."""
    return {
        "type": "object",
        "description": f"{function} of a field, in percent: {{of: amount, p: 95}}",
        "properties": {
            "of": {"type": "string", "description": "The field."},
            "p": {"type": "number", "minimum": 1, "exclusiveMaximum": 100, "description": "Percent."},
        },
        "required": ["of", "p"],
        "additionalProperties": False,
    }


def _untitled(schema: Schema) -> Schema:
    """Without the titles that pydantic makes of the names of keys."""
    properties = {
        name: {key: value for key, value in of.items() if key != "title"}
        for name, of in schema.get("properties", {}).items()
    }
    return {key: value for key, value in schema.items() if key != "title"} | (
        {"properties": properties} if properties else {}
    )
