"""DuckDB in a process of its own: statements come as lines of JSON, answers go the same way.

Runs with an interpreter that has DuckDB and its extensions, and nothing of ours.
"""

import json
import sys

import duckdb


def main() -> None:
    connection = duckdb.connect()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "python" in asked:
                names = {}
                exec(asked["python"], names)
                connection = names["connection"]
                answer = {"rows": []}
            elif "continued" in asked:
                exec(asked["continued"], {"connection": connection})
                answer = {"rows": []}
            else:
                answer = {"rows": connection.execute(asked["sql"]).fetchall()}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)


main()
