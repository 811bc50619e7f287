"""After any fault a stream goes on as if nothing had been, or refuses to with what to do (issue 12, 2)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka import TopicPartition
from pyspark.errors import StreamingQueryException
from tests.eventually import eventually
from tests.integration.engine.drivers import committed
from tests.spark.audit.conftest import MINUTE_MS, Scene, order, scene

from recount.audit.certificate.certificate_files import load
from recount.audit.findings.acceptances import accept
from recount.declare.columns import BATCH
from recount.declare.groups import Archive
from recount.declare.topics import Topic
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.delta_table import AppendOnlyTable, TableFile
from recount.engine.driver.runner import RunOptions, StreamRunner, checkpoint_location
from recount.engine.exchange.work import Step, Work
from recount.engine.source.resumption import OtherTopic, OutOfStep
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.kafka.connection import Fenced
from recount.kafka.leases import Lease
from recount.kafka.offsets import UnreadRecordsGone, log_ranges, partitions_of
from recount.kafka.status import status_of
from recount.kafka.topics_on_cluster import apply, plan
from recount.kafka.transaction import OutputTransaction
from recount.lifecycle.reset import Reset
from recount.runtime.errors import Terminal
from recount.tables.ledger import MADE_ANEW, BatchProof

__all__ = ["scene"]
EACH = 12
"""Minutes of records in a batch: each emits windows, and one of its records is late, one is bad."""


class Broken(Exception):
    """Where the driver dies."""


class FailingTable(AppendOnlyTable):
    """A table that cannot be written."""

    def append(
        self,
        rows: pl.DataFrame,
        *,
        writer: str,
        version: int,
        metadata: str | None = None,
        files: Sequence[TableFile] = (),
    ) -> None:
        raise Broken(f"{self.path} {writer} {version} {rows.height} {metadata} {files}")


def failing(table: AppendOnlyTable) -> FailingTable:
    return FailingTable(path=table.path, schema=table.schema, carries_proofs=table.carries_proofs)


def produce(scene: Scene, *parts: int) -> None:
    """What one batch reads, for each of ``parts``."""
    for part in parts:
        minutes = range(part * EACH, (part + 1) * EACH)
        records: list[tuple[int, int, Any]] = [(p, m * MINUTE_MS, order("EU", 1.5)) for m in minutes for p in (0, 1)]
        records += [(0, max(0, part * EACH - 20) * MINUTE_MS, order("late", 9.0)), (1, 0, b"not json")]
        scene.produce(records)


def run(scene: Scene, work: Work | None = None, dies: tuple[Step, int] | None = None) -> None:
    """Process all that is there, a part a batch, as far as the driver lives."""

    def observer(step: Step, batch: int) -> None:
        if (step, batch) == dies:
            raise Broken(f"{step} {batch}")

    options = RunOptions(available_now=True, max_offsets=2 * EACH + 2)
    StreamRunner(scene.session, scene.settings, work or work_of(scene), options, observer).run()


def work_of(scene: Scene) -> TopologyWork:
    return TopologyWork(scene.topology, scene.settings.data)


def killed(scene: Scene, work: Work | None = None, dies: tuple[Step, int] | None = None) -> None:
    with pytest.raises((Broken, StreamingQueryException)):
        run(scene, work, dies)


def lose_checkpoint(scene: Scene) -> None:
    shutil.rmtree(checkpoint_location(scene.settings, scene.topology.name, 1))


def expire_offsets(scene: Scene) -> None:
    """What seven days without a commit do."""
    admin = scene.connection.admin()
    [gone] = admin.delete_consumer_groups([scene.connection.group(scene.topology.name)]).values()
    gone.result()


def make_anew(scene: Scene, topic: Topic) -> None:
    """Delete the topic and create it again."""
    admin = scene.connection.admin()
    admin.delete_topics([topic.name])[topic.name].result(15)
    assert eventually(lambda: topic.name in admin.list_topics(timeout=15).topics, False) is False
    apply(admin, plan(admin, [topic], "embedded"))


def ledger(scene: Scene) -> list[BatchProof]:
    return [entry.proof for entry in work_of(scene).history.newest_first()][::-1]


def orders_of(proofs: Iterable[BatchProof]) -> list[tuple[int, int]]:
    return [proof.order for proof in proofs]


def files(scene: Scene) -> set[tuple[str, int]]:
    """All that lies below the data root, by name and size."""
    root = Path(scene.settings.data)
    return {(str(path.relative_to(root)), path.stat().st_size) for path in root.rglob("*") if path.is_file()}


def assert_right(scene: Scene, parts: int) -> None:
    """Kafka and all tables have what an undisturbed run has, each row once; the audit recomputes it from the log."""
    tables = work_of(scene).tables
    [output] = tables.outputs.values()
    assert output.read().collect().height == len(committed(scene.connection, scene.revenue)) > 0
    late = sum(part.late for proof in ledger(scene) for part in proof.partitions)
    assert tables.late.read().collect().height == late > 0
    assert tables.rejected.read().collect().height == parts
    assert len(committed(scene.connection, f"{scene.orders}.dlq")) == parts
    findings = scene.audit().findings
    assert findings.outcome == "match", findings.differences


def test_a_checkpoint_lost_between_the_appends_of_a_batch_neither_doubles_nor_loses_a_row(scene: Scene) -> None:
    produce(scene, 0, 1, 2)
    run(scene)
    # late, rejected and output have the batch, the state and its proof have not
    produce(scene, 3)
    work = work_of(scene)
    work.tables.state = failing(work.tables.state)
    killed(scene, work)
    assert BATCH in (have := work.tables.late.read().collect()).columns
    assert 3 in have[BATCH]
    lose_checkpoint(scene)
    expire_offsets(scene)
    produce(scene, 4)
    run(scene)
    assert orders_of(ledger(scene)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert len({proof.checkpoint_id for proof in ledger(scene)[:4]}) == 1

    # Kafka has the first batch of a checkpoint, no table has it
    produce(scene, 5)
    lose_checkpoint(scene)
    killed(scene, dies=("kafka committed", 0))
    lose_checkpoint(scene)
    expire_offsets(scene)
    run(scene)
    assert orders_of(ledger(scene))[4:] == [(1, 0), (2, 0), (3, 0)]
    assert not any(part.records for part in ledger(scene)[-1].partitions), "a new checkpoint begins with a batch"

    # of such a batch, which has read nothing, only the name tells that Kafka has it
    lose_checkpoint(scene)
    killed(scene, dies=("kafka committed", 0))
    lose_checkpoint(scene)
    run(scene)
    assert orders_of(ledger(scene))[6:] == [(3, 0), (4, 0), (5, 0)]
    assert_right(scene, 6)


def test_the_very_first_batch_is_completed_under_its_own_name(scene: Scene) -> None:
    produce(scene, 0)
    killed(scene, dies=("kafka committed", 0))
    lose_checkpoint(scene)
    expire_offsets(scene)
    produce(scene, 1, 2)
    run(scene)
    assert orders_of(ledger(scene)) == [(0, 0), (1, 0), (1, 1)]
    assert_right(scene, 3)


def test_expired_offsets_of_a_batch_that_kafka_has_do_not_publish_it_twice(scene: Scene) -> None:
    produce(scene, 0, 1, 2)
    killed(scene, dies=("kafka committed", 2))
    expire_offsets(scene)
    run(scene)
    produce(scene, 3)
    run(scene)
    expire_offsets(scene)
    run(scene)
    assert orders_of(ledger(scene)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert_right(scene, 4)


def test_tables_of_an_older_backup_are_refused_before_anything_is_written_and_newer_ones_go_on(
    scene: Scene, tmp_path: Path
) -> None:
    data, old, new = Path(scene.settings.data), tmp_path / "old", tmp_path / "new"
    produce(scene, 0, 1)
    run(scene)
    shutil.copytree(data, old)
    produce(scene, 2, 3)
    run(scene)
    shutil.copytree(data, new)
    published = len(committed(scene.connection, scene.revenue))

    def refused() -> Terminal:
        before = files(scene)
        with pytest.raises(Terminal) as error:
            run(scene)
        assert files(scene) == before
        assert len(committed(scene.connection, scene.revenue)) == published
        assert f"recount reset {scene.topology.name}" in error.value.remedy
        return error.value

    def restore(backup: Path, *folders: str) -> None:
        for folder in folders or (".",):
            shutil.rmtree(data / folder)
            shutil.copytree(backup / folder, data / folder)

    restore(old)
    assert isinstance(refused(), OutOfStep)
    expire_offsets(scene)
    assert isinstance(refused(), OutOfStep)
    restore(new)
    shutil.rmtree(data / "streams")
    assert isinstance(refused(), OutOfStep)
    restore(new)
    restore(old, "outputs/revenue")
    assert "alone" in refused().what
    restore(new)
    restore(old, "streams")
    assert isinstance(refused(), OutOfStep)
    restore(new)
    lose_checkpoint(scene)
    restore(old)
    assert isinstance(refused(), OutOfStep)

    restore(new)
    produce(scene, 4)
    run(scene)
    assert_right(scene, 5)


def test_a_stream_that_was_renamed_is_refused_before_it_writes_everything_again(scene: Scene) -> None:
    produce(scene, 0, 1)
    run(scene)
    before, published = files(scene), len(committed(scene.connection, scene.revenue))
    renamed = replace(scene.topology, name=f"{scene.topology.name}-renamed")
    with pytest.raises(Terminal, match="has never run, and there are results already"):
        run(scene, TopologyWork(renamed, scene.settings.data))
    assert files(scene) == before
    assert len(committed(scene.connection, scene.revenue)) == published


def test_a_table_that_lacks_only_the_last_batch_gets_it_from_its_proof(scene: Scene, tmp_path: Path) -> None:
    late = Path(work_of(scene).tables.late.path)
    produce(scene, 0, 1, 2)
    run(scene)
    shutil.copytree(late, tmp_path / "late")
    produce(scene, 3)
    killed(scene, dies=("delta committed", 3))
    shutil.rmtree(late)
    shutil.copytree(tmp_path / "late", late)
    produce(scene, 4)
    run(scene)
    assert orders_of(ledger(scene)) == [(0, batch) for batch in range(5)]
    assert_right(scene, 5)


class HeldUp(StreamRunner):
    """A driver that is held up after it has its lease and before it opens its outputs, while a newer one runs."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.session, scene.settings, work_of(scene), RunOptions(available_now=True))
        self._scene = scene

    def _outputs(self, lease: Lease) -> OutputTransaction:
        run(self._scene)
        produce(self._scene, 1)
        return super()._outputs(lease)


