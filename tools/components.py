"""The software that an installation of nightjar consists of: Python packages and jars, with versions and licences.

How it works: packages are those that the declared dependencies (with the extra `airflow`) lead to in this environment,
which `make setup` has installed from requirements.lock; their own metadata names the licence. Jars are those of
jars.sha256; their manifests or POMs name theirs.

Known limitation: what a package or a jar contains of others is not looked into.
"""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from license_expression import get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nightjar.jvm.jars import CHECKSUMS, IVY_XML, jar_folder
from nightjar.rules.errors import NightjarError

PROJECT = Path(__file__).resolve().parents[1]

# Of distributions and jars that do not name their licence themselves, by the beginning of their name: as their
# projects' pages state it.
_STATED = {
    "argparse4j": "MIT",
    "delta-": "Apache-2.0",
    "hash4j": "Apache-2.0",
    "metrics-core": "Apache-2.0",
    "pcollections": "MIT",
    "re2j": "BSD-3-Clause",
    "reactive-streams": "MIT-0",
    "slf4j-api": "MIT",
    "text-unidecode": "Artistic-1.0-Perl OR GPL-2.0-or-later",
    "unitycatalog-": "Apache-2.0",
}

# What licences are called, to their SPDX ids; the first that is found counts.
_SPELLINGS = {
    r"apache": "Apache-2.0",
    r"artistic": "Artistic-1.0-Perl",
    r"lgplv2|lgpl-?2|lesser general public license v2": "LGPL-2.1-or-later",
    r"lgpl|lesser general public": "LGPL-3.0-or-later",
    r"mozilla|mpl": "MPL-2.0",
    r"bsd.?2|simplified": "BSD-2-Clause",
    r"bsd": "BSD-3-Clause",
    r"\bmit\b|mit-license": "MIT",
    r"python software foundation|psf": "PSF-2.0",
    r"\bisc\b": "ISC",
    r"unlicense": "Unlicense",
    r"zero/1\.0|cc0": "CC0-1.0",
    r"public domain": "CC0-1.0",
}


_EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


class UnknownLicenceError(NightjarError):
    """A component's licence could not be found."""


@dataclass(frozen=True)
class Component:
    """kind: `pypi` or `maven`; licence: an SPDX expression; digest: a jar's SHA-256, empty for packages; jar_set: which
    set of ivy.xml it is in."""

    kind: str
    name: str
    version: str
    licence: str
    digest: str = ""
    jar_set: str = ""


def components() -> list[Component]:
    """All of them, packages first. Raises UnknownLicenceError with the names of those whose licence is not stated."""
    found = [*_packages(), *_jars()]
    if unknown := [each.name for each in found if not each.licence]:
        raise UnknownLicenceError(
            f"no licence is stated by {', '.join(unknown)}",
            remedy="Look it up on the project's page and add it to _STATED in tools/components.py",
        )
    return found


def _packages() -> Iterator[Component]:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    given = [declared["dependencies"], *declared["optional-dependencies"].values()]
    wanted = [(Requirement(each), "") for some in given for each in some]
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()  # normalised
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for chosen in ("", *requirement.extras):
            if (name, chosen) in seen:
                continue
            seen.add((name, chosen))
            names.add(name)
            wanted += [(Requirement(each), chosen) for each in metadata.requires(name) or ()]
    for each in sorted(names):
        yield Component("pypi", each, metadata.version(each), _licence_of(metadata.metadata(each), each))


def _licence_of(about: metadata.PackageMetadata, name: str) -> str:
    fields = about.json
    if expression := fields.get("license_expression"):
        return str(expression)
    written = str(fields.get("license") or "").strip()
    is_expression = _EXPRESSION.fullmatch(written) and not get_spdx_licensing().validate(written).errors
    if _stated(name) or is_expression:
        return _stated(name) or written
    classified = [of.rpartition("::")[2].strip() for of in about.get_all("Classifier", []) if of.startswith("License")]
    texts = [text for text in classified if text != "OSI Approved"]
    return _spdx(texts or [written[:200]])


def _jars() -> Iterator[Component]:
    folder = jar_folder()
    for line in IVY_XML.with_name(CHECKSUMS).read_text().splitlines():
        digest, place = line.split("  ", 1)
        jar_set, file = place.split("/", 1)
        name, version = _named(file)
        yield Component("maven", name, version, _licence_in(folder / place, name), digest, jar_set)


def _named(file: str) -> tuple[str, str]:
    """`name-1.2.3.jar` as name and version."""
    found = re.fullmatch(r"(.+?)-(\d[\w.-]*)\.jar", file)
    return (found[1], found[2]) if found else (file.removesuffix(".jar"), "")


def _licence_in(jar: Path, name: str) -> str:
    with zipfile.ZipFile(jar) as archive:
        texts = []
        if "META-INF/MANIFEST.MF" in archive.namelist():
            manifest = re.sub(r"\r?\n ", "", archive.read("META-INF/MANIFEST.MF").decode(errors="replace"))
            texts += re.findall(r"^Bundle-License: *(.*)", manifest, re.MULTILINE)
        for member in sorted(archive.namelist()):
            if member.startswith("META-INF/maven/") and member.endswith("pom.xml"):
                pom = archive.read(member).decode(errors="replace")
                texts += re.findall(r"<license>.*?<name>(.*?)</name>", pom, re.DOTALL)
            elif re.fullmatch(r"(META-INF/)?LICENSE(-2\.0)?(\.txt)?", member):
                texts.append(archive.read(member)[:200].decode(errors="replace"))
    return _stated(name) or _spdx(texts)


def _spdx(texts: list[str]) -> str:
    """The licences that texts name, joined by AND; empty if one is not known."""
    found = [
        next((spdx for spelling, spdx in _SPELLINGS.items() if re.search(spelling, text, re.I)), "") for text in texts
    ]
    return " AND ".join(sorted({each for each in found if each}))


def _stated(name: str) -> str:
    return next((licence for begin, licence in _STATED.items() if name.startswith(begin)), "")
