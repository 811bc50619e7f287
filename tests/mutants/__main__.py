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
from compileall import compile_dir
from dataclasses import asdict
from pathlib import Path
from py_compile import PycInvalidationMode
from tempfile import TemporaryDirectory

from tests.mutants.catalogue import Mutant, mutants
from tests.mutants.page import Caught, page

from recount.local.project import Project

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mutants.md"


def tried(chosen: list[Mutant]) -> list[Caught]:
    """Each of ``chosen`` and who caught it, in a copy of package and tests; nothing of this checkout is changed."""
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
            process.stdin.write(json.dumps([asdict(one) for one in chosen]) + "\n")
            process.stdin.close()
            wrong = json.loads(process.stdout.readline())["unharmed"]
            if wrong:
                sys.exit("stream and recompute differ without a mutant: " + ", ".join(wrong))
            found = []
            for mutant in chosen:
                found.append(Caught(mutant=mutant, **json.loads(process.stdout.readline())))
                print(found[-1], flush=True)
        return found


def main() -> None:
    """Try all mutants, or a sample."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, help="so many of them only; docs/mutants.md stays as it is")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--file", default="", help="only those of files whose name has this")
    given = parser.parse_args()
    chosen = [one for one in mutants(ROOT / "include" / "recount") if given.file in one.file]
    if given.sample:
        chosen = random.Random(given.seed).sample(chosen, given.sample)
    began = time.monotonic()
    found = tried(chosen)
    if not given.sample and not given.file:
        PAGE.write_text(page(found))
    missed = [one for one in found if "audit" not in one.caught_by]
    print(f"{len(found) - len(missed)} of {len(found)} mutants turned the audit red, {time.monotonic() - began:.0f} s")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
