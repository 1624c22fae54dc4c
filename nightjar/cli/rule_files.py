"""Rules as files: reading them, and showing them as people write them."""

from pathlib import Path
from typing import TYPE_CHECKING

from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nightjar.cli.console import SafeConsole
    from nightjar.configuration.settings import Settings
    from nightjar.rules.model import Rule
    from nightjar.rules.streams import Stream
    from nightjar.rules.versions import RuleVersion


def configured() -> "tuple[Settings, Mapping[str, Stream]]":
    """The settings, and the declared streams."""
    from nightjar.configuration.settings import load_settings
    from nightjar.rules.streams import load_streams

    settings = load_settings()
    return settings, load_streams(settings.streams)


def read_rules(files: list[Path], streams: "Mapping[str, Stream]") -> "list[Rule]":
    """The rules of some files. Raises SettingsError if two have a rule of the same id."""
    from nightjar.rules.model import load_rules

    found: dict[str, tuple[Path, Rule]] = {}
    for file in files:
        for rule in load_rules(file, streams):
            if rule.id in found:
                raise SettingsError(
                    f"rule {rule.id} is also in {found[rule.id][0]}",
                    where=str(file),
                    remedy="Give each rule a unique id",
                )
            found[rule.id] = file, rule
    return [rule for _, rule in found.values()]


def show_changes(console: "SafeConsole", before: "RuleVersion | None", after: "Rule", title: str) -> None:
    """Print the lines in which a rule differs from a version of it. title: of the rule."""
    from nightjar.cli.console import line

    for each in changed_lines(before, after, title):
        style = "green" if each.startswith("+") else "red" if each.startswith("-") else ""
        console.print(line((each, style)), soft_wrap=True)


def changed_lines(before: "RuleVersion | None", after: "Rule", title: str) -> list[str]:
    """The lines of a unified diff between a version of a rule (None: there is none) and the rule."""
    import difflib

    lines = _lines(before.rule) if before is not None else []
    of_before = f"{after.id} version {before.version}" if before is not None else "(not published)"
    return list(difflib.unified_diff(lines, _lines(after), of_before, title, lineterm="", n=99))


def _lines(rule: "Rule") -> list[str]:
    return yaml_text(rule, provenance=False).splitlines()


def yaml_text(rule: "Rule", *, provenance: bool = True) -> str:
    """A rule as people write it; characters that would not be shown are escaped."""
    import yaml

    from nightjar.rules.model import PROVENANCE, rule_to_mapping

    written = {key: value for key, value in rule_to_mapping(rule).items() if provenance or key not in PROVENANCE}
    for readable in (True, False):
        text: str = yaml.safe_dump(written, sort_keys=False, default_flow_style=None, allow_unicode=readable, width=110)
        if all(line.isprintable() for line in text.splitlines()):
            break
    return text
