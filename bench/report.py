"""What the scale, long and soak programs hand over: tables on the terminal, a page with a chart, and JSON."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console

from bench.table import Rows
from recount.profile.home import Home, Project

_WIDTH = 190  # of the widest table: a log file should not break it


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a program runs: the checkout, the folder of its results, the terminal."""

    project: Project
    output: Path
    console: Console

    @classmethod
    def new(cls) -> Place:
        """A place in the project's home. From now on a SIGTERM ends the program as Ctrl-C does: nothing is left."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        console = Console(log_path=False)
        console.width = max(console.width, _WIDTH)
        project = Project.containing(Path(__file__).parent)
        output = Home.of(project.root).path / "bench"
        output.mkdir(parents=True, exist_ok=True)
        return cls(project=project, output=output, console=console)

    @cached_property
    def folder(self) -> Path:
        """A new folder for what the program starts."""
        return Path(tempfile.mkdtemp(prefix="run-", dir=self.output))

    def tell(self, what: str) -> None:
        """Say what happens."""
        self.console.log(what)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of the program ``name``: ``text`` opens the page, ``document`` is all that was measured."""

    name: str
    text: str
    tables: Sequence[Rows]
    document: Mapping[str, Any]
    chart: Figure | None = None

    def hand_over(self, place: Place, *, publish: bool) -> None:
        """Show the tables; write page, chart and JSON to the home, or with ``publish`` to docs/operations."""
        folder = place.project.root / "docs" / "operations" if publish else place.output
        folder.mkdir(parents=True, exist_ok=True)
        for table in self.tables:
            place.console.print(table.rich())
        (folder / f"{self.name}.json").write_text(json.dumps(self.document, indent=1) + "\n")
        parts = [self.text]
        if self.chart:
            # the same figures give the same file
            with mpl.rc_context({"svg.hashsalt": "recount", "svg.fonttype": "none"}):
                self.chart.savefig(folder / f"{self.name}.svg", format="svg", metadata={"Date": None})
            parts.append(f"![{self.name}]({self.name}.svg)\n")
        parts += [f"## {table.title}\n\n{table.markdown()}\n" for table in self.tables]
        (folder / f"{self.name}.md").write_text("\n".join(parts))
        place.console.print(f"written: {folder / self.name}.md")
