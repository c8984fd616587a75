"""Python imports this in the publisher process of a `failing_disk` server, and nowhere else.

A publisher process has the path of its server, whose first folder is that of its program.
"""

import os

import failing_disk

if failing_disk.ASKED in os.environ:
    failing_disk.fail_files()
