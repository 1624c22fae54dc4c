"""JSON Schemas of the files that people write, rules and cases, so that an editor completes keys and marks errors.

How it works: a rule is as `nightjar.rules.written_schema` has it, which the page that edits rules takes as well.
"""

from nightjar.cases.case_files import CASE_KEYS
from nightjar.cases.model import KEYS
from nightjar.configuration.settings import Settings
from nightjar.rules.approval import APPROVE, DECLINE
from nightjar.rules.publishing import CONTROLS
from nightjar.rules.written_schema import Schema, rule_parts

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
        "$defs": rule_parts(),
    }


def case_file() -> Schema:
    """A case file (docs/reference/cases.md). What is none of our rules there may be a message in any other form."""
    time: Schema = {"type": ["string", "number"], "description": "ISO 8601, epoch milliseconds, or an offset: 5m."}
    control: Schema = {
        "type": "object",
        "properties": {"control": {"enum": sorted((*CONTROLS, APPROVE, DECLINE))}, "rule": {"type": "string"}},
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
        "$defs": rule_parts(),
    }


def _one_or_more(schema: Schema) -> Schema:
    """A list, or the one thing that stands for a list of one."""
    return {"if": {"type": "array"}, "then": {"type": "array", "items": schema}, "else": schema}
