"""Generates parts of docs/reference (`make docs`, `python -m tools.reference`).

Purpose: describe a command, a setting, a key of a rule or an access right once, in code, and show it in the docs.
How it works: a page has lines `<!-- generated: NAME -->` and `<!-- end -->`; the text between them is generated.
What it does not do: check the prose around these parts; tests/test_docs.py checks that the parts are current.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from nightjar.cli.app import app
from nightjar.configuration.settings import settings_table
from nightjar.kafka import acls
from nightjar.rules.measures import HELD, Measure
from nightjar.rules.model import Rule

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "reference"


def settings() -> str:
    """Every setting: name, default and help."""
    rows = [f"| `{name}` | {_code(default)} | {text} |" for name, default, text in settings_table()]
    return "\n".join(["| name | default | what it does |", "| --- | --- | --- |", *rows])


def rule_keys() -> str:
    """The keys of a rule."""
    return _keys(Rule, left_out=())


def measure_options() -> str:
    """The keys of a measure other than its function."""
    return _keys(Measure, left_out=HELD)


def commands() -> str:
    """Every command with its help, arguments and options."""
    return "\n".join(_commands(typer.main.get_command(app), "nightjar")).strip()


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "commands": ("commands.md", commands),
    "measure-options": ("rules.md", measure_options),
    "rule-keys": ("rules.md", rule_keys),
    "settings": ("settings.md", settings),
    "topics": ("security.md", acls.markdown),
}


def updated(page: str) -> str:
    """The page with this file name, with its generated parts updated."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, (where, made) in PARTS.items():
        if where == page:
            part = re.compile(rf"(?<=<!-- generated: {name} -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
            content = made().replace("\\", r"\\")  # re.sub interprets backslashes in a replacement
            text, found = part.subn(content, text)
            if found != 1:
                raise ValueError(f"{page} has {found} parts `generated: {name}`, expected one")
    return text


def pages() -> list[str]:
    """The file names of the pages that have generated parts."""
    return sorted({page for page, _ in PARTS.values()})


def _keys(model: type[BaseModel], left_out: tuple[str, ...]) -> str:
    rows = []
    for name, field in model.model_fields.items():
        if name not in left_out:
            default = "required" if field.is_required() else _code(_written(field.default))
            rows.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows])


def _written(default: Any) -> str:
    """A default as written in YAML; empty if the key has none."""
    if isinstance(default, bool):
        return str(default).lower()
    return "" if default is None or len(default) == 0 else str(default)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _commands(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        whole = f"{path} {name}"
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield from _command(command, whole)
            yield from _commands(command, whole)
        else:
            yield from _command(command, whole)


def _command(command: Any, whole: str) -> Iterator[str]:
    arguments = [found for found in command.params if found.param_type_name == "argument"]
    options = [found for found in command.params if found.param_type_name == "option" and not found.hidden]
    usage = [whole, *(_argument(found) for found in arguments), *(["[OPTIONS]"] if options else [])]
    yield from ["", f"## {whole}", "", "```text", " ".join(usage), "```", "", _prose(command.help or "")]
    if arguments or options:
        yield from ["", "| argument or option | default | meaning |", "| --- | --- | --- |"]
    for found in arguments:
        yield f"| `{_argument(found)}` | {_default(found)} | {_cell(found.help)} |"
    for found in options:
        yield f"| {_names(found)} | {_default(found)} | {_cell(found.help)} |"


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper().strip("[].")
    name = f"{name}..." if parameter.nargs != 1 else name
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    if default is None or default == "" or default is False or callable(default):
        return ""
    if parameter.secondary_opts:
        return f"`{parameter.opts[0] if default else parameter.secondary_opts[0]}`"
    return _code(str(getattr(default, "value", default)))


def _prose(text: str) -> str:
    """A command's help: its paragraphs, without the line breaks of the source."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    for name in pages():
        content = updated(name)
        (DOCS / name).write_text(content, encoding="utf-8")
