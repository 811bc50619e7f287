"""What the page of a stream shows of a longer grace and of other engines."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.unit.advise.grace.planted import misses_of, planted, with_misses
from tests.unit.advise.lens.test_lens_command import answered
from tests.unit.audit.documents import findings

from recount.advise.panels import of_answer, write_panels
from recount.audit.certificate.issuing import issue
from recount.declare.registry import declared
from recount.pages.rendering import panel
from recount.runtime.settings import Settings

NAME = "revenue-by-region"


def test_each_longer_grace_is_a_row_below_what_is_recommended(settings: Settings) -> None:
    stream = planted(Path(settings.data))
    stream.audit(3)
    with_misses(stream, "night-3", misses_of(stream))
    write_panels(settings, stream.topology)
    shown = panel(settings.reports, "grace", NAME)
    assert shown is not None
    [sentence] = shown.said
    assert "100 late records, missing from 100 results; take 2 min more: a grace of 125 s saves 90" in sentence
    assert [row[1:5] for row in shown.rows] == [
        ["+ 45 s", "50 (50 %)", "50 (50 %)", "50"],
        ["+ 2 min", "90 (90 %)", "90 (90 %)", "90"],
        ["+ 3 h", "100 (100 %)", "100 (100 %)", "100"],
    ]


def test_of_each_engine_the_counts_and_the_results_that_it_has_otherwise(settings: Settings) -> None:
    found = of_answer(answered())
    assert any(sentence.startswith("Kafka Streams: records dropped ") for sentence in found["said"])
    assert any(sentence.startswith("Structured Streaming: records dropped ") for sentence in found["said"])
    assert {row[0] for row in found["rows"]} <= {"Kafka Streams", "Structured Streaming"}
    assert any("orders-1@" in row[-1] for row in found["rows"]), "the offsets of what is missing"
    assert all(len(row) == len(found["columns"]) for row in found["rows"])


def test_what_cannot_be_told_is_a_sentence(settings: Settings) -> None:
    for name in (NAME, "section-visits"):
        write_panels(settings, declared().topology(name))
        for kind in ("grace", "lens"):
            document = json.loads((Path(settings.reports) / kind / f"{name}.json").read_text())
            assert len(document["said"]) == 1
            assert document["rows"] == []
    lens = Path(settings.reports) / "lens"
    assert "Not audited yet" in (lens / f"{NAME}.json").read_text()
    assert "the lens has no model of section-visits" in (lens / "section-visits.json").read_text()


def test_the_newest_audit_is_the_one_with_the_highest_number_whatever_it_is_called(settings: Settings) -> None:
    stream = planted(Path(settings.data))
    for audit, ms in (("night-1", 7), ("by-hand", 9)):
        batch = {"batch": "0/0", "batch_timestamp_ms": ms}
        said = findings(audit) | {"stream": NAME, "covers": {"from": batch, "to": batch, "judged_before": None}}
        issue(NAME, audit, partial(dict, said), settings.reports)
    write_panels(settings, stream.topology)
    shown = panel(settings.reports, "lens", NAME)
    assert shown is not None
    assert "recorded in 1970-01-01 00:00:00.009 to 00:00:00.010" in shown.said[0]
