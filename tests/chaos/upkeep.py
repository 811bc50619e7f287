"""``upkeep.py FOLDER``: a stream reduced to its ledger that never rests: batch, round of upkeep, batch, …

It goes on where the ledger ends, says each batch once it is committed, and lets every commit be old at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.unit.engine.ledger_scene import LedgerScene

from recount.engine.upkeep.trimming import Compaction


def main(folder: str) -> None:
    scene = LedgerScene(Path(folder), most_at_once=2)
    upkeep = Compaction([], scene.state, scene.ledger, trim=lambda: None)
    last = next(scene.proofs.newest_first(), None)
    batch = 0 if last is None else last.proof.batch + 1
    while True:
        scene.commit(batch)
        print(batch, flush=True)
        scene.pass_hours()
        upkeep.round()
        batch += 1


if __name__ == "__main__":
    main(sys.argv[1])
