"""Reads rules in any form from files of messages, as the job would read them, and writes them as files of ours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightjar.rules.display import yaml_text
from nightjar.rules.errors import NightjarError, RuleError, SettingsError
from nightjar.rules.foreign import Forms
from nightjar.rules.foreign.files import messages_of
from nightjar.rules.model import Rule
from nightjar.rules.publishing import Answer, judge
from nightjar.rules.rulebook import RuleBook
from nightjar.rules.streams import Stream


@dataclass
class Imported:
    """The rules that files of messages lead to: each rule's last version with its place and notes."""

    rules: dict[str, Rule] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    refusals: list[NightjarError] = field(default_factory=list)

    def texts(self) -> Iterator[tuple[str, str]]:
        """(id, YAML text) of each rule, with where it comes from in a comment."""
        for rule_id, rule in self.rules.items():
            comments = [f"from {self.places[rule_id]}", *self.notes[rule_id]]
            yield rule_id, "".join(f"# {each}\n" for each in comments) + yaml_text(rule)


def read_files(files: list[Path], streams: Mapping[str, Stream], forms: Forms) -> Imported:
    """The files' messages, judged in their order as the job would judge them."""
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


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each rule's file into a folder.

    Raises:
        SettingsError: one is there and has another content.
    """
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
