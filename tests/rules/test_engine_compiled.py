"""Compiled kernels that are kept on disk are used as long as no kernel has changed."""

import importlib.util
import os
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path
from types import ModuleType

import pytest
from numba import config

from nightjar.rules.engine import compiled

SOURCE = """from nightjar.rules.engine.compiled import kernel
@kernel
def double(x):
    return 2 * x
"""


def loaded(file: Path) -> ModuleType:
    """The module, as a new process would have it, after a call of its kernel."""
    spec = importlib.util.spec_from_file_location("doubling", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.double(21) == 42
    return module


def test_what_is_kept_serves_until_any_kernel_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of other files, which Numba alone would not notice."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "doubling.py"
    file.write_text(SOURCE)
    assert loaded(file).double.stats.cache_misses
    assert loaded(file).double.stats.cache_hits
    monkeypatch.setattr(compiled, "sources", lambda: b"changed")
    assert not loaded(file).double.stats.cache_hits
    assert loaded(file).double.stats.cache_hits


def test_processes_at_the_same_time_compile_once(tmp_path: Path) -> None:
    """The first does, and the others wait for what it keeps."""
    (tmp_path / "doubling.py").write_text(SOURCE)
    program = (
        "import doubling, sys, time; from pathlib import Path; from nightjar.rules.engine import compiled\n"
        "compiled.on_compiling(lambda: time.sleep(1))\n"
        "Path(f'{sys.argv[1]}.ready').touch()\n"
        "while len([*Path.cwd().glob('*.ready')]) < 3: time.sleep(0.01)\n"
        "doubling.double(21); print(sum(doubling.double.stats.cache_misses.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(number)],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    assert sum(int(process.communicate()[0]) for process in processes) == 1


def test_copies_of_an_archive_share_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cluster makes one for each executor."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for copy in ("one", "two"):
        (tmp_path / copy).mkdir()
        with zipfile.ZipFile(tmp_path / copy / "code.zip", "w") as archive:
            archive.writestr("package/doubling.py", SOURCE)
        found = zipimport.zipimporter(str(tmp_path / copy / "code.zip" / "package")).find_spec("doubling")
        assert found is not None
        module = importlib.util.module_from_spec(found)
        assert found.loader is not None
        found.loader.exec_module(module)
        assert module.double(21) == 42
        assert bool(module.double.stats.cache_hits) == (copy == "two")


def test_compilation_is_announced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a kernel is compiled, and not where it is kept on disk."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "doubling.py"
    file.write_text(SOURCE)
    notices: list[str] = []
    compiled.on_compiling(lambda: notices.append("first"))
    assert loaded(file).double(1.5) == 3.0
    assert notices == ["first"]
    compiled.on_compiling(lambda: notices.append("second"))
    assert loaded(file).double.stats.cache_hits
    assert notices == ["first"]


def test_every_file_with_a_kernel_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the codes that they contain, and no other."""
    monkeypatch.setattr(compiled.resources, "files", lambda _: tmp_path)
    (tmp_path / "engine").mkdir()
    inner, plain, codes = (tmp_path / name for name in ("engine/inner.py", "engine/plain.py", "functions.py"))
    inner.write_text(SOURCE)
    plain.write_text("ONE = 1\n")
    codes.write_text("TWO = 2\n")
    before = compiled.sources.__wrapped__()
    plain.write_text("ONE = 2\n")
    assert compiled.sources.__wrapped__() == before
    inner.write_text(SOURCE.replace("2 * x", "x + x"))
    changed = compiled.sources.__wrapped__()
    assert changed != before
    codes.write_text("TWO = 3\n")
    assert compiled.sources.__wrapped__() != changed