@pytest.mark.thorough
def test_a_driver_that_was_held_up_before_it_opened_its_outputs_does_not_go_on_after_a_newer_one(scene: Scene) -> None:
    produce(scene, 0)
    with pytest.raises(Fenced):
        HeldUp(scene).run()
    assert orders_of(ledger(scene)) == [(0, 0)]
    run(scene)
    assert [proof.lease_epoch for proof in ledger(scene)] == [1, 2]
    assert_right(scene, 2)


@pytest.mark.thorough
def test_an_archive_that_is_older_than_its_group_is_refused(scene: Scene, tmp_path: Path) -> None:
    archive = Archive(topic=scene.topology.sources[0].topic)
    work = ArchiveWork(scene.session, archive, scene.settings.data)
    produce(scene, 0)
    run(scene, work)
    shutil.copytree(work.path, tmp_path / "older")
    produce(scene, 1)
    killed(scene, work, dies=("delta committed", 1))
    shutil.rmtree(checkpoint_location(scene.settings, archive.name, 1))
    run(scene, work)
    produce(scene, 2)
    run(scene, work)
    rows = scene.session.read.format("delta").load(work.path)
    assert rows.count() == rows.dropDuplicates(["partition", "offset"]).count() == 3 * (2 * EACH + 2)
    shutil.rmtree(work.path)
    shutil.copytree(tmp_path / "older", work.path)
    with pytest.raises(OutOfStep, match="older than"):
        run(scene, work)


