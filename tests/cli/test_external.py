"""Tables that a lake names and does not manage, on the command line and in the library."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headgate
from headgate.cli.main import main
from headgate.errors import InvalidArgumentError, PathAccessError, UnsupportedFeatureError


@pytest.fixture
def lake(tmp_path: Path) -> str:
    place = str(tmp_path / "lake")
    headgate.connect(place).close()
    return place


def test_an_external_delta_table_is_registered_shown_read_and_dropped(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "elsewhere"
    write_deltalake(str(place), pa.table({"id": [1, 2, 3]}))
    assert (
        main(["--lake", lake, "register-external", "ext", str(place), "--schema", "id long"]) == 0
    )
    capsys.readouterr()
    assert main(["--lake", lake, "show", "ext", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kind"], shown["format"]) == ("external", "delta")
    assert shown["columns"] == [{"name": "id", "type": "long"}]
    assert main(["--lake", lake, "show"]) == 0
    assert "external" in capsys.readouterr().out
    with headgate.connect(lake) as session:
        assert session.open_external("ext").to_arrow()["id"].to_pylist() == [1, 2, 3]
        with pytest.raises(InvalidArgumentError, match="open_external"):
            session.table("ext")
        session.drop("ext")
        assert session.purge("ext") == 0
    assert any(place.rglob("*.parquet"))


def test_reading_an_external_table_that_is_managed_is_refused(lake: str, tmp_path: Path) -> None:
    with headgate.connect(str(tmp_path / "other")) as other:
        table = other.create_table("t", "id long")
        table.publish()
    with headgate.connect(lake) as session:
        session.register_external("stolen", table.location)
        with pytest.raises(PathAccessError):
            session.open_external("stolen")


def test_a_table_of_another_format_is_registered_and_not_read(lake: str) -> None:
    with headgate.connect(lake) as session:
        session.register_external("raw", "s3://bucket/raw", "csv", "id long")
        assert session.resolve("raw").format == "csv"
        with pytest.raises(UnsupportedFeatureError, match="csv"):
            session.open_external("raw")


@pytest.mark.parametrize(("location", "format"), [("lake-relative", "a b"), ("", "delta")])
def test_registering_an_invalid_location_or_format_is_refused(
    lake: str, location: str, format: str
) -> None:
    with headgate.connect(lake) as session:
        with pytest.raises(headgate.errors.HeadgateError):
            session.register_external("x", location, format)
        assert session.tables() == ()
