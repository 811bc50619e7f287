"""``make bench-lens``: what the lens says that the other engines drop, beside what they do drop, on the same topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from bench.cluster import cluster
from bench.contenders import PEER_SHORT_GRACE, RECOUNT, STRUCTURED_STREAMING, Contender, build_kafka_streams
from bench.flow import PARTITIONS, WINDOW_MS, Flow
from bench.jobs import (
    COUNTS_PER_USER,
    GRACE,
    GRACE_MS,
    REVENUE_BY_REGION,
    SESSION_GAP,
    SESSIONS_PER_USER,
    Job,
    orders_topic,
    output_topic,
)
from bench.report import Place, Report
from bench.running import Bench, Run
from bench.session import machine
from bench.table import Rows
from recount.advise.engine_clocks import KAFKA_STREAMS
from recount.advise.engine_clocks import STRUCTURED_STREAMING as STRUCTURED
from recount.advise.lens_answer import COUNTS, Figures, looked_at
from recount.advise.lens_command import between
from recount.advise.lens_log import CUTS, PARTS, Modelled, Span, records_of, span_of
from recount.declare.aggregates import count
from recount.declare.topology import Topology, stream
from recount.declare.windows import SessionWindows, TimeWindows, session, tumbling
from recount.kafka.connection import Connection
from recount.kafka.offsets import log_ranges, messages, partitions_of
from recount.runtime.times import milliseconds
from recount.tables.batch_proofs import Proofs
from recount.tables.places import Tables

NAME = "lens"
PER_SECOND = 100
LAG = "7 min"
_WARM_UP_RECORDS = 5_000
_OWN_KEYS = {
    COUNTS_PER_USER.name: tumbling("5 min", grace=GRACE),
    SESSIONS_PER_USER.name: session(SESSION_GAP, grace=GRACE),
}
"""The jobs in which the Kafka Streams contender takes the key of the record, with their windows."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A count of the model beside the one that the engine had; ``reading`` says how the model takes it to have read."""

    job: str
    engine: str
    reading: str
    model: Mapping[str, int]
    dropped: int

    @property
    def holds(self) -> bool:
        """Whether the engine's count is where the model says."""
        return self.model["least"] <= self.dropped <= self.model["most"]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Runs contenders on ``flow`` and looks at the same topic."""

    bench: Bench
    flow: Flow
    warm_up: Flow

    @property
    def connection(self) -> Connection:
        """The broker's."""
        return self.bench.cluster.connection

    def kafka_streams(self, job: Job) -> Iterator[Held]:
        """From the beginning of the topic, so that the partitions may be read in any order."""
        model = _dropped(self.answer(job, self.whole(job)), KAFKA_STREAMS)
        with self.ran(PEER_SHORT_GRACE, job) as (run, dropped):
            reading = "partitions in any order" if job is REVENUE_BY_REGION else "by partition"
            yield Held(job=job.name, engine="Kafka Streams", reading=reading, model=model, dropped=dropped)
            if job is REVENUE_BY_REGION:
                found = self.late_as_passed(f"{run.application}-by-region-repartition")
                model, reading = _exactly(found), "in the order of its repartition topic"
                yield Held(job=job.name, engine="Kafka Streams", reading=reading, model=model, dropped=dropped)

    def late_as_passed(self, topic: str) -> int:
        """How many records are late by the rule of the model, read in the order in which they lie in ``topic``."""
        times: list[int] = []
        tasks: list[int] = []
        for name, partition in partitions_of(self.connection, topic):
            end = self.ends(name)[partition]
            for message in messages(self.connection, name, partition, 0, end, "read_committed"):
                times.append(message.timestamp()[1])
                tasks.append(partition)
        time_ms = np.array(times, np.int64)
        read = pl.DataFrame({"task": tasks, "time": times})
        reached_ms = read.select(pl.col("time").cum_max().over("task"))["time"].to_numpy()
        return int(np.count_nonzero(time_ms - time_ms % WINDOW_MS + WINDOW_MS + GRACE_MS <= reached_ms))

    def structured_streaming(self, job: Job) -> Held:
        """In the batches of its checkpoint, which follow without a pause: it drops the fewest that it can."""
        with self.ran(STRUCTURED_STREAMING, job) as (run, dropped):
            cuts = batches_in(run.state / "checkpoints" / run.application)
            fewest = _dropped(self.answer(job, replace(self.whole(job), cuts=cuts)), STRUCTURED)["least"]
        reading = f"in its {cuts['batch'].n_unique()} batches, without a pause"
        return Held(
            job=job.name, engine="Structured Streaming", reading=reading, model=_exactly(fewest), dropped=dropped
        )

    def recount(self, job: Job) -> tuple[Held, Figures]:
        """In the batches of its own ledger; and what the others would have answered in these."""
        with self.ran(RECOUNT, job) as (run, dropped):
            modelled, tables = Modelled.of(self.topology(job)), Tables(f"{run.state}/tables")
            proofs = Proofs(state=tables.state(run.application), moved_to=tables.ledger(run.application))
            span = span_of(modelled, (entry.proof for entry in proofs.newest_first()), None, None)
            answer = looked_at(modelled, span, records_of(span, self.connection, tables)).said
        model = _exactly(answer["late"])
        return Held(job=job.name, engine="Recount", reading="by partition", model=model, dropped=dropped), answer

    def answer(self, job: Job, span: Span) -> Figures:
        """What the lens says of ``job``."""
        nothing = Tables(str(self.bench.folder / "no-archive"))
        return looked_at(Modelled.of(self.topology(job)), span, records_of(span, self.connection, nothing)).said

    def topology(self, job: Job) -> Topology:
        """The job as the contenders run it: where Kafka Streams keeps the key, so does this."""
        windows = _OWN_KEYS.get(job.name)
        if windows is None:
            return job.topology("lens", self.flow.topic, "lens-results")
        return _counted(self.flow.topic, windows)

    def whole(self, job: Job) -> Span:
        """The whole topic as one batch."""
        topic, last_ms = self.flow.topic, int(self.flow.timestamp_ms.max())
        rows = [
            (p, 0, 0, end, int(np.count_nonzero(self.flow.partition == p)), last_ms)
            for p, end in self.ends(topic).items()
        ]
        parts = pl.DataFrame(rows, PARTS, orient="row")
        name = Modelled.of(self.topology(job)).source.topic.name
        return Span(topic=name, parts=parts, cuts=parts.select(*CUTS), reached_ms={})

    def ends(self, topic: str) -> Mapping[int, int]:
        """The end of each partition of ``topic``."""
        ranges = log_ranges(self.connection, partitions_of(self.connection, topic))
        return {partition: span.end for (_, partition), span in ranges.items()}

    @contextmanager
    def ran(self, contender: Contender, job: Job) -> Iterator[tuple[Run, int]]:
        """A run of ``contender`` to the end of the topic, and how many records it has dropped."""
        with self.bench.prepared(contender, job) as run:
            given = {**run.warm_up(self.warm_up), "records": self.flow.records, "keep-repartition": True}
            program = run.started(self.flow.topic, **given)
            try:
                said = program.wait_for("measured")
                program.finish()
            finally:
                program.kill()
            dropped = said.get("dropped")
            yield run, self.flow.records - run.results.read_all() if dropped is None else int(dropped)