@pytest.mark.thorough
def test_a_source_that_was_made_anew_and_has_grown_beyond_is_refused_and_no_audit_matches_before_it_is_accepted(
    scene: Scene,
) -> None:
    """The new topic even has the same records at the same offsets: by its id alone it is another."""
    [orders] = [source.topic for source in scene.topology.sources]
    produce(scene, 0)
    run(scene)
    before = files(scene)
    make_anew(scene, orders)
    produce(scene, 0, 1)
    with pytest.raises(OtherTopic) as refused:
        run(scene)
    assert orders.name in refused.value.what
    assert files(scene) == before

    night = scene.audit().findings
    assert night.outcome == "violation"
    assert [(one.verdict, one.place) for one in night.differences] == [(MADE_ANEW, orders.name)]
    assert night.standing is not None
    [finding] = night.standing.open
    accept(scene.settings, scene.topology.name, finding.id, by="Ada", reason="a copy of the former cluster")
    run(scene)
    assert orders_of(ledger(scene)) == [(0, 0), (0, 1)]
    assert_right(scene, 2)


@pytest.mark.thorough
def test_a_batch_that_was_in_flight_when_the_cluster_was_moved_is_completed_once_the_copy_is_accepted(
    scene: Scene,
) -> None:
    [orders] = [source.topic for source in scene.topology.sources]
    produce(scene, 0)
    run(scene)
    produce(scene, 1)
    killed(scene, dies=("kafka committed", 1))
    make_anew(scene, orders)
    produce(scene, 0, 1)
    with pytest.raises(OtherTopic):
        run(scene)
    night = scene.audit().findings
    assert night.cut.order == (0, 0)
    assert night.standing is not None
    [finding] = [one for one in night.standing.open if one.difference.verdict == MADE_ANEW]
    assert {one.difference.verdict for one in night.standing.open} <= {MADE_ANEW, "extra"}
    accept(scene.settings, scene.topology.name, finding.id, by="Ada", reason="a copy of the former cluster")
    run(scene)
    assert orders_of(ledger(scene)) == [(0, 0), (0, 1)]
    assert scene.audit().findings.outcome == "match"


