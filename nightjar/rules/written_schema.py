"""The JSON Schema of a rule as people write it, so that editors complete keys and mark errors.

How it works: keys, types, limits and descriptions are those of the pydantic models. A measure is shown as it is written
(`{sum: amount, over: 1h}`) and not as it is held.

What it does not do: fields, types and conditions, which need the stream's declaration; `nightjar rules check` looks at
those.
"""

from typing import Any

from nightjar.rules.functions import Function
from nightjar.rules.measures import HELD, MAX_STEPS, MIN_STEPS
from nightjar.rules.model import Rule

Schema = dict[str, Any]


def rule_parts() -> Schema:
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
