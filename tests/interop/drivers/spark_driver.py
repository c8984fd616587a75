"""Spark in a process of its own: statements come as lines of JSON, answers go the same way.

Runs with an interpreter that has PySpark, and nothing of ours.
"""

import json
import os
import sys


def main() -> None:
    # The JVM writes where this process does: answers have a place of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names = {}
    for line in sys.stdin:
        asked = json.loads(line)
        names["rows"] = []
        try:
            if "python" in asked:
                exec(asked["python"], names)
                rows = names["rows"]
            else:
                rows = names["spark"].sql(asked["sql"]).collect()
            answer = {"rows": [tuple(row) for row in rows]}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), file=answers, flush=True)


main()
os._exit(0)  # the JVM ends with its standard input, and need not be waited for
