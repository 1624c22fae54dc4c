"""`nightjar rules check --format github`: errors at the lines of a pull request."""

from pathlib import Path

import pytest

from tests.support.command import run

pytestmark = pytest.mark.slow  # each starts the command line

BAD = """\
rules:
  - id: good
    stream: transactions
    group_by: [customer_id]
    when: "amount > 1"
  - id: bad
    stream: transactions
    group_by: [customer_id, ip]
    measures:
      spent:
        sum: terminal_id
        over: 1h
    when: >
      spent > 5 AND
  - stream: nowhere
    group_by: []
    when: "TRUE"
"""


def annotated(text: str, folder: Path) -> list[tuple[str, str]]:
    """(properties, message) of each annotation of a file that is refused."""
    (folder / "rules.yaml").write_text(text)
    shown = run("rules", "check", "rules.yaml", "--format", "github", code=2, folder=folder)
    assert shown.stderr == ""
    found = []
    for line in shown.stdout.splitlines():
        command, properties, message = line.split("::", 2)[0], *line.removeprefix("::error ").split("::", 1)
        assert command == ""
        found.append((properties, message))
    return found


def test_each_problem_stands_at_its_line(tmp_path: Path) -> None:
    """The line of the innermost part that the file has."""
    found = annotated(BAD, tmp_path)
    assert [properties for properties, _ in found] == [
        "file=rules.yaml,line=8,title=rule bad",
        "file=rules.yaml,line=11,title=rule bad",
        "file=rules.yaml,line=13,title=rule bad",
        "file=rules.yaml,line=15,title=rule number 3",
        "file=rules.yaml,line=15,title=rule number 3",
    ]
    assert found[0][1].startswith("rule bad, group_by: stream transactions has no field 'ip'. Fields are")
    assert "nothing stands after AND" in found[2][1]
    assert "%0A    spent > 5 AND" in found[2][1]


@pytest.mark.parametrize(
    ("text", "line"), [("id: a\nwhen: *x\n", 1), ("id: a\nwhen: {\n", 3), ("- 5\n- 6\n", 1), ("", 1)]
)
def test_a_file_that_cannot_be_read_has_one_too(text: str, line: int, tmp_path: Path) -> None:
    """At the line where reading stopped, if that is known."""
    assert annotated(text, tmp_path)[0][0].startswith(f"file=rules.yaml,line={line},")


def test_a_text_cannot_pose_as_another_command(tmp_path: Path) -> None:
    """Whoever opens a pull request writes the file."""
    hostile = 'id: "a\\n::error file=x::y, z: 100%"\nstream: s\ngroup_by: []\nwhen: "TRUE"\n'
    shown = annotated(hostile, tmp_path)
    assert all(properties.startswith("file=rules.yaml,line=") for properties, _ in shown)
    assert all(properties.count(",") == 2 for properties, _ in shown)


def test_good_rules_are_no_annotation(tmp_path: Path) -> None:
    """They are listed, as ever."""
    (tmp_path / "rules.yaml").write_text(BAD[: BAD.index("  - id: bad")])
    shown = run("rules", "check", "rules.yaml", "--format", "github", folder=tmp_path)
    assert shown.stdout == "rules.yaml: 1 rule: good\n"
