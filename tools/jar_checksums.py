"""Writes the checksums of resolved jars beside each Ivy file; `nightjar jars` refuses others.

Run it after a change of ivy.xml, on jars that you have reason to trust: Ivy has checked each against the checksum that
its repository states, which protects against damage on the way and not against a repository that was altered.
"""

from pathlib import Path

from nightjar.jvm.jars import CHECKSUMS, IVY_XML, PROJECT, checksums_of, resolve

# Ours, and those of servers that docker-compose.yaml builds.
IVY_FILES = (
    IVY_XML,
    PROJECT / "deploy" / "compose" / "object-store" / "ivy.xml",
    PROJECT / "deploy" / "compose" / "connect" / "ivy.xml",
    PROJECT / "deploy" / "compose" / "schema-registry" / "ivy.xml",
)


def text(ivy_xml: Path) -> str:
    """The file, as `sha256sum` writes it. Raises JarsError if the jars cannot be resolved."""
    return "".join(f"{digest}  {name}\n" for name, digest in checksums_of(resolve(ivy_xml)).items())


if __name__ == "__main__":
    for each in IVY_FILES:
        each.with_name(CHECKSUMS).write_text(text(each))
