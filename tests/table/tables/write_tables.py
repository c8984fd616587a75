"""Write the tables of this folder with delta-spark, and beside each the rows Spark reads from it.

Needs Java 17, `pip install pyspark==4.2.0 pyarrow`, and a repository Spark can resolve Delta from:

    python tests/table/tables/write_tables.py OUTPUT_DIR [CASE ...]

Each case becomes OUTPUT_DIR/<case> with `table/`, `expected/` and `case.json` (see README.md). What
Spark cannot be made to write is in the `produced` line of its case. Ids, file names and times
differ from run to run; rows and features do not.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import log_cases  # noqa: F401 - fills CASES
import table_cases  # noqa: F401 - fills CASES
from spark_table import CASES, session, write_case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("case", nargs="*", choices=[[], *CASES])
    arguments = parser.parse_args()
    output: Path = arguments.output.resolve()
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        spark = session(Path(scratch))
        for name in arguments.case or CASES:
            started = time.monotonic()
            try:
                write_case(spark, name, CASES[name], output / name, Path(scratch) / name)
            except Exception as error:
                failed.append(name)
                print(f"{name}: {error}", file=sys.stderr, flush=True)
            else:
                print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        spark.stop()
    if failed:
        sys.exit(f"not written: {', '.join(failed)}")


if __name__ == "__main__":
    main()
