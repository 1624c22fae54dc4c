"""What nightjar ships, and what it is installed with: licences, the bill of materials, and the jars' checksums."""

import hashlib
import io
import json
import tarfile
import tomllib
from pathlib import Path

import pytest

from nightjar.jvm.jars import CHECKSUMS, IVY_SETTINGS, IVY_XML, JarsError, jar_folder, jars, refuse_altered, resolve
from tools import bill_of_materials, jar_checksums
from tools.components import PROJECT, Component, components


@pytest.fixture(scope="module")
def found() -> list[Component]:
    """All components."""
    return components()


@pytest.mark.slow
def test_notice_and_licences_are_current(found: list[Component]) -> None:
    """`python -m tools.bill_of_materials` writes them."""
    assert bill_of_materials.NOTICE.read_text() == bill_of_materials.notice(found)
    assert bill_of_materials.PAGE.read_text() == bill_of_materials.page(found)


@pytest.mark.slow
def test_the_bill_names_every_package_and_jar_with_its_licence(found: list[Component]) -> None:
    """Jars with the checksum that is verified."""
    bill = json.loads(bill_of_materials.bill(found))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert len(bill["components"]) == len(found)
    assert all(each["licenses"] for each in bill["components"])
    digests = {each["hashes"][0]["content"] for each in bill["components"] if each["purl"].startswith("pkg:maven/")}
    assert digests == {line.split()[0] for line in IVY_XML.with_name(CHECKSUMS).read_text().splitlines()}
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert len(declared) < sum(each.kind == "pypi" for each in found)


@pytest.mark.slow
def test_no_licence_forbids_what_an_installation_does(found: list[Component]) -> None:
    """A new dependency under another copyleft licence is noticed here, before anybody ships it."""
    asks_for_more = {each.name for each in found if "GPL" in each.licence}
    assert asks_for_more == {"crc32c", "psycopg", "psycopg-binary", "text-unidecode"}, (
        "LGPL, separate packages; GPL or Artistic, by choice"
    )


@pytest.mark.parametrize("ivy_xml", jar_checksums.IVY_FILES, ids=lambda file: file.parent.name)
def test_checksums_are_those_of_the_jars_in_use(ivy_xml: Path) -> None:
    """`python -m tools.jar_checksums` writes them after a change of an Ivy file."""
    assert ivy_xml.with_name(CHECKSUMS).read_text() == jar_checksums.text(ivy_xml)
    refuse_altered(jar_folder(ivy_xml), ivy_xml.with_name(CHECKSUMS))


@pytest.mark.parametrize("change", ["altered", "missing", "added"])
def test_a_jar_that_was_not_tested_is_refused(tmp_path: Path, change: str) -> None:
    """Altered on its way, or beside the others."""
    jar, checksums = tmp_path / "new" / "spark" / "a-1.jar", tmp_path / CHECKSUMS
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"tested")
    checksums.write_text(f"{hashlib.sha256(b'tested').hexdigest()}  spark/a-1.jar\n")
    refuse_altered(tmp_path / "new", checksums)
    match change:
        case "altered":
            jar.write_bytes(b"other")
        case "missing":
            jar.unlink()
        case _:
            jar.with_name("b-1.jar").write_bytes(b"new")
    with pytest.raises(JarsError, match=r"not the jars that were tested: spark/[ab]-1\.jar"):
        refuse_altered(tmp_path / "new", checksums)


def ivy_file_of_an_archive(folder: Path, name: str) -> Path:
    """An Ivy file that asks for an archive, of which one file has that name, from a repository in the folder."""
    file = folder / "server-1.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for member in ("run.jar", name):
            entry = tarfile.TarInfo(member)
            entry.size = len(member)
            archive.addfile(entry, io.BytesIO(member.encode()))
    (folder / IVY_SETTINGS).write_text(
        f"""
        <ivysettings>
          <settings defaultResolver="folder"/>
          <caches defaultCacheDir="{folder}/cache"/>
          <resolvers>
            <filesystem name="folder"><artifact pattern="{folder}/[artifact]-[revision].[ext]"/></filesystem>
          </resolvers>
        </ivysettings>
        """
    )
    ivy_xml = folder / "ivy.xml"
    ivy_xml.write_text(
        """
        <ivy-module version="2.0">
          <info organisation="nightjar" module="tests"/>
          <configurations><conf name="server"/></configurations>
          <dependencies>
            <dependency org="tests" name="server" rev="1" conf="server->default">
              <artifact name="server" type="archive" ext="tar.gz"/>
            </dependency>
          </dependencies>
        </ivy-module>
        """
    )
    return ivy_xml


@pytest.mark.slow
def test_an_archive_is_unpacked_and_its_jars_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in its folders, too."""
    monkeypatch.setenv("NIGHTJAR_JAR_DIR", str(tmp_path / "jars"))
    ivy_xml = ivy_file_of_an_archive(tmp_path, "lib/a.jar")
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("lib/a.jar", "run.jar")}
    lines = {name: f"{digest}  server/{name}\n" for name, digest in digests.items()}
    ivy_xml.with_name(CHECKSUMS).write_text(lines["run.jar"])
    with pytest.raises(JarsError, match=r"not the jars that were tested: server/lib/a\.jar"):
        resolve(ivy_xml)
    assert not jar_folder(ivy_xml).exists()
    ivy_xml.with_name(CHECKSUMS).write_text("".join(lines.values()))
    resolve(ivy_xml)
    (unpacked,) = jars("server", ivy_xml)
    assert (unpacked.parent / "lib" / "a.jar").read_text() == "lib/a.jar"
    assert not list(jar_folder(ivy_xml).rglob("*.tar.gz"))


@pytest.mark.slow
def test_an_archive_that_writes_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTJAR_JAR_DIR", str(tmp_path / "jars"))
    ivy_xml = ivy_file_of_an_archive(tmp_path, "../../../elsewhere.jar")
    with pytest.raises(JarsError, match="the archive cannot be unpacked"):
        resolve(ivy_xml)
    assert not (tmp_path / "elsewhere.jar").exists()
    assert not (tmp_path / "jars" / "elsewhere.jar").exists()
