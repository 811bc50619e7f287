"""What runs of the faults have found so far: a run that is ended is gone on with, not begun again."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.faults.chains import Case
from tests.faults.effects import Point


@dataclass(frozen=True)
class Record:
    """A file with one line for each part and fault that was tried to its end; without a path nothing is kept."""

    path: Path | None = None

    def add(self, part: str, fault: str, cases: Sequence[Case]) -> None:
        """Keep the ``cases`` of ``fault``, which are all; several processes may do so at once."""
        if self.path is None:
            return
        line = {"commit": _commit(), "part": part, "fault": fault, "cases": [asdict(case) for case in cases]}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def done(self, part: str) -> set[str]:
        """The faults that ``part`` has been struck by."""
        return {line["fault"] for line in self._lines() if line["part"] == part}

    def cases(self) -> list[Case]:
        """All cases that are kept."""
        return [Case(**{**case, "point": Point(**case["point"])}) for line in self._lines() for case in line["cases"]]

    def told(self) -> str:
        """At which commits how many cases were run."""
        found = Counter[str]()
        for line in self._lines():
            found[line["commit"]] += len(line["cases"])
        return "Run at " + ", ".join(f"{commit} ({cases} cases)" for commit, cases in found.items()) + "."

    def _lines(self) -> list[dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True).stdout.strip()
