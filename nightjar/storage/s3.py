"""Stores that speak S3: AWS, MinIO, Ceph and others with conditional writes (`If-None-Match`).

The file of credentials has AWS's own form (`aws_access_key_id`, `aws_secret_access_key` and, for temporary ones,
`aws_session_token`). Without it they come from the environment, a web identity token, or the machine's role.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from nightjar.storage.access import Access, section_of

if TYPE_CHECKING:
    from obstore.store import S3Store

_SECRET = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


@dataclass(frozen=True)
class S3Access(Access):
    """region: empty: of the environment. profile: the section of the file of credentials."""

    region: str = ""
    profile: str = "default"

    schemes: ClassVar[tuple[str, ...]] = ("s3", "s3a")
    form: ClassVar[str] = "bucket/folder"
    bucket_pattern: ClassVar[re.Pattern[str]] = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
    jars: ClassVar[str] = "s3"
    # By one request at a file's end, because S3 cannot rename.
    checkpoint_manager: ClassVar[str | None] = (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    )

    @property
    def hadoop_root(self) -> str:
        """By Hadoop's name of the scheme."""
        return f"s3a://{self.bucket}"

    def client(self) -> S3Store:
        """A client of the bucket."""
        from obstore.store import S3Store

        return S3Store(self.bucket, config=self.client_options())  # type: ignore[arg-type]  # any of its options

    def client_options(self) -> dict[str, str]:
        """For delta-rs, Polars and obstore."""
        found = {"aws_region": self._region}
        if self.endpoint:
            found |= {"aws_endpoint": self.endpoint, "aws_allow_http": str(self.is_plain).lower()}
        return {name: value for name, value in (found | self._credentials()).items() if value}

    def hadoop_settings(self) -> dict[str, str]:
        """For S3A. It reads the file of credentials itself."""
        found = {"endpoint.region": self._region}
        if self.endpoint:
            found |= {
                "endpoint": self.endpoint,
                "path.style.access": "true",
                "connection.ssl.enabled": str(not self.is_plain).lower(),
            }
        if self.credentials_file:
            found["aws.credentials.provider"] = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items() if value}

    def java_options(self) -> tuple[str, ...]:
        """Where AWS's SDK finds the file of credentials."""
        if not self.credentials_file:
            return ()
        return (f"-Daws.sharedCredentialsFile={self.credentials_file}", f"-Daws.profile={self.profile}")

    @property
    def _region(self) -> str:
        return self.region or ("us-east-1" if self.endpoint else "")  # other stores want one, whichever it is

    def _credentials(self) -> dict[str, str]:
        if not self.credentials_file:
            return {}
        remedy = (
            f"It has the form of AWS's own: a line [{self.profile}], then aws_access_key_id = … and "
            "aws_secret_access_key = …"
        )
        section = section_of(self.credentials_file, self.profile, remedy)
        return {name: section[name] for name in _SECRET if name in section}
