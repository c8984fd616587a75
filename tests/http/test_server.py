"""A real server: what it refuses to be, tokens, TLS, and how it stops."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import headgate
from headgate._connect import open_store
from headgate.catalog.service import Catalog
from headgate.cli.main import main
from headgate.client.session import Session
from headgate.clock import RandomIds, SystemClock
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    NotAuthenticatedError,
    UnavailableError,
)
from headgate.protocol.actions import Version
from headgate.protocol.paths import STAGED, StagedCommit
from headgate.serve import Serving, _allowed_connections
from tests.kit import req
from tests.kit.conditions import eventually
from tests.kit.server import RunningServer, free_port

pytestmark = [pytest.mark.slow, pytest.mark.faults]


def test_a_session_on_a_server_does_what_an_embedded_one_does(tmp_path: Path) -> None:
    with RunningServer(str(tmp_path / "lake")) as server:
        with headgate.connect(server.address) as session:
            session.create_namespace("sales")
            table = session.create_table("sales.orders", "id long, item string")
            table.append(pa.table({"id": [1, 2], "item": ["bolt", "nut"]}))
            table.append(pa.table({"id": [3], "item": ["gear"]}))
            assert table.to_arrow(version=1).num_rows == 2
            assert table.publish() == 2
        assert server.stop() == 0
        assert '"level": "error"' not in server.log()
    with headgate.connect(tmp_path / "lake") as session:
        assert session.table("sales.orders").to_arrow().num_rows == 3


@req("MN-02")
def test_a_server_gives_up_what_was_begun_and_left_and_nothing_that_has_a_name(
    tmp_path: Path,
) -> None:
    lake = tmp_path / "lake"
    with headgate.connect(lake, publisher=False) as session:
        table = session.create_table("orders", "id long")
        table.append(pa.table({"id": [1]}))
        assert isinstance(session.catalog, Catalog)
        place = session.catalog.stage_table().location
        left = Path(place.removeprefix("file://")) / "part-1.parquet"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"rows")
        staged = Path(table.location.removeprefix("file://")) / STAGED
        staged.mkdir(parents=True)
        name = StagedCommit(Version(2), RandomIds().random()).name
        (staged / name).write_bytes(b"{}\n")
    soon = {
        "HEADGATE_HOUSEKEEPING_MS": "20",
        "HEADGATE_STAGING_KEPT_MS": "1",
        "HEADGATE_LOST_KEPT_MS": "1",
        "HEADGATE_UNPROPOSED_KEPT_MS": "1",
    }
    with RunningServer(str(lake), environment=soon) as server:
        eventually(lambda: not left.exists() and not (staged / name).exists())
        with headgate.connect(server.address) as session:
            assert session.table("orders").to_arrow()["id"].to_pylist() == [1]
            assert session.fsck() == ()


def test_the_command_line_works_on_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("id,item\n1,bolt\n")
    with RunningServer(str(tmp_path / "lake")) as server:
        lake = ["--lake", server.address]
        assert main([*lake, "create", "orders", "id long, item string"]) == 0
        assert main([*lake, "append", "orders", str(tmp_path / "rows.csv")]) == 0
        capsys.readouterr()
        assert main([*lake, "show", "orders", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["version"] == 1
        assert main([*lake, "fsck"]) == 0


def test_who_has_no_token_is_refused_and_who_has_one_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = str(tmp_path / "lake")
    assert main(["init", lake]) == 0
    capsys.readouterr()
    assert main(["--lake", lake, "token", "create", "ana", "--json"]) == 0
    secret = json.loads(capsys.readouterr().out)["secret"]
    with RunningServer(lake, "--auth") as server:
        with headgate.connect(server.address) as anonymous, pytest.raises(NotAuthenticatedError):
            anonymous.tables()
        with (
            headgate.connect(server.address, token="x" + secret) as stranger,
            pytest.raises(NotAuthenticatedError),
        ):
            stranger.tables()
        with headgate.connect(server.address, token=secret) as ana:
            ana.create_table("t", "id long").append(pa.table({"id": [1]}))
            assert main(["--lake", lake, "token", "revoke", "ana"]) == 0
            # The server caches for a second that a token is valid.
            eventually(lambda: is_refused(ana))
        assert secret not in server.log()


def is_refused(session: Session) -> bool:
    try:
        session.tables()
    except NotAuthenticatedError:
        return True
    return False


def test_a_server_speaks_tls(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    server = RunningServer(
        str(tmp_path / "lake"),
        *("--tls-certificate", str(certificate), "--tls-key", str(key)),
        certificates=str(certificate),
    )
    with server:
        address = f"https://127.0.0.1:{server.port}"
        with headgate.connect(address, certificates=str(certificate)) as session:
            session.create_table("t", "id long").append(pa.table({"id": [1, 2]}))
            assert session.table("t").to_arrow().num_rows == 2
        with headgate.connect(address) as suspicious, pytest.raises(UnavailableError):
            suspicious.table("t")


def test_a_server_starts_without_what_only_readers_of_tables_need(tmp_path: Path) -> None:
    program = """
