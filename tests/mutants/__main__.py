"""Breaks every rule of the stream in turn and asks the audit: ``python -m tests.mutants`` writes docs/mutants.md.

Ends with 1 where a mutant is not caught.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from compileall import compile_dir
from dataclasses import asdict
from pathlib import Path
from py_compile import PycInvalidationMode
from tempfile import TemporaryDirectory

from tests.mutants.catalogue import mutants
from tests.mutants.mutant import Mutant
from tests.mutants.page import Caught, key_of, page, read
from tests.mutants.untried import untried

from recount.profile.home import Project

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mutants.md"


def tried(chosen: list[Mutant], known: Mapping[str, Caught]) -> Iterator[Caught]:
    """Who caught each of ``chosen``, in a copy of package and tests; nothing of this checkout is changed.

    First comes the scene that has revealed it before, by ``known``; then all others do.
    """
    first = [known.get(key_of(one), Caught()).scene for one in chosen]
    with TemporaryDirectory(prefix="recount-mutants-") as scratch:
        package = Path(scratch) / "recount"
        for source, copy in ((ROOT / "include" / "recount", package), (ROOT / "tests", Path(scratch) / "tests")):
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        # known by their hash, so that all modules but the mutant's are imported without being compiled again
        compile_dir(scratch, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        environment = os.environ | {
            "PYTHONPATH": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYSPARK_PYTHON": sys.executable,
        }
        jars = Project.containing(ROOT).spark_jars
        command = [sys.executable, "-m", "tests.mutants.trial", str(package), str(jars)]
        with subprocess.Popen(
            command, cwd=scratch, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin and process.stdout
            given = [[asdict(one), scene] for one, scene in zip(chosen, first, strict=True)]
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.close()
            for mutant in chosen:
                told = json.loads(process.stdout.readline())
                if "wrong" in told:
                    sys.exit("stream and recompute differ without a mutant: " + ", ".join(told["wrong"]))
                print(f"{told.pop('seconds'):5.1f} s {key_of(mutant)} {told}", flush=True)
                yield Caught(**told)


def main() -> None:
    """Try all mutants, or some."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="so many of them only; docs/mutants.md stays as it is")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--file", default="", help="only those of files whose name has this")
    parser.add_argument("--missing", action="store_true", help="only those that docs/mutants.md does not call caught")
    given = parser.parse_args()
    known, catalogue = read(PAGE.read_text()) if PAGE.exists() else {}, mutants(ROOT / "include" / "recount")
    chosen = [one for one in catalogue if given.file in one.file and not (given.missing and key_of(one) in known)]
    if given.sample:
        chosen = random.Random(given.seed).sample(chosen, given.sample)
    began, missed = time.monotonic(), 0
    for mutant, caught in zip(chosen, tried(chosen, known), strict=True):
        known[key_of(mutant)] = caught
        missed += "audit" not in caught.caught_by
        _publish(catalogue, known, sample=given.sample)
    _publish(catalogue, known, sample=given.sample)
    told = f"{len(chosen) - missed} of {len(chosen)} mutants turned the audit red"
    print(f"{told}, {time.monotonic() - began:.0f} s")
    sys.exit(1 if missed else 0)


def _publish(catalogue: Sequence[Mutant], known: Mapping[str, Caught], *, sample: int | None) -> None:
    if not sample:
        PAGE.write_text(page(catalogue, known, list(untried())))


if __name__ == "__main__":
    main()
