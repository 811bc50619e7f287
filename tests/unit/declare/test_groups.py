"""Which streams share a driver and how they are run is declared, and what cannot be meant is refused there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, get_type_hints

import pytest

from recount.declare.groups import Archive, StreamGroup
from recount.declare.limits import Resources
from recount.declare.registry import Declarations, declared
from recount.declare.run_settings import DRIVER_OPTIONS, RunSettings, is_cron
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import InvalidDeclaration, Terminal

CLICKS = Archive(topic=Topic(name="clicks", key="id"))
VIEWS = Archive(topic=Topic(name="views", key="id"))
MODULE = "declared_groups"
BEGINNING = """
from recount.declare.groups import Archive
from recount.declare.groups import StreamGroup
from recount.declare.limits import Resources
from recount.declare.run_settings import DRIVER_OPTIONS, RunSettings
from recount.declare.topics import Topic

clicks = Archive(topic=Topic(name="clicks", key="id"))
views = Archive(topic=Topic(name="views", key="id"))
"""


def named(name: str) -> Topology:
    clicks = Topic(name="clicks", key="id", value=RecordSchema.of(n=LONG))
    return Topology(name=name, sinks=[stream(clicks).to(Topic(name="out", key="id"))])


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop(MODULE, None)


def module_of(folder: Path, text: str) -> Declarations:
    (folder / f"{MODULE}.py").write_text(BEGINNING + dedent(text))
    return declared(MODULE)


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("group name", {"name": "Page views"}),
        ("group name", {"name": "g" * 91}),
        ("streams of group g", {"streams": [named("audit")]}),
        ("streams of group g", {"streams": [CLICKS, named("panels")]}),
        ("streams of group g", {"streams": []}),
        ("streams of group g", {"streams": "clicks"}),
        ("streams of group g", {"streams": CLICKS}),
        ("streams of group g", {"streams": ["archive-clicks"]}),
        ("streams of group g", {"streams": [CLICKS.topic]}),
        ("streams of group g", {"streams": [CLICKS, VIEWS, CLICKS]}),
        ("trigger_interval", {"trigger_interval": "soon"}),
        ("trigger_interval", {"trigger_interval": "-1 s"}),
        ("max_offsets of group g", {"max_offsets": 0}),
        ("max_offsets of group g", {"max_offsets": True}),
        ("driver_memory of group g", {"driver_memory": "much"}),
        ("driver_memory of group g", {"driver_memory": 2}),
    ],
)
def test_what_can_be_no_group_is_refused(field: str, more: dict[str, object]) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        StreamGroup(**{"name": "g", "streams": [CLICKS], **more})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_groups_are_found_with_their_streams_and_other_streams_run_alone(folder: Path) -> None:
    found = module_of(folder, 'mine = StreamGroup(name="mine", streams=[clicks])')
    assert found.group_of("archive-clicks") is found.group("mine") is found.groups["mine"]
    assert found.group_of("archive-views") is None
    assert found.modules == {"archive-clicks": MODULE, "archive-views": MODULE}


def test_a_group_that_is_not_declared_is_told_with_those_that_are(folder: Path) -> None:
    with pytest.raises(Terminal, match="mine"):
        module_of(folder, 'mine = StreamGroup(name="mine", streams=[clicks])').group("yours")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("archive-views, which is in group a", 'b = StreamGroup(name="b", streams=[views])'),
        ("archive-views", 'c = StreamGroup(name="archive-views", streams=[clicks])'),
        ("a", 'd = StreamGroup(name="a", streams=[clicks])'),
        ("archive-other", 'e = StreamGroup(name="e", streams=[Archive(topic=Topic(name="other", key="id"))])'),
        ("archive-clicks", 'f = StreamGroup(name="f", streams=[Archive(topic=clicks.topic)])'),
    ],
    ids=["two groups", "name of a stream", "name of a group", "not declared", "declared otherwise"],
)
def test_groups_that_cannot_be_beside_each_other_are_refused(folder: Path, given: str, text: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        module_of(folder, f'a = StreamGroup(name="a", streams=[views])\n{text}')
    assert refused.value.given == given


def settings_of(**given: Any) -> RunSettings:
    return RunSettings(**{"streams": [CLICKS], **given})


OF_RESOURCES: list[tuple[str, dict[str, Any]]] = [
    ("executors", {"executors": 0}),
    ("executors", {"executors": True}),
    ("executor_cores", {"executor_cores": "2"}),
    ("executor_memory", {"executor_memory": "4 GB"}),
    ("driver_memory", {"driver_memory": 2}),
    ("conf", {"conf": ["spark.ui.enabled=false"]}),
    ("conf sql.shuffle.partitions", {"conf": {"sql.shuffle.partitions": "8"}}),
    ("conf spark.sql.shuffle.partitions", {"conf": {"spark.sql.shuffle.partitions": 8}}),
    ("conf spark.executor.memory", {"conf": {"spark.executor.memory": "4g"}}),
    ("conf spark.master", {"conf": {"spark.master": "local[2]"}}),
    ("conf spark.sql.session.timeZone", {"conf": {"spark.sql.session.timeZone": "Europe/Zurich"}}),
]
OF_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("streams of run settings", {"streams": []}),
    ("streams of run settings", {"streams": "archive-clicks"}),
    ("streams of run settings", {"streams": [CLICKS.topic]}),
    ("driver in run settings of archive-clicks", {"driver": {"executors": 2}}),
    ("run_options in run settings of archive-clicks", {"run_options": "--max-offsets 5"}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--max-offsets 5"]}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--max-ofsets", "5"]}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--max-offsets", "0"]}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--max-offsets"]}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--max-offsets", "many"]}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--available-now"]}),
    ("run_options in run settings of archive-clicks", {"run_options": ["--max-offsets", "5", "--stream", "other"]}),
    ("audit_schedule in run settings of archive-clicks", {"audit_schedule": "nightly"}),
    ("audit_pool in run settings of archive-clicks", {"audit_pool": ""}),
    ("approve in run settings of archive-clicks", {"approve": "nobody"}),
    ("approvers in run settings of archive-clicks", {"approvers": [1]}),
    ("notifiers in run settings of archive-clicks", {"notifiers": "pager"}),
]


@pytest.mark.parametrize(
    ("declare", "field", "given"),
    [*((Resources, *one) for one in OF_RESOURCES), *((settings_of, *one) for one in OF_SETTINGS)],
)
def test_resources_that_no_application_can_have_and_settings_that_mean_nothing_are_refused(
    declare: Callable[..., object], field: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare(**given)
    assert refused.value.field == field
    assert refused.value.remedy


@pytest.mark.parametrize("text", ["0 0 1 1 0", "59 23 31 12 7", "*/15 1-5 * * 1,3,5", "30 2 * * 1-5"])
def test_cron_in_numbers_is_a_schedule(text: str) -> None:
    assert is_cron(text)


@pytest.mark.parametrize(
    "text", ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "* * * *", "@daily", 5]
)
def test_anything_else_is_none(text: object) -> None:
    assert not is_cron(text)


def test_a_module_declares_the_settings_of_its_streams_and_groups(folder: Path) -> None:
    found = module_of(
        folder,
        """
        group = StreamGroup(name="both", streams=[clicks, views])
        of_group = RunSettings(streams=[group], driver=Resources(executors=2))
        of_views = RunSettings(streams=["archive-views"], notifiers="alerts:pager")
        """,
    ).run_settings
    assert found["both"].driver.executors == 2
    assert found["archive-views"].notifiers == "alerts:pager"
    assert found.keys() == {"both", "archive-views"}


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ('one = RunSettings(streams=["archive-visits"])', "archive-visits"),
        ("one = RunSettings(streams=[clicks])\ntwo = RunSettings(streams=[views, clicks])", "archive-clicks more"),
        (
            'group = StreamGroup(name="both", streams=[clicks, views])\n'
            "one = RunSettings(streams=[views], driver=Resources(executors=2))",
            "driver, run_options",
        ),
        (
            'group = StreamGroup(name="both", streams=[clicks, views])\n'
            'one = RunSettings(streams=[views], audit_schedule="0 3 * * *")',
            "driver, run_options",
        ),
    ],
)
def test_settings_of_no_stream_of_two_or_of_a_part_of_a_group_are_refused(folder: Path, text: str, given: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        module_of(folder, text)
    assert given in str(refused.value.given)


def test_the_options_of_a_driver_are_those_that_its_command_line_has() -> None:
    """Beside those that say what to run, and for how long: Airflow says that."""
    from recount.engine.driver.stream_command import stream

    hints = get_type_hints(stream, include_extras=True)
    least = {
        f"--{name.replace('_', '-')}": hint.__metadata__[0].min
        for name, hint in hints.items()
        if name not in ("name", "group", "on_order", "available_now", "return")
    }
    assert least == DRIVER_OPTIONS
    words = [word for name, number in DRIVER_OPTIONS.items() for word in (name, str(number))]
    assert RunSettings(streams=[CLICKS], run_options=words).run_options == words
    assert RunSettings(streams=[CLICKS], run_options=["--max-offsets=5", "--metrics-port", "9401"]).run_options
