"""What only Azure has: a signature that gives some rights for some time, instead of the account's key."""

from pathlib import Path

import polars as pl
import pytest

from nightjar.lake import delta
from nightjar.lake.scanning import scan
from nightjar.lake.tables import QUARANTINE
from nightjar.storage.objects import StorageError
from tests.support.azure_store import AzureServer

pytestmark = [pytest.mark.parametrize("store", [AzureServer], indirect=True, ids=["azure"]), pytest.mark.slow]


def test_a_signature_gives_the_rights_that_it_names(store: AzureServer, tmp_path: Path) -> None:
    """One for reading alone is refused where it writes.

    That the other may delete cannot be tried: for batches, in which obstore deletes, Azurite takes the key alone.
    """
    for rights in ("racwdl", "rl"):
        (tmp_path / rights).write_text(f"[default]\nsas_token = {store.signature(rights)}\n")
    folder = store.place("signed", credentials_file=str(tmp_path / "racwdl"))
    assert [(folder / "created").create(b"x") for _ in range(2)] == [True, False]
    delta.make(folder, QUARANTINE)
    reader = store.place("signed", credentials_file=str(tmp_path / "rl"))
    assert scan(reader, QUARANTINE).select(pl.len()).collect().item() == 0
    with pytest.raises(StorageError, match="the object store denies access"):
        (reader / "created").write_bytes(b"y")
