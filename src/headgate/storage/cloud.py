"""Objects of S3, Google Cloud Storage and Azure, through obstore.

Put-if-absent is the bucket's own conditional put. Credentials, region and endpoint come from the
environment under the vendors' names (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT`, ...), which are listed in
`docs/operating.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import obstore
from obstore import exceptions
from obstore.store import from_url

from headgate import errors
from headgate.storage import object_store

if TYPE_CHECKING:  # obstore has these for the type checker only
    from obstore import ObjectMeta as Described
    from obstore.store import ObjectStore as Client
    from obstore.store import RetryConfig

_PATIENT: Final[RetryConfig] = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
_ONCE: Final[RetryConfig] = {"max_retries": 0}
_TRIES: Final = 3
_PAGE: Final = 1000


_GOOGLE_DEFAULT: Final = ".config/gcloud/application_default_credentials.json"  # in the home
_CREDENTIALS: Final = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_METADATA_ENDPOINT",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    "gs": (
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_BEARER_TOKEN",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
    ),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_MASTER_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_USE_AZURE_CLI",
        "AZURE_MSI_ENDPOINT",
        "AZURE_STORAGE_USE_EMULATOR",
    ),
}
_MACHINE: Final = "HEADGATE_MACHINE_CREDENTIALS"


def has_credentials(scheme: str, environment: Mapping[str, str]) -> bool:
    """Return True if the environment has credentials, or asks to use those of the machine."""
    if environment.get(_MACHINE, "").lower() in ("1", "true"):
        return True
    if scheme == "gs" and (Path.home() / _GOOGLE_DEFAULT).is_file():
        return True
    names = _CREDENTIALS["az" if scheme == "abfss" else scheme]
    return any(environment.get(name) for name in names)


class CloudStore(object_store.FlatStore):
    """The objects of one bucket.

    A retried conditional put whose first answer was lost would find its own object and report a
    conflict. So `once` never retries by itself, and `put_if_absent` compares what exists.
    """

    def __init__(self, url: str, client: Client, once: Client) -> None:
        self.url = url
        self._client = client
        self._once = once

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Open the bucket at `scheme://bucket`."""
        # Without credentials obstore would get some from the machine's metadata service, and send
        # them to any bucket that a caller names.
        is_unsigned = not has_credentials(url.partition("://")[0], os.environ)
        try:
            patient, once = (
                from_url(url, retry_config=how, skip_signature=is_unsigned)
                for how in (_PATIENT, _ONCE)
            )
        except (exceptions.BaseError, ValueError) as error:
            raise errors.InvalidArgumentError(
                f"{url} cannot be opened: {str(error).splitlines()[0]}.",
                remedy="Set the account and the credentials in the environment: see "
                "docs/operating.md, Object stores.",
            ) from error
        return cls(url, patient, once)

    def get(self, path: str) -> bytes:
        with self._errors(path):
            return obstore.get(self._client, object_store.check_path(path)).bytes().to_bytes()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        object_store.check_range(start, length)
        found = self.head(path)  # buckets reject a range that begins at the end
        if found is None:
            raise object_store.missing(self.url, path)
        length = min(length, found.size - start)
        if length <= 0:
            return b""
        with self._errors(path):
            return obstore.get_range(self._client, path, start=start, length=length).to_bytes()

    def head(self, path: str) -> object_store.ObjectMeta | None:
        try:
            with self._errors(path):
                return _meta(obstore.head(self._client, object_store.check_path(path)))
        except errors.NotFoundError:
            return None

    def list(
        self, prefix: str, start_after: str | None = None, recursive: bool = False
    ) -> Iterator[object_store.ObjectMeta]:
        folder = object_store.check_folder(prefix)
        with self._errors(folder):
            found: Iterable[Sequence[Described]]
            if recursive or start_after is not None:
                # A listing by delimiter cannot begin in the middle, and the log is long: objects in
                # subfolders after `start_after` are skipped instead.
                found = obstore.list(
                    self._client, folder or None, offset=start_after, chunk_size=_PAGE
                )
            else:
                found = [obstore.list_with_delimiter(self._client, folder or None)["objects"]]
            for page in found:
                for meta in page:
                    if recursive or meta["path"].rpartition("/")[0] == folder:
                        yield _meta(meta)

    def folders(self, prefix: str) -> Iterator[str]:
        folder = object_store.check_folder(prefix)
        with self._errors(folder):
            found = obstore.list_with_delimiter(self._client, folder or None)
        yield from (path.rstrip("/") for path in found["common_prefixes"])

    def put_if_absent(self, path: str, content: bytes) -> bool:
        object_store.check_path(path)
        for tried in range(_TRIES):
            try:
                with self._errors(path, writing=True):
                    obstore.put(self._once, path, content, mode="create", use_multipart=False)
                return True
            except exceptions.AlreadyExistsError:
                return tried > 0 and self.get(path) == content
            except object_store.PutUnknownError:
                if tried == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def put(self, path: str, content: bytes) -> None:
        with self._errors(path, writing=True):
            obstore.put(self._client, object_store.check_path(path), content, use_multipart=False)

    def delete(self, path: str) -> None:
        with self._errors(path):
            obstore.delete(self._client, object_store.check_path(path))

    @contextmanager
    def _errors(self, path: str, writing: bool = False) -> Iterator[None]:
        """Convert obstore's errors to ours."""
        try:
            yield
        except FileNotFoundError as error:
            raise object_store.missing(self.url, path) from error
        except ValueError as error:
            raise errors.InvalidArgumentError(
                f"{path!r} is not a valid path in {self.url}."
            ) from error
        except exceptions.AlreadyExistsError:
            raise
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise errors.PermissionDeniedError(
                f"{self.url} denies access to {path}.",
                remedy="Check the credentials in the environment and what they permit; those of "
                "the machine are used with HEADGATE_MACHINE_CREDENTIALS=1. See docs/operating.md, "
                "Object stores.",
            ) from error
        except exceptions.BaseError as error:
            problem = f"{path} in {self.url}: {str(error).splitlines()[0]}."
            if writing:
                raise object_store.PutUnknownError(
                    f"The outcome of a put is unknown: {problem}"
                ) from error
            raise errors.UnavailableError(f"The bucket did not answer: {problem}") from error


def _meta(described: Described) -> object_store.ObjectMeta:
    modified_ms = int(described["last_modified"].timestamp() * 1000)
    return object_store.ObjectMeta(described["path"], described["size"], modified_ms)
