"""Rows counted by the statistics of files in columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.protocol.actions import AddFile, DeletionVector
from headgate.table import statistics_columns
from headgate.table.file_columns import file_table
from headgate.table.statistics_columns import count_rows


def file(number: int, stats: str | None, deleted: int = 0) -> AddFile:
    vector = DeletionVector(
        storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=deleted
    )
    return AddFile(
        path=f"{number}.parquet",
        partition_values={},
        size=1,
        modification_time=0,
        data_change=True,
        stats=stats,
        deletion_vector=vector if deleted else None,
    )


counts = st.integers(0, 2**40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, min(n, 9))))


@given(st.lists(counts, max_size=12))
def test_live_rows_of_all_files_are_added_up(rows: list[tuple[int, int]]) -> None:
    files = [
        file(i, f'{{"numRecords":{n},"minValues":{{"a":"\\n"}}}}', deleted)
        for i, (n, deleted) in enumerate(rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics_columns, "_BATCH", 5)  # several pieces
        found = count_rows(file_table(files, stats=True))
    assert found == sum(n - deleted for n, deleted in rows)


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{}",
        '{"numRecords":null}',
        '{"numRecords":"3"}',
        '{"numRecords":1.5}',
        '{"numRecords":99999999999999999999}',
        '{"numRecords":3}{"numRecords":3}',
        '{"numRecords":3',
        '{"numRecords":1}',  # and two of them deleted
    ],
)
def test_one_file_that_does_not_tell_leaves_the_whole_unknown(stats: str | None) -> None:
    files = [file(0, '{"numRecords":3}'), file(1, stats, deleted=2)]
    assert count_rows(file_table(files, stats=True)) is None
