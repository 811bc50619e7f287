"""How a stream is run is declared beside it, and what cannot be meant is refused there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tests.unit.declare.test_groups import CLICKS, _folder, module_of  # noqa: F401 - a fixture

from recount.declare.limits import Resources
from recount.declare.run_settings import DRIVER_OPTIONS, RunSettings, is_cron
from recount.runtime.errors import InvalidDeclaration


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


def test_cores_of_all_executors_are_known_where_their_number_is() -> None:
    assert Resources(executors=3, executor_cores=2).total_cores == 6
    assert Resources(executors=3).total_cores == 3
    assert Resources(executor_cores=2).total_cores is None


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