def batches_in(checkpoint: Path) -> pl.DataFrame:
    """From which offset of each partition on each batch with data of a query on one topic has read."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal())
    rows: list[dict[str, int]] = [{}]
    for number in numbers:
        [offsets] = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[2]).values()
        if offsets != rows[-1]:
            rows.append(offsets)
    cuts = [(int(p), row.get(p, 0), batch) for batch, row in enumerate(rows[:-1]) for p in rows[-1]]
    return pl.DataFrame(cuts, CUTS, orient="row")


def _dropped(answer: Figures, engine: str) -> Mapping[str, int]:
    [found] = [one["dropped"] for one in answer["engines"] if one["engine"] == engine]
    return {**found}


def _exactly(number: int) -> Mapping[str, int]:
    return {"least": number, "most": number}


def _counted(topic: str, windows: TimeWindows | SessionWindows) -> Topology:
    counts = stream(orders_topic(topic)).windowed_by(windows).aggregate(orders=count()).emit_final()
    return Topology(name="lens", sinks=[counts.to(output_topic("lens-results"))])


_TEXT = """\
# The lens beside the engines

Generated by `make bench-lens ARGS="--publish"` from [lens.json](lens.json); do not edit.

{records:,} orders on {partitions} partitions, {per_second} a second of event time, up to 3 s out of order, one in
1,000 ten minutes late, partition 0 {lag} behind the others; a grace of {grace}. Each engine reads the topic from its
beginning. **model** is how many records the [lens](../lens.md) says that the engine drops, **dropped** how many it did:
by its own metric (Kafka Streams), or missing from its results.

