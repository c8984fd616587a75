"""No part of a password is shown: in messages, results, logs, representations or process lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headgate
from headgate._connect import open_store
from headgate.catalog.stores import postgres as store
from headgate.cli.context import Globals
from headgate.cli.main import main
from headgate.cli.output import Output
from headgate.clock import SystemClock
from headgate.errors import HeadgateError, InvalidArgumentError
from headgate.serve import Serving
from headgate.storage import locations
from tests.kit.postgres import Postgres
from tests.kit.server import RunningServer

# Each piece between special characters would be a part of a password.
PIECES = ("xyzzy", "plugh", "frotz")
PASSWORDS = [
    "xyzzy",
    *(f"xyzzy{mark}plugh" for mark in "@/?#:&=%+ '\"\\[]{}|^`~!$*(),;<>\n\té\0"),
    "xyzzy%40plugh",
    "xyzzy%zzplugh",
    "xyzzy@plugh/frotz",
    "xyzzy/plugh@frotz",
    "xyzzy?plugh@frotz",
    "@xyzzy",
    "xyzzy@",
    "/xyzzy@plugh",
    "xyzzy&port=plugh",
    "xyzzy@host:1/plugh?password=frotz",
]
FORMS = [
    "postgresql://ana:{}@127.0.0.1:1/lake",
    "postgres://ana:{}@127.0.0.1:1/lake?sslmode=disable",
    "postgresql://127.0.0.1:1/lake?user=ana&password={}",
    "postgresql://127.0.0.1:1/lake?password={}&user=ana",
]


def shows_nothing(text: str) -> bool:
    return not any(piece in text for piece in PIECES)


@pytest.mark.parametrize("form", FORMS)
def test_no_piece_of_a_password_is_shown(form: str) -> None:
    for password in PASSWORDS:
        shown = locations.shown(form.format(password))
        assert shows_nothing(shown), (password, shown)
        assert shown.startswith("postgres")
    assert locations.shown("postgresql://ana:xyzzy") == "postgresql://…"  # the host is missing


@pytest.mark.parametrize("form", FORMS)
def test_no_piece_of_a_password_is_in_an_error(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens on that port, and nothing waits for it.
    monkeypatch.setattr(store, "_CONNECT_OPTIONS", {"connect_timeout": "2"})
    for password in PASSWORDS:
        address = form.format(password)
        with pytest.raises(HeadgateError) as refused:
            open_store(address, SystemClock())
        error: BaseException | None = refused.value
        while error is not None:
            assert shows_nothing(str(error)), password
            error = None if error.__suppress_context__ else error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "address",
    [
        "http://ana:xyzzy@plugh@server/",
        "https://ana:xyzzy/plugh@server",
        "http://server/?token=xyzzy@plugh",
        "s3://ana:xyzzy@plugh@bucket/lake?catalog=none",
        "s3://ana:xyzzy@bucket/lake?catalog=filesystem",
        "ftp://ana:xyzzy:plugh@server/lake",
        "sqlite://ana:xyzzy@plugh@/lake",
        "sqlite://ana:xyzzy@server",
    ],
)
def test_a_password_in_another_address_is_not_shown_either(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HeadgateError) as refused:
        headgate.connect(address).tables()
    assert shows_nothing(str(refused.value))
    main(["--lake", address, "show", "--json"])
    output = capsys.readouterr()
    assert shows_nothing(output.out + output.err)


def test_special_characters_in_an_address_are_asked_for_in_percent_encoding() -> None:
    with pytest.raises(InvalidArgumentError, match="%40"):
        open_store("postgresql://ana:xyzzy@plugh@127.0.0.1:1/lake", SystemClock())


def test_representations_have_no_password() -> None:
    address = "postgresql://ana:xyzzy@127.0.0.1:1/lake"
    for value in (Serving(store=address), Globals(address, Output(as_json=False))):
        assert shows_nothing(repr(value))


@pytest.mark.slow
@pytest.mark.faults
def test_a_server_shows_its_stores_password_nowhere(
    tmp_path: Path, postgres_server: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    address = postgres_server.new_database()
    user = address.partition("://")[2].partition("@")[0]
    address = address.replace(f"{user}@", f"{user}:xyzzy%40plugh%2Ffrotz@")
    assert main(["init", address, "--root", str(tmp_path / "root"), "--json"]) == 0
    assert main(["--lake", address, "show", "--json"]) == 0
    with RunningServer(address) as server:
        assert server.process is not None
        for process in (server.process.pid, *server.workers):
            arguments = Path(f"/proc/{process}/cmdline").read_text()
            assert "serve" in arguments
            assert shows_nothing(arguments)
        assert main(["--lake", server.address, "status", "--json"]) == 0
        with headgate.connect(server.address) as session:
            assert shows_nothing(repr(session))
        assert server.stop() == 0
        log = server.log()
    assert json.loads(log[log.index('{"') :].splitlines()[0])
    output = capsys.readouterr()
    assert shows_nothing(log + output.out + output.err)
