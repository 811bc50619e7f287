"""``make house``: how large the house is, and how easily one finds the way. ``make lint`` fails when a figure grows.

``tests/house.json`` has the limit of each figure. ``--lower`` writes the figures of now where they are lower. A limit
that has to grow is changed by hand, with the reason in the commit.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "include" / "recount"
LIMITS = Path(__file__).with_suffix(".json")
LONGEST = 400
WORDS = re.compile(r"\b(told|untold|anew|ear|whoever|whence|lies|ways|stretch|stretches|gone)\b", re.IGNORECASE)
"""Words of prose that readers who are not native speakers stumble over, see the style guide."""
FIRST_WORDS = frozenset({"Of", "Those", "That", "As", "By", "What", "Whoever"})
"""A docstring begins with a noun phrase or a verb."""
_AUDIT = """
import sys, recount.audit.night, recount.audit.topology_auditor
print(sum(name.startswith("recount.") for name in sys.modules))
"""


def figures() -> dict[str, int]:
    """Each figure of the house; fewer is better."""
    lines = {file: _lines(file) for file in PACKAGE.rglob("*.py")}
    names = Counter(file.name for file in lines if file.name != "__init__.py")
    loose = [
        file for file in PACKAGE.glob("*.py") if file.name not in ("__init__.py", "testing.py", "jobs.py", "cli.py")
    ]
    return {
        "modules": len(lines),
        "lines": sum(lines.values()),
        "lines of tests": sum(_lines(file) for file in (ROOT / "tests").rglob("*.py")),
        f"files over {LONGEST} lines": sum(count > LONGEST for count in lines.values()),
        "file names that occur more than once": sum(count > 1 for count in names.values()),
        "loose files at the root": len(loose),
        "modules that name WindowedAggregate": sum("WindowedAggregate" in file.read_text() for file in lines),
        "lines of prose with words to avoid": sum(1 for _ in prose_to_mend()),
        "modules that a night's audit imports": int(subprocess.check_output([sys.executable, "-c", _AUDIT], text=True)),
    }


def prose_to_mend() -> Iterator[str]:
    """Each line of a docstring, a comment, README or docs with one of ``WORDS``, or that begins as it should not."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for number, line, is_first in _prose(file.read_text()):
            if _to_avoid(line) or (is_first and line.split()[0].strip(",:") in FIRST_WORDS):
                yield f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if _to_avoid(line):
                yield f"{page.relative_to(ROOT)}:{number}: {line.strip()}"


def _to_avoid(line: str) -> bool:
    """Whether it has one of ``WORDS`` that is neither a name in backticks nor part of an address."""
    return bool(WORDS.search(re.sub(r"`[^`]+`|\]\([^)]*\)", "", line)))


def _prose(source: str) -> Iterator[tuple[int, str, bool]]:
    """Lines of docstrings and comments: number, text, whether a docstring begins with it."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", [])
        for one in body if isinstance(body, list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                is_docstring = one is body[0]
                lines = [line for line in one.value.value.splitlines() if line.strip()]
                yield from ((one.lineno, line, is_docstring and i == 0) for i, line in enumerate(lines))


def main() -> int:
    """Print the figures beside their limits; 1 when one is above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="lower each limit to the figure of now")
    parser.add_argument("--prose", action="store_true", help="list the lines of prose to mend")
    given = parser.parse_args()
    if given.prose:
        print("\n".join(prose_to_mend()))
        return 0
    lower = given.lower
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
