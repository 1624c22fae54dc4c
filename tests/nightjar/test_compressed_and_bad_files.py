"""Files that are compressed, arrays of JSON, other delimiters, and lines that cannot be used."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nightjar.cli.app import app
from nightjar.files import csv_rows, json_records, opening
from nightjar.files.bad_lines import BadLines
from nightjar.files.errors import EventsError
from nightjar.files.event_files import read_events
from nightjar.rules.errors import SettingsError
from nightjar.rules.streams import Stream, streams_from_mapping

STREAM: Stream = streams_from_mapping(
    {
        "s": {
            "event_id": "id",
            "event_time": "at",
            "entities": ["who"],
            "fields": {"id": "string", "at": "timestamp", "who": "string", "amount": "decimal(12,2)"},
        }
    },
    "test",
)["s"]
ROWS = [
    {"id": "1", "at": 0, "who": 'a,b;"c"', "amount": 1.5},
    {"id": "2", "at": 1000, "who": "two\nlines", "amount": 2.5},
    {"id": "3", "at": 2000, "who": "[{,", "amount": 3.5},
]


def as_csv(delimiter: str = ",") -> str:
    """The rows, with every value in quotes."""
    rows = [list(ROWS[0]), *([*row.values()] for row in ROWS)]
    cells = [[str(cell).replace('"', '""') for cell in row] for row in rows]
    return "".join(delimiter.join(f'"{cell}"' for cell in row) + "\n" for row in cells)


TEXTS = {
    "e.csv": as_csv(),
    "e.tsv": as_csv("\t"),
    "e.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "e.ndjson": "\n" + "\n\n".join(json.dumps(row) for row in ROWS),
    "lines.json": "\n \n" + "".join(json.dumps(row) + "\n" for row in ROWS),
    "array.json": "\n " + json.dumps(ROWS),
    "indented.json": "\ufeff" + json.dumps(ROWS, indent=2) + "\n\n",
}


def ids(path: Path, **options: object) -> list[str]:
    """Those of the events of a file."""
    found: list[str] = read_events(path, STREAM, **options)["id"].to_pylist()  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_its_events(tmp_path: Path, name: str, compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its format, compressed or not, and wherever the blocks that are read of it end."""
    content = TEXTS[name].encode()
    path = tmp_path / (f"{name}.GZ" if compressed else name)
    path.write_bytes(gzip.compress(content) if compressed else content)
    expected = read_events(path, STREAM)
    assert [row["who"] for row in expected.to_pylist()] == [row["who"] for row in ROWS]
    for block in (3, 7):
        monkeypatch.setattr(json_records, "_AT_ONCE", block)
        monkeypatch.setattr(opening, "_AT_ONCE", block)
        monkeypatch.setattr(csv_rows, "_BLOCK", 40 + block)
        assert read_events(path, STREAM).equals(expected)


@pytest.mark.parametrize(("delimiter", "name"), [(";", "e.csv"), ("|", "e.csv"), ("\t", "e.csv"), (",", "e.tsv")])
def test_other_delimiters(tmp_path: Path, delimiter: str, name: str) -> None:
    """One that is given counts; without it the error names the one that the file seems to have."""
    (tmp_path / name).write_text(as_csv(delimiter))
    assert ids(tmp_path / name, delimiter=delimiter) == ["1", "2", "3"]
    (tmp_path / name).write_text("id,at,who,amount\n1,0,a,1\n".replace(",", delimiter))
    with pytest.raises(EventsError, match=r"has a single column by the delimiter .*Try --delimiter (';'|'\|'|tab|',')"):
        read_events(tmp_path / name, STREAM)


@pytest.mark.parametrize("text", ["", ";;", "a", '"', "\n", "é"])
def test_what_is_no_delimiter_is_refused(text: str) -> None:
    """Before anything is read."""
    with pytest.raises(SettingsError, match="is not a delimiter"):
        app(["replay", "e.csv", "--stream", "transactions", "--delimiter", text], standalone_mode=False)


