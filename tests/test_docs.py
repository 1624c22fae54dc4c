"""The documentation: what it cites exists, what is generated is current, and the site needs no network."""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from nightjar.cases import read_case
from nightjar.cli.app import app
from nightjar.rules.documents import read_documents
from nightjar.rules.model import parse_rule
from nightjar.rules.streams import load_streams
from tools import reference

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
SITE_LIMIT = 120  # seconds


@cache
def tracked() -> list[Path]:
    """The text files of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kinds = {".md", ".py", ".toml", ".yaml", ".yml"}
    return [path for path in map(ROOT.joinpath, listed.splitlines()) if path.suffix in kinds and path.is_file()]


def statements() -> list[str]:
    """The statements of the semantics, such as S4 and S4.3, in their order."""
    anchors = re.findall(r'<a id="(s\d+(?:-\d+)?)"></a>', (DOCS / "semantics.md").read_text(encoding="utf-8"))
    return [anchor.upper().replace("-", ".") for anchor in anchors]


def test_statements_are_numbered_in_order_and_named_as_their_anchors() -> None:
    """A citation leads to one place."""
    text = (DOCS / "semantics.md").read_text(encoding="utf-8")
    found = statements()
    assert len(found) == len(set(found))
    chapters = [name for name in found if "." not in name]
    assert chapters == sorted(chapters, key=lambda name: int(name[1:]))
    for chapter in chapters:
        parts = [name for name in found if name.startswith(f"{chapter}.")]
        assert parts == [f"{chapter}.{number}" for number in range(1, len(parts) + 1)]
    assert re.findall(r'<a id="[^"]+"></a>(?:\*\*)?(S\d+(?:\.\d+)?)\b', text) == found


def test_cited_statements_exist() -> None:
    """In code, tests, case files and docs, S8.2 is a statement of docs/semantics.md; no other numbering is left."""
    known = set(statements())
    wrong = []
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            cited = re.findall(r"(?<![\w.'/-])S\d{1,2}(?:\.\d+)?(?![\w-])", line)
            old = re.findall(r"\b[Ll]aws? \d+|[Dd]esign section", line) if path != Path(__file__) else []
            wrong += [f"{path.relative_to(ROOT)}:{number}: {name}" for name in [*cited, *old] if name not in known]
    assert wrong == []


@pytest.mark.parametrize("page", reference.pages())
def test_generated_parts_are_current(page: str) -> None:
    """`make docs` writes them."""
    written = (reference.DOCS / page).read_text(encoding="utf-8")
    assert written == reference.updated(page), f"docs/reference/{page} is out of date: run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths of the repository, modules after `python -m`, and targets of make."""
    text = page.read_text(encoding="utf-8")
    folders = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"))
    paths = re.findall(rf"(?<![\w./-])((?:{folders})/[\w./-]*\w)", text)
    gone = [path for path in paths if not (ROOT / path).exists() and path.split("/")[0] not in ("build", "dist")]
    for module in re.findall(r"python -m ((?:checks|tools)[\w.]*)", text):
        path = ROOT / module.replace(".", "/")
        gone += [module] * (not path.with_suffix(".py").exists() and not (path / "__main__.py").exists())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    gone += [
        f"make {name}" for name in re.findall(r"(?:^    |`)make ([a-z-]+)", text, re.MULTILINE) if name not in targets
    ]
    assert [name for name in gone if "NAME" not in name and "my_" not in name and "my-" not in name] == []


def commands_of(page: Path) -> list[str]:
    """The lines of a page's code blocks, and its code spans, that call nightjar."""
    text = page.read_text(encoding="utf-8")
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks += re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    called = re.compile(r"^(?:NIGHTJAR_\w+=\S+ )?(?:\.venv/bin/)?nightjar ([a-z].*)$", re.MULTILINE)
    lines = [line for block in blocks for line in called.findall(block)]
    return [*lines, *re.findall(r"`(?:\.venv/bin/)?nightjar ([a-z][^`]*)`", text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_docs_exist_with_their_options(page: Path) -> None:
    """`nightjar rules publish FILE --wait` is a command that has the option."""
    unknown = []
    for line in commands_of(page):
        command: Any = typer.main.get_command(app)
        words = shlex.split(line, comments=True)
        while words and hasattr(command, "commands") and words[0].split("|")[0] in command.commands:
            command = command.commands[words.pop(0).split("|")[0]]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        if hasattr(command, "commands") and words and re.fullmatch(r"[a-z]+", words[0]):
            unknown.append(line)
        given = [word.strip("[]").split("=")[0] for word in words if word.strip("[").startswith("--")]
        unknown += [f"{line}: {name}" for name in given if name not in {*options, "--help"}]
    assert unknown == []


def test_the_first_rule_leaves_nothing_in_the_checkout() -> None:
    """What the README's commands write is in a folder that git ignores."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## A first rule.*?(?=^## )", text, re.DOTALL | re.MULTILINE)
    written = re.findall(r"^    .*?(?:--out|>) (\S+)", section, re.MULTILINE)
    assert len(written) == 3
    for path in written:
        asked = subprocess.run(["git", "check-ignore", "--quiet", path], cwd=ROOT, check=False)
        assert asked.returncode == 0, f"{path} stays in the checkout"


def test_rules_of_the_tutorial_can_be_published() -> None:
    """A block of YAML there is a rule file, or a case."""
    found = 0
    for page in sorted((DOCS / "tutorial").glob("*.md")):
        for text in re.findall(r"^```yaml.*?\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for written in read_documents(text):
                if "steps" in written:
                    read_case(text, str(page))
                else:
                    parse_rule(written, load_streams())
                found += 1
    assert found


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """A broken link or anchor fails the build; scripts, styles, fonts and images are files of the site."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SITE_LIMIT,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    loaded = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?(https?:)?//|<link\b[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?(https?:)?//"
    )
    pages = list(tmp_path.rglob("*.html"))
    assert pages
    assert [str(page) for page in pages if loaded.search(page.read_text(encoding="utf-8"))] == []
    assert (tmp_path / "search" / "search_index.js").stat().st_size > 0
