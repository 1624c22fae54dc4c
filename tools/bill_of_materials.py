"""Writes what an installation consists of: NOTICE, docs/reference/licences.md and, with a path, a CycloneDX bill.

`make docs` writes the first two, and a test compares them; `make dist` writes `sbom.cdx.json` beside the wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as BomComponent
from cyclonedx.model.component import ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from tools.components import PROJECT, Component, components

NOTICE = PROJECT / "NOTICE"
PAGE = PROJECT / "docs" / "reference" / "licences.md"

_NOTICE = """nightjar

Licensed under the Apache License, Version 2.0; see LICENSE.

This product includes, under docs/assets, software of others, whose licences are in docs/assets/licences:

  - mermaid (MIT) draws the diagrams of the documentation
  - iframe-worker (MIT) lets the documentation be searched from a local folder

An installation adds packages and jars of others, which are not part of this product. Their licences:

"""
_INTRODUCTION = """# Licences

What an installation consists of besides nightjar, generated from the metadata of the packages in `requirements.lock`
and of the jars in `jars.sha256` (`python -m tools.bill_of_materials`; a test compares it). `make dist` writes the same
as a CycloneDX bill of materials, `dist/sbom.cdx.json`, with the checksums of the jars. Packages that only development
needs are not listed, nor Java and Spark's own jars, which are part of the package `pyspark`.

No package is copied into nightjar's wheel. Those under the LGPL, the MPL and the Artistic License are used unchanged,
as separate packages that can be replaced.

"""


def notice(found: Iterable[Component]) -> str:
    """The file NOTICE: components by licence."""
    by_licence = groupby(sorted(found, key=lambda each: (each.licence, each.name)), key=lambda each: each.licence)
    lines = []
    for licence, of in by_licence:
        lines.append(f"  {licence}: " + ", ".join(sorted({each.name for each in of})))
    return _NOTICE + "\n".join(lines) + "\n"


def page(found: Iterable[Component]) -> str:
    """The page of the documentation."""
    packages = [each for each in found if each.kind == "pypi"]
    jars = [each for each in found if each.kind == "maven"]
    rows = [f"| {each.name} | {each.version} | {each.licence} |" for each in packages]
    jar_rows = [f"| {each.name} | {each.version} | {each.jar_set} | {each.licence} |" for each in jars]
    return "\n".join(
        [
            f"{_INTRODUCTION}## Packages\n\n| package | version | licence |\n| --- | --- | --- |",
            *rows,
            "\n## Jars\n\n| jar | version | set | licence |\n| --- | --- | --- | --- |",
            *jar_rows,
            "",
        ]
    )


def bill(found: Iterable[Component]) -> str:
    """The bill of materials as CycloneDX JSON."""
    licences, bom = LicenseFactory(), Bom()
    for each in found:
        qualifiers = {"type": "jar"} if each.kind == "maven" else {}
        purl = PackageURL(each.kind, None, each.name, each.version, qualifiers)
        digests = [HashType(alg=HashAlgorithm.SHA_256, content=each.digest)] if each.digest else []
        bom.components.add(
            BomComponent(
                name=each.name,
                version=each.version,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=f"{each.jar_set}:{purl}",
                hashes=digests,
                licenses=[licences.make_from_string(each.licence)],
            )
        )
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)


def main(path: Path | None) -> None:
    """Write NOTICE and the page, or with a path the bill alone."""
    found = components()
    if path is not None:
        path.write_text(bill(found))
        return
    NOTICE.write_text(notice(found))
    PAGE.write_text(page(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
