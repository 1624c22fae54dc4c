"""Takes rules of the catalogue over: in the names of a stream, checked, and into files."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nightjar.catalogue import Adaptation
from nightjar.configuration.settings import Settings
from nightjar.operations.rule_check import CheckedRules, checked
from nightjar.rules.display import yaml_text
from nightjar.rules.errors import SettingsError, shortened
from nightjar.rules.model import Rule, parse_rule, parse_rules
from nightjar.rules.streams import Stream, stream_named


def stream_for(adapted_from: str, name: str | None, streams: Mapping[str, Stream]) -> Stream:
    """The stream that a rule is to watch: the named one, or that of the catalogue's name.

    Raises:
        SettingsError: it is not declared.
    """
    if name is None and adapted_from not in streams:
        remedy = f"Name yours with --stream, or declare one. Streams are {', '.join(streams)}"
        raise SettingsError("is not a declared stream", where=adapted_from, remedy=remedy)
    return stream_named(adapted_from if name is None else name, streams)


def given_names(options: Iterable[str]) -> dict[str, str]:
    """The names of `--field NAME=YOURS` options.

    Raises:
        SettingsError: one is not of that form, or names a field again.
    """
    names: dict[str, str] = {}
    for option in options:
        name, equals, yours = option.partition("=")
        if not (name and equals and yours):
            remedy = "Write the catalogue's name and yours, as in --field card_id=pan_hash"
            raise SettingsError("is not NAME=YOURS", where=f"--field {shortened(option)}", remedy=remedy)
        if name in names:
            raise SettingsError("is given twice", where=f"--field {shortened(name)}", remedy="Give each name once")
        names[name] = yours
    return names


def check_adapted(settings: Settings, streams: Mapping[str, Stream], adaptation: Adaptation) -> CheckedRules:
    """The rule, checked as `nightjar rules check` does.

    Raises:
        RuleError: it does not fit the stream: everything wrong with it.
    """
    rule = parse_rule(adaptation.rule, streams)
    return checked(settings, streams, [rule], {}, where=f"rule {rule.id}")


def rule_text(adaptation: Adaptation, rule: Rule) -> str:
    """The rule as YAML, with where it comes from in a comment."""
    entry = adaptation.entry
    return f"# {entry.title}: see `nightjar rules catalogue show {entry.id}`.\n{yaml_text(rule)}"


def save(adaptation: Adaptation, rule: Rule, streams: Mapping[str, Stream], to: Path | None, case: Path | None) -> None:
    """Add the rule to a file of rules, which is made if there is none, and write its case to a new file: both or none.

    Raises:
        SettingsError: the file of rules is JSON or has a rule of this id, the case's file exists, or one cannot be
            written.
        RuleError: what is in the file of rules is not valid.
    """
    case_text = adaptation.case() if case is not None else ""
    if case is not None and case.exists():
        raise SettingsError("exists", where=str(case), remedy="Move it, or name another file")
    if to is not None:
        _append(to, _addition(to, rule, rule_text(adaptation, rule), streams))
    if case is not None:
        _append(case, case_text)


def _addition(file: Path, rule: Rule, text: str, streams: Mapping[str, Stream]) -> str:
    """What is to be added to a file of rules, so that the text becomes a YAML document of its own there."""
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as failure:
        raise SettingsError(f"cannot be read ({failure})", where=str(file), remedy="Name a file of rules") from None
    if before.lstrip()[:1] in ("{", "[") or file.suffix == ".json":
        raise SettingsError("is JSON, to which nothing can be added", where=str(file), remedy="Name a YAML file")
    has_rules = any(line.strip() and not line.lstrip().startswith("#") for line in before.splitlines())
    if has_rules and rule.id in (other.id for other in parse_rules(before, streams, where=str(file))):
        remedy = "Give the new one another id with --id, or name another file"
        raise SettingsError(f"has a rule {rule.id} already", where=str(file), remedy=remedy)
    addition = ("" if before.endswith("\n") or not before else "\n") + ("---\n" if has_rules else "") + text
    parse_rules(before + addition, streams, where=str(file))
    return addition


def _append(file: Path, text: str) -> None:
    try:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as failure:
        what = f"cannot be written ({failure.strerror or failure})"
        raise SettingsError(what, where=str(file), remedy="Name a file in a folder that exists") from None
