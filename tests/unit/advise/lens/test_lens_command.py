"""``recount lens`` as it is typed; what it reads from a broker is in tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from recount.advise.lens_command import lens
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    here = Settings(profile="embedded", bootstrap_servers="nowhere:1", **places)
    for name, value in here.to_environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["archive-orders"], "an archive answers nothing that another engine could answer otherwise"),
        (["section-visits"], "the lens has no model of section-visits"),
        (["revenue-by-region", "--start", "yesterday"], "no time"),
        (["revenue-by-region"], "revenue-by-region has read no record then"),
        (["revenue-by-region", "--start", "1500", "--end", "1499"], "the end is not after the start"),
        (["revenue-by-region", "--start", "1500", "--end", "1500"], "the end is not after the start"),
        (["revenue-by-region", "--start", "1500", "--end", "1501"], "revenue-by-region has read no record then"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_before_anything_is_read(arguments: list[str], what: str) -> None:
    app = typer.Typer()
    app.command()(lens)
    ended = CliRunner().invoke(app, arguments)
    assert isinstance(ended.exception, Terminal)
    assert ended.exception.what == what
