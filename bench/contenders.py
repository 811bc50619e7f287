"""The contenders, and the command line that starts each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.jobs import GRACE, GRACE_MS
from bench.quix_environment import quix_python
from recount.profile.home import Project
from recount.runtime.errors import Terminal
from recount.runtime.times import milliseconds
from recount.tables.places import Tables

LONG_GRACE = "3 h"
LONG_GRACE_MS = milliseconds(LONG_GRACE)

_SOURCES = Path(__file__).parent / "kafka_streams"
_JAVA = ("java", "-Xms1g", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

EXACTLY_ONCE: Final = "exactly_once_v2"
AT_LEAST_ONCE: Final = "at_least_once"
Guarantee = Literal["exactly_once_v2", "at_least_once"]
Engine = Literal["recount", "structured-streaming", "kafka-streams", "quix-streams"]


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One engine with the settings that tell it apart; ``name`` is unique.

    ``checkout`` is the root of another checkout that is set up, whose Recount runs instead of this one's.
    """

    engine: Engine
    name: str
    grace_ms: int = GRACE_MS
    guarantee: Guarantee = "exactly_once_v2"
    commit_interval_ms: int = 0
    checkout: Path | None = None

    @property
    def python(self) -> str:
        """The Python that has the contender's Recount."""
        return str(self.checkout / ".venv" / "bin" / "python") if self.checkout else sys.executable

    def command(self, project: Project, pairs: Mapping[str, object]) -> list[str]:
        """What to run, given the ``name=value`` pairs of a run."""
        own: dict[str, object] = {"grace-ms": self.grace_ms, "jars": self.jars(project), "guarantee": self.guarantee}
        match self.engine:
            case "recount":
                program = [self.python, "-m", "bench.recount_job"]
            case "structured-streaming":
                program = [sys.executable, "-m", "bench.structured_streaming"]
            case "kafka-streams":
                own["commit-interval-ms"] = self.commit_interval_ms
                program = [*_JAVA, "-cp", f"{_kafka_streams_build(project)}/*", "recount.bench.Contender"]
            case "quix-streams":
                own["commit-interval-ms"] = self.commit_interval_ms
                program = [str(quix_python(project)), "-m", "bench.quix_streams"]
        return [*program, *(f"{name}={value}" for name, value in {**pairs, **own}.items())]

    def jars(self, project: Project) -> Path:
        """The folder of the Spark jars of its checkout."""
        return Project(root=self.checkout).spark_jars if self.checkout else project.spark_jars

    def state_folder(self, state: Path, application: str) -> Path:
        """Where the state of ``application`` lies on disk."""
        match self.engine:
            case "recount":
                return Path(Tables(f"{state}/tables").state(application))
            case "structured-streaming":
                return state / "checkpoints" / application / "state"
            case "kafka-streams" | "quix-streams":
                return state / application

    def changelogs(self, application: str) -> str:
        """A pattern for what the names of the changelog topics of ``application`` contain, not those of its warm-up."""
        return f"changelog__{application}--" if self.engine == "quix-streams" else f"{application}-results*changelog"


RECOUNT = Contender(engine="recount", name="Recount")
RECOUNT_PLAIN = Contender(engine="recount", name="Recount with a plain producer", guarantee=AT_LEAST_ONCE)
"""Says what exactly once costs; no setting that a user has."""
STRUCTURED_STREAMING = Contender(engine="structured-streaming", name="Structured Streaming", guarantee=AT_LEAST_ONCE)


def recount_of(checkout: Path) -> Contender:
    """The Recount of another ``checkout``; raises ``Terminal`` where that is not set up."""
    if not (checkout / ".venv" / ".installed").exists():
        raise Terminal(
            "no checkout to compare with",
            given=str(checkout),
            expected="the root of a checkout of Recount, set up",
            remedy=f"git worktree add {checkout} COMMIT; make -C {checkout} setup",
        )
    return Contender(engine="recount", name=f"Recount of {checkout.name}", checkout=checkout)


def kafka_streams(guarantee: Guarantee, commit_interval_ms: int, grace: str) -> Contender:
    """Kafka Streams with these settings."""
    short = "exactly once" if guarantee == EXACTLY_ONCE else "at least once"
    return Contender(
        engine="kafka-streams",
        name=f"Kafka Streams, {short}, commit {commit_interval_ms} ms, grace {grace}",
        guarantee=guarantee,
        commit_interval_ms=commit_interval_ms,
        grace_ms=milliseconds(grace),
    )


PEER = kafka_streams(EXACTLY_ONCE, 100, LONG_GRACE)
"""The Kafka Streams that Recount is compared with: exactly once like itself, with a grace that keeps its records."""

PEER_SHORT_GRACE = kafka_streams(EXACTLY_ONCE, 100, GRACE)
QUIX_STREAMS = Contender(
    engine="quix-streams", name="Quix Streams, exactly once, commit 1000 ms, grace 60 s", commit_interval_ms=1_000
)


def build_kafka_streams(project: Project) -> None:
    """Compile the Java contender unless it is newer than its sources; raises ``Terminal`` with Maven's last words."""
    target = _kafka_streams_build(project)
    built = target / "contender.jar"
    sources = [path for path in _SOURCES.rglob("*") if path.is_file()]
    if built.exists() and built.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return
    target.mkdir(parents=True, exist_ok=True)
    command = [
        "mvn",
        "--batch-mode",
        "--quiet",
        f"--file={_SOURCES / 'pom.xml'}",
        f"-Dbuild.folder={target}",
        "package",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Terminal("the Kafka Streams contender does not build", given=done.stdout[-2_000:], remedy="see mvn above")


def _kafka_streams_build(project: Project) -> Path:
    return project.root / ".cache" / "bench" / "kafka_streams"
