"""The stream that ``bench.serve_load`` lets ``recount serve`` answer for; the JSON in BENCH_SERVED names it."""

from __future__ import annotations

import json
import os

from bench.jobs import AUDITED_JOBS

_named = json.loads(os.environ["BENCH_SERVED"])
served = AUDITED_JOBS[_named["job"]].topology(_named["stream"], _named["source"], _named["output"])
