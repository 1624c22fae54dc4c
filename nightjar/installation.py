"""Finds the files that nightjar ships beside its code, in a checkout and in an installed wheel alike.

How it works: in a checkout they are at its top; the wheel has them inside the package, in `shipped`.
"""

import os
import sys
from pathlib import Path

# The folder that nightjar is imported from: a checkout, or site-packages.
IMPORTED_FROM = Path(__file__).resolve().parents[1]
_IN_WHEEL = Path(__file__).resolve().parent / "shipped"

# Names another folder for the jars; not a setting, since other tools read it too.
JAR_DIR = "NIGHTJAR_JAR_DIR"


def package_files() -> list[Path]:
    """The files of the package; in a checkout some of its folders are links to folders at the top."""
    walked = os.walk(Path(__file__).resolve().parent, followlinks=True)
    return sorted(Path(folder) / name for folder, _, names in walked for name in names if "__pycache__" not in folder)


def is_installed() -> bool:
    """Whether nightjar runs from a wheel, and not from a checkout."""
    return _IN_WHEEL.is_dir()


def shipped(name: str) -> Path:
    """A file or folder that nightjar ships: `dags`, `examples`, `plugins`."""
    return (_IN_WHEEL if is_installed() else IMPORTED_FROM) / name


def jars_root() -> Path:
    """Where resolved jars are kept: `.jars` of the checkout, `share/nightjar/jars` of the environment that has the
    wheel, or the folder that NIGHTJAR_JAR_DIR names."""
    if named := os.environ.get(JAR_DIR):
        return Path(named)
    return Path(sys.prefix) / "share" / "nightjar" / "jars" if is_installed() else IMPORTED_FROM / ".jars"
