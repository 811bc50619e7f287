"""Each kind of ACL dropped in turn from a running chain: ``python -m tests.acls``, which is ``make acls``.

The chain must run with exactly the ACLs that `recount acls` prints, and without any one kind of them stop with one
Terminal error. Exits with 1 where a kind is not needed, or its lack is told otherwise.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from tests.integration.secure.chain import Chain
from tests.local_spark import TINY, local_session

from recount.audit.expectations.suites import SUITES
from recount.audit.expectations.validation import validate
from recount.kafka.connection import NotAllowed
from recount.kafka.topics_on_cluster import TopicsNotInStep
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.errors import RecountError
from recount.runtime.settings import Role

Kind = tuple[Role, str, str, str]
"""Role, resource, operation, and what it is."""
_KNOWN_WITHIN_S = 1.0
"""Brokers hear of a change of ACLs a moment after it was made."""
_OF_PEOPLE = frozenset({"Delete", "Write", "transactions", "readers", "offsets of a stream", "result", "platform"})
"""What an admin needs for orders, resets and erasures, which are not in this chain."""


def main() -> int:
    """Run them all, or those whose description holds a given word."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*", help="only kinds that hold one of these words, such as audit or Describe")
    words = parser.parse_args().words
    project = Project.containing(Path.cwd())
    wrong = 0
    with TemporaryDirectory(prefix="recount-acls-") as folder:
        root = Path(folder)
        with EmbeddedKafka(home=Home(path=root / "home"), project=project, secure=True) as kafka:
            chain = Chain.below(root, kafka, project)
            chain.permit(chain.acls)
            # once the topics are there, nobody needs to create them
            for kind in _kinds(chain, words):
                if _creates(kind):
                    wrong += not _dropped(chain, kind, chain.create_topics)
            chain.create_topics()
            spark = local_session(str(project.spark_jars), root / "spark", **TINY)
            sold = 0

            def run(role: Role) -> None:
                nonlocal sold
                sold += 1
                chain.sell([sold])
                _run(chain, spark, role)

            for role in ("stream", "audit"):
                run(role)
            print(f"the chain runs with {len(chain.acls)} ACLs", flush=True)
            for kind in _kinds(chain, words):
                if not _creates(kind):
                    wrong += not _dropped(chain, kind, lambda role=kind[0]: run(role))  # type: ignore[misc]
                    run("stream")
            spark.stop()
    return 1 if wrong else 0


def _kinds(chain: Chain, words: Collection[str]) -> list[Kind]:
    """Those that this chain needs, of ``words`` those that hold one."""
    kinds = sorted({acl.kind for acl in chain.acls if not _is_of_people(acl.kind)})
    return [kind for kind in kinds if not words or any(word in " ".join(kind) for word in words)]


def _creates(kind: Kind) -> bool:
    return kind[2] == "Create"


def _dropped(chain: Chain, kind: Kind, run: Callable[[], None]) -> bool:
    """Whether ``run`` stops with one Terminal error without the ACLs of this kind; then all are in force again."""
    chain.permit([acl for acl in chain.acls if acl.kind != kind])
    time.sleep(_KNOWN_WITHIN_S)
    told = _told(run)
    print(f"{' '.join(kind)}: {told}", flush=True)
    chain.permit(chain.acls)
    time.sleep(_KNOWN_WITHIN_S)
    return told.startswith("Terminal")


def _run(chain: Chain, spark: SparkSession, role: Role) -> None:
    if role == "admin":
        chain.create_topics()
    elif role == "stream":
        chain.stream(spark)
        chain.sell([0])  # too late
        chain.stream(spark)
        chain.audit(spark)
        chain.backfill()
    else:
        judged = chain.audit(spark).findings
        validate(spark, chain.settings.acting_as("audit"), judged.topology, judged.audit, SUITES)


def _is_of_people(kind: Kind) -> bool:
    role, _, operation, what = kind
    return role == "admin" and bool({operation, what} & _OF_PEOPLE)


def _told(run: Callable[[], None]) -> str:
    began = time.monotonic()
    try:
        run()
    except TopicsNotInStep as error:
        is_clear = all(isinstance(problem, NotAllowed) for problem in error.problems.values())
        told = f"{'Terminal' if is_clear else 'UNCLEAR'}: {next(iter(error.problems.values()))}"
    except NotAllowed as error:
        told = f"Terminal: {error}"
    except RecountError as error:
        told = f"UNCLEAR: {type(error).__name__}: {error}"
    except Exception as error:
        traceback.print_exc()
        told = f"NOT OURS: {type(error).__name__}: {str(error)[:300]}"
    else:
        told = "NOT NEEDED"
    return f"{told} ({time.monotonic() - began:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