@pytest.mark.thorough
def test_a_source_that_was_made_anew_and_is_shorter_is_certified_as_a_finding_and_nothing_is_judged(
    scene: Scene,
) -> None:
    [orders] = [source.topic for source in scene.topology.sources]
    produce(scene, 0)
    run(scene)
    first = scene.audit().findings
    produce(scene, 1)
    run(scene)
    make_anew(scene, orders)
    short = {("cut short", f"{orders.name}-{partition}") for partition in (0, 1)}
    for _ in range(2):
        night = scene.audit()
        assert load(night.certificate)["batches"] == 0
        assert night.findings.outcome == "violation"
        found = {(one.verdict, one.place) for one in night.findings.differences}
        assert found == {(MADE_ANEW, orders.name), *short}
        assert night.findings.cut.order == first.cut.order
    assert night.findings.standing is not None
    for finding in night.findings.standing.open:
        accept(scene.settings, scene.topology.name, finding.id, by="Ada", reason="the topic was lost")
    assert scene.audit().findings.outcome == "match"
    with pytest.raises(UnreadRecordsGone):
        run(scene)


@pytest.mark.thorough
def test_a_results_topic_that_was_made_anew_and_is_shorter_is_read_from_its_first_record(scene: Scene) -> None:
    produce(scene, 0, 1)
    run(scene)
    scene.audit()
    make_anew(scene, scene.topology.sinks[0].topic)
    produce(scene, 2)
    run(scene)
    night = scene.audit().findings
    assert [(one.verdict, one.place) for one in night.differences] == [(MADE_ANEW, scene.revenue)]
    assert night.counts["kafka match"] > 0


def test_a_source_that_is_made_anew_between_two_batches_ends_the_stream_before_it_publishes(scene: Scene) -> None:
    [orders] = [source.topic for source in scene.topology.sources]
    produce(scene, 0, 1)

    def observer(step: Step, batch: int) -> None:
        if (step, batch) == ("delta committed", 0):
            make_anew(scene, orders)
            produce(scene, 2, 3)

    options = RunOptions(available_now=True, max_offsets=2 * EACH + 2)
    with pytest.raises(OtherTopic):
        StreamRunner(scene.session, scene.settings, work_of(scene), options, observer).run()
    assert orders_of(ledger(scene)) == [(0, 0)]
    [output] = work_of(scene).tables.outputs.values()
    assert output.read().collect().height == len(committed(scene.connection, scene.revenue)) > 0


def said_last(scene: Scene) -> tuple[str, int | None]:
    """State and version in the last status of the stream."""
    status = status_of(scene.connection, scene.topology.name)
    assert status is not None
    return status.state, status.stream_version


@pytest.mark.thorough
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_stream_that_stood_still_for_longer_than_its_topic_is_kept_refuses_and_can_be_reset(
    scene: Scene, has_checkpoint: bool
) -> None:
    produce(scene, 0)
    run(scene)
    if not has_checkpoint:
        shutil.rmtree(checkpoint_location(scene.settings, scene.topology.name, 1))
    before = files(scene)
    produce(scene, 1, 2)
    ends = log_ranges(scene.connection, partitions_of(scene.connection, scene.orders))
    beyond = [TopicPartition(*place, span.end - EACH) for place, span in ends.items()]
    for deleted in scene.connection.admin().delete_records(beyond).values():
        deleted.result(15)
    with pytest.raises(UnreadRecordsGone, match=f"{scene.orders}-0"):
        run(scene)
    assert files(scene) == before
    assert said_last(scene) == ("failed", 1)
    Reset(scene.settings, scene.topology, "beginning").run()
    assert said_last(scene) == ("stopped", 2), "no page shows the failure of the former version"
    run(scene)
    assert said_last(scene) == ("stopped", 2)
    assert scene.audit().findings.outcome == "match"
