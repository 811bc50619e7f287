"""Night after night of the whole shop: ``python -m tests.shop_nights --nights 30 --folder F [--publish]``.

A night brings records of every source topic, a day of event time after those of the night before. Every stream is
started anew, runs to the end of its topics and stops; then all are audited. Kafka keeps the records of three days.
Tables keep their rows for ``KEPT``, a few nights. Each night has a fault, every fifth a lie about an output row, every
tenth a backfill of all misses. ``F`` keeps everything: the same command goes on after the last night that was complete.
Ends with 1 where a night was wrong, or the last nights of thirty cost more than the first. Thirty nights take hours, in
which a machine becomes slower or faster: with ``--control`` the first five are lived through once more in another
folder, and the last are compared with those.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from tests.long_programs import PAGES
from tests.shop_nights.deployment import KEPT, deployment
from tests.shop_nights.diary import CONTROL_NIGHTS, Diary
from tests.shop_nights.night import live
from tests.shop_nights.page import page
from tests.unit.topologies.shop_log import topics_of

from recount.declare.registry import declared


def main() -> None:
    """Live through the nights that are left, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.shop_nights", description=__doc__)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--folder", type=Path, required=True, help="what lives through the nights; made if it lacks")
    parser.add_argument("--records", type=int, default=60, help="of each topic, a night")
    parser.add_argument(
        "--played", type=int, default=0, help="so many in all, a night, as `make play` makes them, instead"
    )
    parser.add_argument("--streams", nargs="*", help="only these")
    parser.add_argument("--control", type=Path, help="the folder of the control, which goes on there too")
    parser.add_argument("--publish", nargs="?", const="shop-nights", help="write this page of docs/operations")
    given = parser.parse_args()
    found = declared()
    names = given.streams or list(found.topologies)
    topologies = [replace(found.topology(name), retention=KEPT) for name in names]

    def lived(folder: Path, nights: int) -> Diary:
        diary = Diary.in_folder(folder, nights)
        if len(diary.nights) < nights:
            with deployment(folder, topologies, list(found.archives.values())) as deployed:
                for number in range(len(diary.nights), nights):
                    diary.write(live(deployed, diary, number, given.records, given.played))
                    print(diary.nights[-1].line(), flush=True)
        return diary

    diary = lived(given.folder.resolve(), given.nights)
    if given.control:
        diary.control = [night.audit_cpu_s for night in lived(given.control.resolve(), CONTROL_NIGHTS).nights]
    if given.publish:
        control = f" --control {given.control}" if given.control else ""
        size = f"--folder {given.folder} --played {given.played}" if given.played else f"--records {given.records}"
        command = f'NIGHTS={given.nights} ARGS="{size} --publish {given.publish}{control}"'
        topics = {topic for one in topologies for topic in topics_of(one)}
        told = page(diary, command=command, brings=_brings(given, len(topics)))
        (PAGES / f"{given.publish}.md").write_text(told)
    wrong = diary.wrong()
    print(*wrong, sep="\n")
    print(f"{len(diary.nights)} nights, {diary.audits} audits, {len(wrong)} things wrong")
    sys.exit(1 if wrong else 0)


def _brings(given: argparse.Namespace, topics: int) -> str:
    """What a night brings, as its page says it."""
    if given.played:
        return f"{given.played:,} records in all for the {topics} source topics, as `make play` makes them"
    return f"{given.records:,} records of each of the {topics} source topics"


if __name__ == "__main__":
    main()
