"""Resolves and locates the jars that pyspark does not ship.

`ivy.xml` lists them in sets: `spark` (added to Spark's class path), one more for each kind of object store, and `kafka`
(a whole broker). The Ivy inside pyspark resolves them once into `<jars>/<hash of ivy.xml>/<set>/` (installation.py), so
a changed `ivy.xml` never uses an old folder. Other Ivy files, such as the one of tests, have folders of their own. A
program that is published as an archive (of type `archive`, a tar.gz) is unpacked into the folder of its set.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

from nightjar.installation import IMPORTED_FROM, jars_root
from nightjar.rules.errors import NightjarError

PROJECT = IMPORTED_FROM
IVY_XML = Path(__file__).with_name("ivy.xml")
# Beside an Ivy file: the SHA-256 of each jar, as `sha256sum` writes it. `python -m tools.jar_checksums` makes it.
CHECKSUMS = "jars.sha256"
# Beside an Ivy file that needs other settings than Ivy's own: where jars come from, and how they are looked up.
IVY_SETTINGS = "ivysettings.xml"


class JarsError(NightjarError):
    """Jars are missing, or could not be resolved."""


def jar_folder(ivy_xml: Path = IVY_XML) -> Path:
    """The folder with one subfolder per set of an Ivy file; it exists only once `resolve` has finished."""
    if not ivy_xml.is_file():
        raise JarsError(
            f"{ivy_xml.name} is missing",
            where=str(ivy_xml.parent),
            remedy="Install nightjar again, or restore it in the checkout",
        )
    return jars_root() / hashlib.sha256(ivy_xml.read_bytes()).hexdigest()[:12]


def jars(jar_set: str, ivy_xml: Path = IVY_XML) -> list[Path]:
    """The jar files of one set of an Ivy file, sorted by name.

    Raises:
        JarsError: they have not been resolved yet.
    """
    folder = jar_folder(ivy_xml) / jar_set
    if not folder.is_dir():
        raise JarsError(
            f"the {jar_set} jars are missing",
            where=str(folder),
            remedy="Run `nightjar jars` (in a checkout: `make jars`)",
        )
    return sorted(folder.glob("*.jar"))


def java() -> str:
    """Path of the java executable: that of JAVA_HOME if set, else the one on PATH.

    Raises:
        JarsError: none was found.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        place = f"JAVA_HOME={home}" if home else "PATH"
        raise JarsError("no java found", where=place, remedy="Install Java 17, or set JAVA_HOME to it")
    return found


def resolve(ivy_xml: Path = IVY_XML) -> Path:
    """Download every set of an Ivy file unless present, printing what is being downloaded.

    The sets appear all together or not at all: they are collected in a temporary folder that is renamed at the end,
    once each jar has the checksum that stands beside the Ivy file (if there are any).

    Raises:
        JarsError: Ivy failed (the message includes its errors), or a jar is not the one that was tested.
    """
    folder = jar_folder(ivy_xml)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".resolving-", dir=folder.parent) as temporary:
        staged = Path(temporary) / folder.name
        sets = ET.parse(ivy_xml).findall("configurations/conf")  # noqa: S314  a file of the repository
        for jar_set in (each.attrib["name"] for each in sets):
            _log(f"==> resolving the {jar_set} jars of {ivy_xml.name}")
            _run_ivy(ivy_xml, jar_set, staged)
        refuse_altered(staged, ivy_xml.with_name(CHECKSUMS))
        if not folder.is_dir():  # another process may have been faster
            staged.rename(folder)
    return folder


def refuse_altered(folder: Path, checksums: Path) -> None:
    """Raise JarsError unless the sets in the folder have exactly the jars of the file of checksums, if there is one."""
    if not checksums.is_file():
        return
    lines = (line.split("  ", 1) for line in checksums.read_text().splitlines())
    expected = {name: digest for digest, name in lines}
    found = checksums_of(folder)
    altered = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if altered:
        listed = ", ".join(altered[:5]) + (" and others" if len(altered) > 5 else "")
        raise JarsError(
            f"these are not the jars that were tested: {listed}",
            where=str(checksums),
            remedy="Look for the cause before you trust them: a repository or mirror that serves other files. After a "
            "change of ivy.xml, `python -m tools.jar_checksums` writes the checksums again",
        )


def checksums_of(folder: Path) -> dict[str, str]:
    """SHA-256 of the jars in a folder of sets, by `set/file`."""
    jars = sorted(folder.glob("*/**/*.jar"))
    return {jar.relative_to(folder).as_posix(): hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def _run_ivy(ivy_xml: Path, jar_set: str, into: Path) -> None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark is not installed", remedy="Install nightjar with its dependencies")
    ivy = next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    pattern = f"{into}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    options = ["-ivy", str(ivy_xml), "-confs", jar_set, "-retrieve", pattern, "-types", "jar", "bundle", "archive"]
    settings = ivy_xml.with_name(IVY_SETTINGS)
    if settings.is_file():
        options += ["-settings", str(settings)]
    problems: list[str] = []
    with subprocess.Popen(
        [java(), "-jar", str(ivy), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            text = line.strip()
            if text.startswith("downloading"):
                _log(f"    {text.removesuffix('...').strip()}")
            elif text.startswith(("WARN", "ERROR", "::")) or "problem" in text.lower():
                problems.append(text)
    for archive in (into / jar_set).glob("*.tar.gz"):
        _unpack(archive)
    found = list((into / jar_set).rglob("*.jar"))
    if process.returncode != 0 or not found:
        raise JarsError(
            f"Ivy could not resolve the {jar_set} jars:\n" + "\n".join(problems[-20:]),
            where=ivy_xml.name,
            remedy="Check that this machine reaches Maven Central (or your Ivy mirror), then run `nightjar jars` again",
        )
    _log(f"    {len(found)} jars")


def _unpack(archive: Path) -> None:
    """Replace an archive with what is in it."""
    try:
        with tarfile.open(archive) as packed:
            for member in packed:
                # extractall has `filter` from Python 3.11.4 on, and Debian's is older
                held = packed.extractfile(member) if member.isfile() else None
                if held is not None:
                    target = archive.parent / member.name
                    if not target.resolve().is_relative_to(archive.parent.resolve()):
                        raise tarfile.ExtractError(f"{member.name} leads out of the folder")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(held.read())
    except tarfile.TarError as error:
        raise JarsError(
            f"the archive cannot be unpacked: {error}",
            where=archive.name,
            remedy="Look for the cause before you trust it: a repository or mirror that serves another file",
        ) from error
    archive.unlink()


def _log(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    from nightjar.jvm.bridge import compile_bridge

    try:
        for given in map(Path, sys.argv[1:] or [str(IVY_XML)]):
            resolve(given)
        if not sys.argv[1:]:
            compile_bridge()
    except JarsError as error:
        sys.exit(f"error: {error}")