def cut(path: Path) -> Path:
    content = gzip.compress(os.urandom(5000).hex().encode())
    return wrote(path.with_name("e.jsonl.gz"), content[: len(content) // 2])


def damaged(path: Path) -> Path:
    content = bytearray(gzip.compress(TEXTS["e.csv"].encode()))
    content[-8] ^= 1
    return wrote(path.with_name("e.csv.gz"), bytes(content))


def wrote(path: Path, content: bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def delta(path: Path) -> Path:
    (path / "_delta_log").mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (cut, "is cut off: its compressed content has no end"),
        (damaged, "is damaged: CRC check failed"),
        (lambda path: wrote(path.with_name("e.csv.gz"), b"id,at\n"), "is not compressed with gzip.*Leave .gz out"),
        (lambda path: wrote(path.with_name("e.csv.gz"), b""), "is empty, not even compressed"),
        (lambda path: wrote(path.with_name("e.csv.gz"), gzip.compress(b"")), "is empty. A CSV file begins with"),
        (lambda path: wrote(path.with_name("e.csv"), b"\n\n"), "is empty. A CSV file begins with"),
        (
            lambda path: wrote(path.with_name("e.csv"), "id,at\n1,0\n".encode("utf-16")),
            "is in UTF-16. Save it as UTF-8",
        ),
        (
            lambda path: wrote(path.with_name("e.jsonl"), "{}\n".encode("utf-16-be").join([b"\xfe\xff", b""])),
            "is in UTF-16",
        ),
        (
            lambda path: wrote(path.with_name("e.csv"), b"id,b\xe4r\n1,0\n"),
            "has the column 'b.r', whose name is not in UTF-8",
        ),
        (lambda path: wrote(path.with_name("e.json"), gzip.compress(b"[]")), "is compressed.*Name it e.json.gz"),
        (lambda path: wrote(path.with_name("e.parquet.gz"), b""), "Parquet, which is compressed within"),
        (lambda path: wrote(path.with_name("e.gz"), b""), "has an unknown extension"),
        (lambda path: wrote(path.with_name("e.json"), b'[{"id": 1'), "line 1: is cut off: its array is not closed"),
        (lambda path: wrote(path.with_name("e.json"), b'[\n{"id": "1'), "line 1: is cut off"),
        (lambda path: wrote(path.with_name("e.json"), b"[]\n\n7"), "line 3: something follows the array"),
        (lambda path: wrote(path.with_name("e.json"), b"[,]"), "line 1: not_json: the record is empty"),
        (lambda path: wrote(path.with_name("e.json"), b'{\n"id": 1\n}'), "line 1: not_json"),
        (lambda path: wrote(path.with_name("e.json"), b"[[1],\n 2]"), "line 1: not_an_object"),
        (lambda path: wrote(path.with_name("e.csv"), b"id,at,who,amount\n1,0,a\n"), "line 2: has 3 columns, and the"),
        (lambda path: wrote(path.with_name("e.csv"), b"id,at,who,amount\n1,0,\xff,1\n"), "line 2: who: is not UTF-8"),
        (delta, "is a table of Delta, some of whose files may not count"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, make: Callable[[Path], Path], expected: str) -> None:
    """With its place and a remedy."""
    path = make(tmp_path / "in")
    with pytest.raises(EventsError, match=expected) as refused:
        read_events(path, STREAM)
    assert str(path) in refused.value.where
    assert refused.value.remedy


def test_a_bomb_is_refused_in_little_memory(tmp_path: Path) -> None:
    """In one line or in many: hundreds of megabytes would come of one."""
    for name in ("e.csv.gz", "e.json.gz", "e.jsonl.gz"):
        begin, part = (b"id,at,who,amount\n", b"1,0,a,1\n" * 10_000) if "csv" in name else (b"[", b" " * 100_000)
        (tmp_path / name).write_bytes(gzip.compress(begin) + gzip.compress(part) * 3000)
    # Not the peak of `getrusage`, which counts what the process that starts this one holds.
    program = (
        "import re, sys; from pathlib import Path; import tests.nightjar.test_compressed_and_bad_files as t\n"
        "t.opening._SMALL = 32 << 20; t.opening._MOST_RATIO = 20\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    try: t.read_events(path, t.STREAM)\n"
        "    except t.EventsError as error: print(error)\n"
        "print(re.search('VmHWM:[^0-9]*([0-9]+) kB', Path('/proc/self/status').read_text())[1])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    *messages, kilobytes = done.stdout.strip().splitlines()
    expected = ["expands to more than 20 times its size", *["has a record of more than 16 MB"] * 2]
    assert all(each in message for each, message in zip(expected, messages, strict=True)), messages
    assert int(kilobytes) < 600 << 10


def test_lines_that_cannot_be_used_are_left_out_and_counted(tmp_path: Path) -> None:
    """Up to a limit, over all files of a folder; each with its line and what is wrong with it."""
    folder = tmp_path / "in"
    lines = [
        "id,at,who,amount",
        "1,0,a,1",
        "2,0,a",
        '3,soon,"a\nb",x',
        "",
        "4,0,a,1",
        ",0,a,1",
        "6,0,a,1,2",
        "7,0,a,9e99",
    ]
    wrote(folder / "a.csv", ("\n".join(lines) + "\n8,0,\xff,1\n9,0,a,2\n").encode("latin-1"))
    records = [b'{"id":"10","at":0,"who":"a","amount":1}', b"{", b'{"id":"12","at":0,"who":"a"}', b""]
    wrote(folder / "b.jsonl.gz", gzip.compress(b"\n".join(records)))
    wrote(folder / "c.json", b'[{"id":"13"},\n7,\n{"id":"14","at":0,"who":"a","amount":1}]')
    columns = {
        "id": ["15", None, "17", "18"],
        "at": [0] * 4,
        "who": ["a"] * 4,
        "amount": [1.5, 1.5, 1.555, float("inf")],
    }
    pq.write_table(pa.table(columns), folder / "d.parquet")
    bad = BadLines(13)
    assert ids(folder, bad=bad) == ["1", "4", "9", "10", "14", "15"]
    assert bad.count == 13
    assert [example.removeprefix(f"{folder}/").partition(": write it")[0][:90] for example in bad.examples] == [
        "a.csv: line 3: has 3 columns, and the header has 4",
        "a.csv: line 9: has 5 columns, and the header has 4",
        "a.csv: line 4: at (string): 'soon' cannot be read as timestamp",
        "a.csv: line 8: id: is NULL",
        "a.csv: line 10: amount (string): '9e99' cannot be read as decimal(12,2): at most 10 digits",
    ]
    with pytest.raises(EventsError, match=r"d\.parquet: row 4: .*Too many lines are bad.*Only 12 may be left out"):
        ids(folder, bad=BadLines(12))


def test_a_file_of_bad_lines_alone(tmp_path: Path) -> None:
    """Is no event; and the lines that are shown are right without quotes, too."""
    path = wrote(tmp_path / "e.csv", b"id,at,who,amount\r\n\r\n1,x,a,1\r\n2\r\n\r\n3,0,a,x\r\n")
    bad = BadLines(3)
    assert ids(path, bad=bad) == []
    assert [example.split(": ")[1] for example in bad.examples] == ["line 4", "line 3", "line 6"]


def test_the_command_reports_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error with examples, and how many in the summary."""
    lines = ["transaction_id;event_time;customer_id;terminal_id;amount", "1;2026-01-05T12:00:00Z;7;3;30.00"]
    wrote(tmp_path / "e.csv.gz", gzip.compress("\n".join([*lines, *(f"{n};x;7;3;1" for n in range(2, 9))]).encode()))
    rule = {"id": "r", "stream": "transactions", "group_by": ["customer_id"], "when": "amount > 25"}
    (tmp_path / "r.json").write_text(json.dumps(rule))
    command = ["evaluate", "--stream", "transactions", "--rules", str(tmp_path / "r.json")]
    command += ["--events", str(tmp_path / "e.csv.gz"), "--out", str(tmp_path / "o.parquet"), "--delimiter", ";"]
    app([*command, "--json", "--max-bad-lines", "7"], standalone_mode=False)
    shown = capsys.readouterr()
    assert {"events": 1, "bad_lines": 7, "rows": 1}.items() <= json.loads(shown.out).items()
    assert "7 lines left out, which cannot be used" in shown.err
    assert "e.csv.gz: line 3: event_time (string): 'x' cannot be read as timestamp" in shown.err
    assert "and 2 more" in shown.err
    app([*command, "--max-bad-lines", "7"], standalone_mode=False)
    assert "1 event; 7 bad lines left out" in capsys.readouterr().out
    with pytest.raises(EventsError, match="line 3: event_time"):
        app(command, standalone_mode=False)
