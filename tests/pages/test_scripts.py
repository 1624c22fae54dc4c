"""The types of the pages' scripts, which are written in comments and checked by TypeScript."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from nightjar.jvm.jars import PROJECT
from tools.test_servers import node, tsc

SCRIPTS = sorted(
    file for folder in ("nightjar/pages/site", "expectations/site") for file in PROJECT.joinpath(folder).glob("*.js")
)
# Each script is a program of its own.
OPTIONS = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "--noUnusedLocals"),
    *("--target", "es2022", "--lib", "es2023,dom,dom.iterable", "--module", "esnext", "--moduleDetection", "force"),
)


def errors(scripts: Iterable[Path]) -> list[str]:
    """What TypeScript says of them."""
    command = [*node(), str(tsc()), *OPTIONS, *map(str, scripts)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) == (ran.stdout == ""), ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.slow
def test_the_types_of_all_scripts_hold() -> None:
    """They are checked while one writes, too: `// @ts-check` tells editors."""
    assert {file.name for file in SCRIPTS} == {"application.js", "editor.js", "pages.js"}
    assert [file.name for file in SCRIPTS if "// @ts-check\n" not in file.read_text()] == []
    assert errors(SCRIPTS) == []


@pytest.mark.slow
def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    """The check can fail."""
    script = tmp_path / "wrong.js"
    script.write_text('/** @param {number} n */\nconst half = (n) => n / 2;\nhalf("4");\n')
    assert [line.partition(": ")[2] for line in errors([script])] == [
        "error TS2345: Argument of type 'string' is not assignable to parameter of type 'number'."
    ]
