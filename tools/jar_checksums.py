"""Writes the checksums of the resolved jars beside ivy.xml; `nightjar jars` refuses others.

Run it after a change of ivy.xml, on jars that you have reason to trust: Ivy has checked each against the checksum that
its repository states, which protects against damage on the way and not against a repository that was altered.
"""

from nightjar.jvm.jars import CHECKSUMS, IVY_XML, checksums_of, jar_folder, jars


def text() -> str:
    """The file, as `sha256sum` writes it. Raises JarsError if the jars have not been resolved."""
    jars("spark")
    return "".join(f"{digest}  {name}\n" for name, digest in checksums_of(jar_folder()).items())


if __name__ == "__main__":
    IVY_XML.with_name(CHECKSUMS).write_text(text())
