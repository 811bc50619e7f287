"""What the long programs share: a broker and a Spark of their own, their end, and what a night does."""

import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from tests.local_spark import TINY, local_session
from tests.spark.audit.stage import Stage, settings_below

from recount.backfill.carrying_out import CarryingOut
from recount.declare.groups import Archive
from recount.engine.driver.runner import RunOptions, StreamRunner
from recount.engine.upkeep.archive_stream import ArchiveWork
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.settings import Settings

PAGES = Path(__file__).parents[1] / "docs" / "operations"


@contextmanager
def deployed(root: Path, **spark: str) -> Iterator[tuple[SparkSession, Settings]]:
    """A broker, a Spark with the settings ``spark``, and folders below ``root``; ended in the end, and by a SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    project = Project.containing(Path(__file__).parent)
    with EmbeddedKafka(home=Home(path=root / "kafka"), project=project) as kafka:
        settings = settings_below(root, kafka, project)
        session = local_session(settings.jars, root, **TINY | spark)
        try:
            yield session, settings
        finally:
            session.stop()


def archive(session: SparkSession, settings: Settings, archives: Iterable[Archive]) -> None:
    """Copy what is new of the archived topics."""
    for one in archives:
        work = ArchiveWork(session, one, settings.data)
        StreamRunner(session, settings, work, RunOptions(available_now=True)).run()


def lose_checkpoint(stage: Stage) -> None:
    """As somebody who tidies up does."""
    shutil.rmtree(Path(stage.settings.checkpoints) / stage.topology.name)


def backfilled(stage: Stage) -> int:
    """Correct all open misses of the stream; how many rows."""
    return CarryingOut.of(stage.settings, stage.topology).run().corrections


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"