- Read from the beginning, the partitions may pass Kafka Streams' repartition topic in any order: the model has bounds
  only. With the order that the topic shows afterwards the model is a number.
- Structured Streaming reads what is there in batches that follow without a pause: the model takes its fewest.
- Sessions of Structured Streaming are not held here: they leave when they have ended, and what it drops is not shown.

{cores} cores, {memory_gib} GiB.
"""


def main(
    records: Annotated[int, typer.Option(min=10_000, help="Records of the topic.")] = 200_000,
    max_offsets: Annotated[int, typer.Option(min=1_000, help="Most records of a batch.")] = 20_000,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page to docs/operations.")] = False,
) -> None:
    """Fails where an engine has dropped another number of records than its model says."""
    place = Place.new()
    build_kafka_streams(place.project)
    lag_ms = milliseconds(LAG)
    flow = Flow(topic="orders", records=records, per_second=PER_SECOND, lag_ms=lag_ms)
    warm_up = Flow(topic="warm-up-orders", records=_WARM_UP_RECORDS, seed=1)
    held: list[Held] = []
    with cluster(place.folder / "kafka", place.project) as kafka:
        for each in (flow, warm_up):
            kafka.create_source(each.topic)
            each.produce(kafka.connection.producer({"linger.ms": 50}))
        bench = Bench(project=place.project, cluster=kafka, folder=place.folder, max_offsets=max_offsets)
        beside = Beside(bench=bench, flow=flow, warm_up=warm_up)
        for job in (REVENUE_BY_REGION, COUNTS_PER_USER, SESSIONS_PER_USER):
            held += beside.kafka_streams(job)
        held += [beside.structured_streaming(job) for job in (REVENUE_BY_REGION, COUNTS_PER_USER)]
        own, answer = beside.recount(REVENUE_BY_REGION)
        held.append(own)
    settings = {"records": records, "max_offsets": max_offsets, "per_second": PER_SECOND, "lag": LAG, "grace": GRACE}
    Report(
        name=NAME,
        text=_TEXT.format(**settings, partitions=PARTITIONS, **machine()),
        tables=[_table(held), _by_ledger(answer)],
        document={
            "machine": machine(),
            "settings": settings,
            "held": [{**asdict(one), "holds": one.holds} for one in held],
            "by_recounts_ledger": answer,
        },
    ).hand_over(place, publish=publish)
    wrong = [f"{one.job} of {one.engine} {one.reading}" for one in held if not one.holds]
    if wrong:
        sys.exit(f"not as the model says: {'; '.join(wrong)}")


def _table(held: Sequence[Held]) -> Rows:
    body = [
        [
            f"{one.job}, {one.engine}, {one.reading}",
            between(one.model),
            f"{one.dropped:,}",
            "yes" if one.holds else "NO",
        ]
        for one in held
    ]
    return Rows(name="held", title="Records dropped", head=["job and engine", "model", "dropped", "holds"], body=body)


def _by_ledger(answer: Figures) -> Rows:
    """What `recount lens` says of the same topic by the batches of Recount's own run."""
    body = [[head, *(between(engine[name]) for engine in answer["engines"])] for head, name in COUNTS.items()]
    title = (
        f"recount lens on Recount's own {answer['batches']} batches: {answer['records']:,} records in "
        f"{answer['results']:,} results, judged in {answer['cost']['seconds']:.1f} s"
    )
    return Rows(name="ledger", title=title, head=["", "Kafka Streams", "Structured Streaming"], body=body)


if __name__ == "__main__":
    typer.run(main)
