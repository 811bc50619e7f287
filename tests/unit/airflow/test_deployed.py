"""Item 1.4: Airflow sees which declaration is deployed now, whatever its own process has imported before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recount.airflow.deployed import deployed, fingerprint_now, require_admitted
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, OtherDeclaration

_DECLARED = """
from recount.declare.aggregates import count
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
clicks = Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG))
flow = stream(clicks).windowed_by(tumbling("{size}", grace="60 s")).aggregate(n=count()).emit_final()
topology = Topology(name="clicks", sinks=[flow.to(Topic(name="out", key="user"))])
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A deployment of one module, which is written by ``deploy``."""
    folders = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run", "jars"), str(tmp_path))
    made = Settings(profile="embedded", bootstrap_servers="nowhere:1", topologies="deployed_clicks", **folders)
    for name, value in made.to_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return made


def deploy(settings: Settings, text: str) -> None:
    file = Path(settings.data) / "deployed_clicks.py"
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_text(text)
    os.utime(file, ns=(before + 2_000_000_000, before + 2_000_000_000))


def test_a_later_deployment_is_seen_and_one_that_cannot_be_read_says_nothing(settings: Settings) -> None:
    deploy(settings, _DECLARED.format(size="1 h"))
    hourly = fingerprint_now(settings, "clicks")
    assert hourly == deployed(settings, "clicks").fingerprint
    deploy(settings, _DECLARED.format(size="2 h"))
    assert fingerprint_now(settings, "clicks") not in (hourly, None)
    deploy(settings, "syntax error")
    assert fingerprint_now(settings, "clicks") is None
    with pytest.raises(Terminal, match="SyntaxError"):
        deployed(settings, "clicks")


def test_a_launch_that_would_be_refused_is_known_before_it(settings: Settings) -> None:
    deploy(settings, _DECLARED.format(size="1 h"))
    require_admitted(settings, "clicks")
    DeclarationLog(settings.data, "clicks").enact("first", deployed(settings, "clicks"))
    require_admitted(settings, "clicks")
    deploy(settings, _DECLARED.format(size="2 h"))
    with pytest.raises(OtherDeclaration, match="1 h -> 2 h"):
        require_admitted(settings, "clicks")
