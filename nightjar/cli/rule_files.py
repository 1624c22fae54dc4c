"""Rules as files: reading them, and showing how they differ from versions."""

from pathlib import Path
from typing import TYPE_CHECKING

from nightjar.rules.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nightjar.rules.model import Rule
    from nightjar.rules.streams import Stream
    from nightjar.rules.versions import RuleVersion
    from nightjar.terminal.console import SafeConsole


def read_rules(files: list[Path], streams: "Mapping[str, Stream]") -> "list[Rule]":
    """The rules of some files.

    Raises:
        SettingsError: two have a rule of the same id.
    """
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
    from nightjar.rules.display import changed_lines
    from nightjar.terminal.console import line

    for each in changed_lines(before, after, title):
        style = "green" if each.startswith("+") else "red" if each.startswith("-") else ""
        console.print(line((each, style)), soft_wrap=True)
