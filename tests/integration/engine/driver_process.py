"""A driver as ``spark_jobs/stream.py`` runs it, but that a group speaks every second instead of every ten.

Without arguments it runs several, one after the other, so that the JVM is warm: it reads the arguments of each from a
line, and answers with its exit code. What they say goes to the standard error.
"""

from __future__ import annotations

import os
import sys

from recount.engine.driver import stream_command
from recount.jobs import stream_job


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        sys.argv[1:] = line.split()
        code: object = 0
        try:
            stream_job()
        except SystemExit as ended:
            code = ended.code or 0
        print(code, file=answers, flush=True)


if __name__ == "__main__":
    stream_command._HEARTBEAT_OF_MANY_S = 1.0
    if sys.argv[1:]:
        stream_job()
    else:
        main()
