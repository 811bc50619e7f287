from __future__ import annotations

from pathlib import Path

import pytest
from bench.contenders import LONG_GRACE_MS, PEER, RECOUNT, recount_of
from bench.jobs import COUNTS_PER_USER, GRACE_MS, JOBS, REVENUE_BY_REGION, Job
from bench.plan import Plan, full, quick
from bench.structured_streaming import BATCH_JOBS
from bench.structured_streaming import JOBS as STRUCTURED_STREAMING_JOBS

from recount.core.errors import Terminal
from recount.local.project import Project
from recount.spark.plan import plan_of

_BENCH = Path(__file__).parents[3] / "bench"
_JAVA = _BENCH / "kafka_streams" / "src" / "main" / "java" / "recount" / "bench" / "Jobs.java"
_QUIX = _BENCH / "quix_streams.py"


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_every_contender_knows_every_job(job: Job) -> None:
    assert job.topology("bench", "orders", "results").written
    assert job.name in STRUCTURED_STREAMING_JOBS
    assert f'case "{job.name}"' in _JAVA.read_text()
    assert f'"{job.name}": {job.name.replace("-", "_")},' in _QUIX.read_text()  # not to be imported here


@pytest.mark.parametrize("job", [REVENUE_BY_REGION, COUNTS_PER_USER], ids=["revenue", "counts"])
def test_the_jobs_of_tumbling_windows_take_the_short_way_and_emit_with_every_batch(job: Job) -> None:
    plan = plan_of(job.topology("bench", "orders", "results"))

    assert plan is not None
    assert plan.windows.grace_ms == GRACE_MS
    assert plan.aggregate.emission.kind == "each batch"


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_a_job_writes_to_the_topics_that_are_made_for_it(job: Job) -> None:
    sinks = job.topology("bench", "orders", "results").sinks

    assert sorted(sink.topic.name for sink in sinks) == sorted(topic.name for topic in job.outputs("results"))


@pytest.mark.parametrize("plan", [quick(3), full(3)], ids=["quick", "full"])
def test_a_scenario_reads_the_topics_of_its_flow(plan: Plan) -> None:
    for scenario in plan.scenarios:
        flow = plan.flow(scenario.flow)
        topology = scenario.job.topology("bench", flow.topic, "results")
        assert sorted(source.topic.name for source in topology.sources) == sorted(flow.topics)


@pytest.mark.parametrize("plan", [quick(3), full(3)], ids=["quick", "full"])
def test_an_audited_stream_reads_topics_of_its_own_and_has_a_batch_query_beside_it(plan: Plan) -> None:
    topics: list[str] = []
    for job, name in plan.audited_jobs:
        assert job.name in BATCH_JOBS
        for flow in plan.audited_flows(job, name, 0):
            topology = job.topology("bench", flow.topic, "results")
            assert sorted(source.topic.name for source in topology.sources) == sorted(flow.topics)
            topics += flow.topics
    assert len(topics) == len({*topics})


def test_a_warm_up_has_other_topics_than_what_it_warms_up_for() -> None:
    plan = quick(1)

    for scenario in plan.scenarios:
        assert not {*plan.flow(scenario.flow).topics} & {*plan.warm_up(scenario.flow).topics}


def test_the_peer_keeps_its_records_by_a_long_grace_and_recount_has_the_short_one() -> None:
    assert (RECOUNT.grace_ms, PEER.grace_ms) == (GRACE_MS, LONG_GRACE_MS)


@pytest.mark.parametrize("plan", [quick(3), full(3)], ids=["quick", "full"])
def test_every_scenario_of_a_plan_has_recount_and_peers_of_distinct_names(plan: Plan) -> None:
    for scenario in plan.scenarios:
        names = [contender.name for contender in scenario.contenders]
        assert RECOUNT.name in names
        assert len(set(names)) == len(names) > 1


def test_a_plan_without_an_engine_has_all_others() -> None:
    plan = full(1).without("quix-streams")

    engines = {contender.engine for scenario in plan.scenarios for contender in scenario.contenders}
    assert engines == {"recount", "structured-streaming", "kafka-streams"}


@pytest.mark.parametrize("plan", [quick(1), full(1)], ids=["quick", "full"])
def test_a_plan_against_another_checkout_has_each_job_and_the_audits_with_both(plan: Plan, tmp_path: Path) -> None:
    before = tmp_path / "before"
    (before / ".venv").mkdir(parents=True)
    with pytest.raises(Terminal, match="no checkout to compare with"):
        recount_of(before)
    (before / ".venv" / ".installed").touch()
    (before / ".cache" / "jars" / "spark").mkdir(parents=True)
    (before / ".cache" / "jars" / "spark" / "delta.jar").touch()
    other = recount_of(before)
    compared = plan.against(other, 2)
    assert sorted(scenario.job.name for scenario in compared.scenarios) == sorted(JOBS)
    assert all(scenario.contenders == [RECOUNT, other] for scenario in compared.scenarios)
    assert compared.audited == [RECOUNT, other]
    command = other.command(Project.containing(Path(__file__).parent), {})
    assert command[0] == str(before / ".venv" / "bin" / "python")
    assert f"jars={before}" in " ".join(command)
