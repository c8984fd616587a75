"""Objects of S3, Google Cloud Storage and Azure, through obstore."""

from __future__ import annotations

from headgate.errors import UnavailableError
from headgate.storage.objects import ObjectStore


class CloudStore:
    """The objects below one prefix of a bucket."""

    @staticmethod
    def from_url(url: str) -> ObjectStore:
        raise UnavailableError(f"{url} cannot be opened yet.")