import os, sys
from headgate.cli import main
from headgate.serve import Serving, create_app
from headgate.settings import Settings
create_app(Serving(os.environ["STORE"]), Settings(), None)
print(*{module.partition('.')[0] for module in sys.modules}, flush=True)
os._exit(0)  # its threads need not be waited for
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "STORE": str(tmp_path / "lake")},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    slow = {"pyarrow", "numpy", "rich", "obstore", "psycopg", "httpx"}
    assert slow & set(done.stdout.split()) == set()


def test_a_port_that_is_taken_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        code = main(["serve", "--store", str(tmp_path / "lake"), "--port", str(port)])
    assert code == 1
    assert "Cannot listen on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"host": "0.0.0.0"}, "--auth"),
        ({"workers": 2}, "one SQLite file"),
        ({"certificate": Path("cert.pem")}, "must be given together"),
    ],
)
def test_what_should_not_be_served_is_refused(
    tmp_path: Path, changed: dict[str, object], match: str
) -> None:
    serving = Serving(store=str(tmp_path), port=free_port(), **changed)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=match):
        serving.validate()


@pytest.mark.parametrize("variable", ["HEADGATE_REQUIRED_FEATURES", "HEADGATE_SUGGESTED_FEATURES"])
def test_a_feature_that_is_none_is_refused_before_anything_is_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
) -> None:
    monkeypatch.setenv(variable, "rowTracking,deletionVector")
    lake = tmp_path / "lake"
    assert main(["serve", "--store", str(lake), "--port", str(free_port())]) == 1
    log = capsys.readouterr().err
    assert "'deletionVector'" in log
    assert "deletionVectors" in log
    assert not lake.exists()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_server_listens_on_a_name_or_an_address(tmp_path: Path, host: str) -> None:
    if host == "::1":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("This machine has no IPv6.")
    with RunningServer(str(tmp_path / "lake"), "--host", host, host=host) as server:
        with headgate.connect(server.address) as session:
            session.create_table("t", "id long")
        assert server.stop() == 0


@pytest.mark.parametrize("host", ["no.such.host.invalid", "", "[::1]", "a b", "256.1.1.1"])
def test_a_host_that_is_none_is_refused(
    tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["serve", "--store", str(tmp_path / "lake"), "--port", str(free_port())]
    assert main([*arguments, "--host", host]) == 1
    assert "cannot be resolved" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("nothing")
    serving = Serving(
        store=str(tmp_path), certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem"
    )
    with pytest.raises(InvalidArgumentError, match="cannot be used"):
        serving.validate()


@pytest.mark.parametrize(
    ("host", "client_url"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("db.example.com", "db.example.com"),
        ("0.0.0.0", socket.gethostname()),
        ("::", socket.gethostname()),
    ],
)
def test_the_url_shown_to_clients_leads_to_the_server(host: str, client_url: str) -> None:
    assert Serving(store="lake", host=host).client_url == f"http://{client_url}:8750"


def test_a_server_says_where_it_listens_and_how_to_connect(tmp_path: Path) -> None:
    with RunningServer(str(tmp_path / "lake"), "--auth") as server:
        log = server.log()
    assert f'headgate.connect("{server.address}")' in log
    assert "token create" in log


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("postgresql://headgate:secret@db/lake", "postgresql://headgate@db/lake"),
        ("postgresql://db/lake?user=a&password=secret", "postgresql://db/lake?user=a"),
        ("postgresql://db/lake?password=secret", "postgresql://db/lake"),
        (
            "postgresql://a:se?cret@db/lake?sslmode=require",
            "postgresql://a@db/lake?sslmode=require",
        ),
        ("postgresql://db/lake?sslpass%77ord=secret&port=1", "postgresql://db/lake?port=1"),
        ("postgresql://a:secret@one:1,two:2/lake", "postgresql://a@one:1,two:2/lake"),
        ("/data/lake:1@x?password=1", "/data/lake:1@x?password=1"),
        ("sqlite:///data/lake.db", "sqlite:///data/lake.db"),
    ],
)
def test_the_password_of_a_store_is_not_shown(store: str, shown: str) -> None:
    assert Serving(store=store).shown_store == shown


@pytest.mark.parametrize(
    "address",
    [
        "http://user:secret@server/",
        "http://user:secret/x@server",
        "http://server/?token=secret",
        "ftp://user:secret@server/lake",
        "s3://user:secret@bucket/lake?catalog=none",
    ],
)
def test_an_address_that_is_refused_is_told_without_its_password(address: str) -> None:
    with pytest.raises(HeadgateError) as refused:
        headgate.connect(address)
    assert "secret" not in str(refused.value)
    with pytest.raises(HeadgateError) as refused:
        open_store(address, SystemClock())
    assert "secret" not in str(refused.value)


def test_the_time_for_headers_and_for_stopping_can_be_set(tmp_path: Path) -> None:
    limits = {"HEADGATE_REQUEST_HEADERS_MS": "300", "HEADGATE_STOP_MS": "5000"}
    with RunningServer(str(tmp_path / "lake"), environment=limits) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as slow:
            slow.sendall(b"GET /health HT")
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                slow.recv(1 << 16)
            assert time.monotonic() - began < 4  # the default is ten seconds
        assert server.stop() == 0


def test_as_many_connections_are_allowed_as_were_asked_for() -> None:
    assert _allowed_connections(7) == 7
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        assert _allowed_connections(hard) < hard  # other files need room, too


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
