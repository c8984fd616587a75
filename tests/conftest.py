"""What tests of two folders or more use: a bucket, a database, and how chance is set."""

import itertools
import os
import secrets
from collections.abc import Iterator

import hypothesis
import obstore.store
import pytest
from moto.server import ThreadedMotoServer

from tests.kit import java, postgres

pytest.register_assert_rewrite(
    "tests.catalog.store_contract", "tests.storage.object_store_contract"
)

_numbers = itertools.count()
java.start_quickly(os.environ)

# Every run draws new cases; the gate's depend on the content of the commit alone. A failure prints
# what repeats it: the blob of an example, or the seed. Loaded explicitly, because Hypothesis
# derandomizes by itself where CI is set.
hypothesis.settings.register_profile("gate", derandomize=False, print_blob=True, deadline=None)
hypothesis.settings.load_profile("gate")
# One seed for all workers, which must collect the same tests.
os.environ.setdefault("HEADGATE_SEED", str(secrets.randbelow(2**31)))


def pytest_report_header() -> str:
    return f"HEADGATE_SEED={os.environ['HEADGATE_SEED']} repeats what this run draws by seed"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; what it takes to open it is in the environment."""
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": s3_endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{next(_numbers)}"
    # To S3 a bucket is made by a PUT of its name, which is what writing an object of that name
    # to the endpoint itself comes to.
    root = obstore.store.HTTPStore.from_url(s3_endpoint, client_options={"allow_http": True})
    obstore.put(root, name, b"", use_multipart=False)
    return f"s3://{name}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Postgres]:
    """A PostgreSQL of this process's own; each test makes its own database or schema in it."""
    server = postgres.start()
    yield server
    server.close()
