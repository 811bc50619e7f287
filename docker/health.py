"""Whether a service of docker-compose.yml is well: ``health.py URL COMMAND`` answers, ``health.py airflow PART`` lives.

A container in which another COMMAND runs (``docker compose run``) answers nowhere, and is well as long as it lives.
Airflow's api-server says how its parts are by their heartbeats in the database; a command of Airflow's own in each
container would import Airflow every time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

AIRFLOW = "http://api-server:8080/api/v2/monitor/health"
WITHIN_S = 8

match sys.argv[1:]:
    case ["airflow", part]:
        with urlopen(AIRFLOW, timeout=WITHIN_S) as answer:
            status = json.load(answer)[part]["status"]
        sys.exit(None if status == "healthy" else f"{part} is {status}")
    case [_, command] if command not in Path("/proc/1/cmdline").read_text().replace("\0", " "):
        pass
    case [address, _]:
        try:
            urlopen(address, timeout=WITHIN_S).close()  # noqa: S310 - docker-compose.yml says it
        except HTTPError as error:
            # whoever wants a token is there
            sys.exit(None if error.code < 500 else f"{address} answers {error.code}")
    case _:
        sys.exit(__doc__)
