"""Sail in a process of its own: statements come as lines of JSON, answers go the same way.

Runs with an interpreter that has Sail and a client of Spark Connect, and nothing of ours.
"""

import json
import os
import sys


def main() -> None:
    names = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if "python" in asked:
                exec(asked["python"], names)
                answer = {"rows": []}
            else:
                rows = names["spark"].sql(asked["sql"]).collect()
                answer = {"rows": [tuple(row) for row in rows]}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)


main()
os._exit(0)  # its server runs in threads that do not end by themselves
