"""A fault after every external effect: ``python -m tests.faults``; ends with 1 where one leaves a difference."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.faults.page import alone, page, stop_when_told, table
from tests.faults.parts import PARTS
from tests.faults.strikes import FAULTS

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "faults.md"


def main() -> None:
    """Try all cases, or those that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this part (can be repeated)")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this fault (can be repeated)")
    parser.add_argument("--without", action="append", default=[], choices=list(FAULTS), help="leave this fault out")
    parser.add_argument("--sample", type=int, default=0, help="so many effects of each part and fault only")
    parser.add_argument("--seed", type=int, default=1, help="which time of an effect, and which sample")
    parser.add_argument("--workers", type=int, default=2, help="parts at a time, each on a broker of its own")
    parser.add_argument("--page", action="store_true", help="write docs/operations/faults.md")
    given = parser.parse_args()
    faults = [name for name in given.fault or FAULTS if name not in given.without]
    began = time.monotonic()
    stop_when_told()
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn"), initializer=stop_when_told) as pool:
        parts = [pool.submit(alone, part, faults, given.seed, given.sample) for part in given.part or PARTS]
        try:
            found = [case for part in parts for case in part.result()]
        finally:
            pool.shutdown(cancel_futures=True)
    print(table(found))
    wrong = [case for case in found if case.wrong]
    for case in wrong:
        print(case)
    if given.page:
        about = [f"This run was a sample: {given.sample} effects of each part and fault."] if given.sample else []
        PAGE.write_text(page(found, about))
    print(f"{len(found) - len(wrong)} of {len(found)} cases right, {time.monotonic() - began:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
