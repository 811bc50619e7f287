"""`recount erase` says what it found, and changes nothing where there is nothing to do or something in the way."""

from __future__ import annotations

import polars as pl
import pytest
from deltalake import write_deltalake

from recount.lifecycle.erasure.asked_key import erase
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.places import Tables


@pytest.fixture
def shop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The environment of a deployment with the shop's payments."""
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "topologies.payments")
    return settings


def test_a_key_that_nobody_has_is_erased_from_nowhere(shop: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    erase(key="zoe", by="Ada", reason="ticket 12", stream=None, dry_run=False)
    assert capsys.readouterr().out == "no stream has this key\n"


@pytest.mark.thorough
def test_a_stream_that_keeps_state_is_refused_though_others_could_be_erased_from(
    shop: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    from recount.declare.registry import declared

    topologies = declared("topologies.payments").topologies.values()
    refused = next(one for one in topologies if any("join" in str(node).lower() for node in one.nodes()))
    [sink, *_] = refused.written
    write_deltalake(Tables(shop.data).output(sink.table), pl.DataFrame({sink.key: ["zoe"]}))
    erase(key="zoe", by="Ada", reason="ticket 12", stream=None, dry_run=True)
    said = capsys.readouterr().out
    assert f"{refused.name}: hindered: " in said
    assert "dry run: nothing was erased" in said
    with pytest.raises(Terminal, match="nothing was erased"):
        erase(key="zoe", by="Ada", reason="ticket 12", stream=None, dry_run=False)


def test_a_stream_that_is_not_declared_is_refused(shop: Settings) -> None:
    with pytest.raises(Terminal, match="no such stream"):
        erase(key="zoe", by="Ada", reason="ticket 12", stream=["nothing"], dry_run=True)
