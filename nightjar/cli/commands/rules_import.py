"""`nightjar rules import`: rules in any form, as rules of ours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightjar.rules.errors import NightjarError, RuleError, SettingsError

if TYPE_CHECKING:
    from nightjar.rules.foreign import Forms
    from nightjar.rules.model import Rule
    from nightjar.rules.streams import Stream


@dataclass
class Imported:
    """The rules that files of messages lead to: each rule's last version with its place and notes."""

    rules: dict[str, "Rule"] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    refusals: list[NightjarError] = field(default_factory=list)

    def texts(self) -> Iterator[tuple[str, str]]:
        """(id, YAML text) of each rule, with where it comes from in a comment."""
        from nightjar.rules.display import yaml_text

        for rule_id, rule in self.rules.items():
            comments = [f"from {self.places[rule_id]}", *self.notes[rule_id]]
            yield rule_id, "".join(f"# {each}\n" for each in comments) + yaml_text(rule)


def read_files(files: list[Path], streams: "Mapping[str, Stream]", forms: "Forms") -> Imported:
    """The files' messages, judged in their order as the job would judge them."""
    from nightjar.rules.foreign.files import messages_of
    from nightjar.rules.publishing import Answer, judge
    from nightjar.rules.rulebook import RuleBook

    book, found = RuleBook(streams), Imported()
    for file in files:
        try:
            messages = messages_of(file.read_bytes(), str(file))
        except RuleError as refusal:
            found.refusals.append(refusal)
            continue
        except OSError as failure:
            what = f"cannot be read ({failure.strerror or failure})"
            found.refusals.append(SettingsError(what, where=str(file), remedy="Give the path of a file"))
            continue
        for place, message in messages:
            made, status = judge(book, message, 0, streams, forms=forms)
            if status.answer is Answer.REJECTED:
                found.refusals.append(NightjarError("\n".join(status.reasons), where=place))
                continue
            if made is not None:
                book.add(made, 0, running=())
                found.rules[made.rule.id], found.places[made.rule.id] = made.rule, place
                found.notes[made.rule.id] = []
            notes = found.notes[str(status.rule_id)]
            notes += [note for note in status.reasons if note not in notes]
    return found


def import_rules(
    files: Annotated[list[Path], typer.Argument(help="Files of rule messages.", show_default=False)],
    streams: Annotated[
        Path | None,
        typer.Option(help="TOML file of stream declarations, instead of the configured.", show_default=False),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to write one file per rule into.", show_default=False)] = None,
    publish: Annotated[bool, typer.Option("--publish", help="Publish the rules that are new or changed.")] = False,
) -> None:
    """Convert rules to YAML of ours: from the Flink demo's JSON or text, Debezium's change events, or our own form.

    A file holds one message or many: one per line, a list, or YAML documents. Of several messages about one rule the
    last decides. Without --to and --publish the rules are printed. What cannot be converted is reported with its line,
    and the exit code is 2; then nothing is written or published.
    """
    from nightjar.cli.rule_publishing import publish_rules
    from nightjar.configuration.settings import load_settings
    from nightjar.rules.states import State
    from nightjar.rules.streams import load_streams
    from nightjar.terminal.console import lines, result_console, show_error

    settings = load_settings(**({} if streams is None else {"streams": streams}))
    declared = load_streams(settings.streams)
    found = read_files(files, declared, settings.forms)
    console = result_console()
    if to is None and not publish:
        console.print(lines("---\n".join(text for _, text in found.texts())), soft_wrap=True, end="")
    for each in found.refusals:
        show_error(each)
    if found.refusals:
        raise typer.Exit(2)
    if to is not None:
        for path in _written(to, dict(found.texts())):
            console.print(f"{path}", soft_wrap=True)
    if publish:
        live = [rule for rule in found.rules.values() if rule.state is not State.RETIRED]
        publish_rules(settings, declared, live, author=None, reason=None)


def _written(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each rule's file. Raises SettingsError where one is there and has another content."""
    paths = {rule_id: folder / f"{rule_id}.yaml" for rule_id in texts}
    try:
        for rule_id, path in paths.items():
            if path.exists() and path.read_text(encoding="utf-8") != texts[rule_id]:
                raise SettingsError("exists and differs", where=str(path), remedy="Move it, or name another folder")
        folder.mkdir(parents=True, exist_ok=True)
        for rule_id, path in paths.items():
            path.write_text(texts[rule_id], encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise SettingsError(f"cannot be written ({failure})", where=str(folder), remedy="Name a folder") from None
    return list(paths.values())
