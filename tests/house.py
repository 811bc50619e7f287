"""``make house``: how large the house is, and how easily one finds the way. ``make lint`` fails when a figure grows.

``tests/house.json`` has the limit of each figure. ``--lower`` writes the figures of now where they are lower. A limit
that has to grow is changed by hand, with the reason in the commit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "include" / "recount"
LIMITS = Path(__file__).with_suffix(".json")
LONGEST = 400
_AUDIT = """
import sys, recount.audit.together, recount.audit.auditor, recount.audit.topologies.auditor
print(sum(name.startswith("recount.") for name in sys.modules))
"""


def figures() -> dict[str, int]:
    """Each figure of the house; fewer is better."""
    lines = {file: _lines(file) for file in PACKAGE.rglob("*.py")}
    names = Counter(file.name for file in lines if file.name != "__init__.py")
    loose = [file for file in PACKAGE.glob("*.py") if file.name not in ("__init__.py", "testing.py", "cli.py")]
    return {
        "modules": len(lines),
        "lines": sum(lines.values()),
        "lines of tests": sum(_lines(file) for file in (ROOT / "tests").rglob("*.py")),
        f"files over {LONGEST} lines": sum(count > LONGEST for count in lines.values()),
        "file names that occur more than once": sum(count > 1 for count in names.values()),
        "loose files at the root": len(loose),
        "modules that name WindowedAggregate": sum("WindowedAggregate" in file.read_text() for file in lines),
        "modules that a night's audit imports": int(subprocess.check_output([sys.executable, "-c", _AUDIT], text=True)),
    }


def main() -> int:
    """Print the figures beside their limits; 1 when one is above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="lower each limit to the figure of now")
    lower = parser.parse_args().lower
    found, limits = figures(), json.loads(LIMITS.read_text())
    for name, figure in found.items():
        remark = "" if figure <= limits[name] else "  too many"
        print(f"{name:40} {figure:7,}  at most {limits[name]:7,}{remark}")
    sizes = [_lines(file) for file in PACKAGE.rglob("*.py")]
    print(f"{'lines of a module, median':40} {statistics.median(sizes):7,.0f}")
    if lower:
        limits = {name: min(figure, limits[name]) for name, figure in found.items()}
        LIMITS.write_text(json.dumps(limits, indent=2) + "\n")
    if grown := [name for name, figure in found.items() if figure > limits[name]]:
        print(f"grown: {', '.join(grown)}; make the house smaller, or change {LIMITS.relative_to(ROOT)} and say why")
    return int(bool(grown))


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


if __name__ == "__main__":
    sys.exit(main())
