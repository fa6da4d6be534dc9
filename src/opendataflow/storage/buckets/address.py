"""Addresses in object stores: `s3://bucket/key`, `s3a://` as Spark's connector spells it, and `gs://`."""

from typing import NamedTuple

from opendataflow.errors import UsageError

S3, GS = "s3", "gs"
_STORES = {"s3": S3, "s3a": S3, "gs": GS}


class Address(NamedTuple):
    store: str  # which kind: S3 or GS
    bucket: str
    key: str

    @property
    def path(self) -> str:
        """As Arrow names it."""
        return f"{self.bucket}/{self.key}" if self.key else self.bucket


def is_in_bucket(location: str) -> bool:
    """True for an address of an object store that is read and written here."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme in _STORES


def parse(location: str) -> Address:
    """The parts of an address, or raise UsageError."""
    scheme, separator, rest = location.partition("://")
    bucket, _, key = rest.partition("/")
    if not separator or scheme not in _STORES or not bucket:
        raise UsageError(
            f"{location!r} is no address in an object store; one is s3://bucket/folder or gs://bucket/folder"
        )
    return Address(_STORES[scheme], bucket, key.strip("/"))
