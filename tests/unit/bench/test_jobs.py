from __future__ import annotations

from pathlib import Path

import pytest
from bench.contenders import LONG_GRACE_MS, PEER, RECOUNT
from bench.jobs import GRACE_MS, JOBS, Job
from bench.plan import Plan, full, quick
from bench.structured_streaming import JOBS as STRUCTURED_STREAMING_JOBS

from recount.spark.plan import plan_of

_JAVA = (
    Path(__file__).parents[3] / "bench" / "kafka_streams" / "src" / "main" / "java" / "recount" / "bench" / "Jobs.java"
)


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_every_contender_knows_every_job(job: Job) -> None:
    plan = plan_of(job.topology("bench", "orders", "results"))

    assert plan.windows.grace_ms == GRACE_MS
    assert plan.aggregate.emission.kind == "each batch"
    assert job.name in STRUCTURED_STREAMING_JOBS
    assert f'case "{job.name}"' in _JAVA.read_text()


def test_the_peer_keeps_its_records_by_a_long_grace_and_recount_has_the_short_one() -> None:
    assert (RECOUNT.grace_ms, PEER.grace_ms) == (GRACE_MS, LONG_GRACE_MS)


@pytest.mark.parametrize("plan", [quick(3), full(3)], ids=["quick", "full"])
def test_every_scenario_of_a_plan_has_recount_and_peers_of_distinct_names(plan: Plan) -> None:
    for scenario in plan.scenarios:
        names = [contender.name for contender in scenario.contenders]
        assert RECOUNT.name in names
        assert len(set(names)) == len(names) > 1
