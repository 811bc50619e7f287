"""What a driver or an audit asks of the JVM: no class and no method twice, and no list element by element."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_collections import JavaList
from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The first lines of what Python sends to the JVM, without objects that it lets go."""
    sent: list[str] = []
    send = ClientServerConnection.send_command

    def noting(connection: ClientServerConnection, command: str) -> str:
        if not command.startswith("m\n"):
            sent.append(command)
        answer: str = send(connection, command)
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(ClientServerConnection, "send_command", noting)
        yield sent


def test_a_column_that_is_made_again_looks_up_no_class_and_no_method(spark: SparkSession, commands: list[str]) -> None:
    def make() -> list[str]:
        commands.clear()
        F.coalesce("a", F.lit(1)).alias("b")
        return [command for command in commands if command.startswith("r\n")]  # Py4J's reflection command

    make()
    assert make() == []
    assert len(commands) > 3  # the calls themselves


def test_another_name_is_looked_up(spark: SparkSession, commands: list[str]) -> None:
    F.abs("a")
    commands.clear()
    F.sqrt("a")
    assert [command.splitlines()[3] for command in commands if command.startswith("r\n")] == ["sqrt"]


def test_a_static_field_is_asked_for_each_time(spark: SparkSession, commands: list[str]) -> None:
    largest = [getattr(spark._jvm, "java.lang.Integer").MAX_VALUE for _ in range(2)]
    assert largest == [2**31 - 1] * 2
    assert len([command for command in commands if "MAX_VALUE" in command]) == 2


def test_a_package_is_not_kept_for_a_class_of_its_name_may_come(spark: SparkSession) -> None:
    assert isinstance(getattr(spark._jvm, "org.example.NotYetThere"), JavaPackage)
    assert "org.example.NotYetThere" not in vars(spark._jvm)


@pytest.mark.parametrize("number", [2, 10, 11, 37])
def test_a_list_is_handed_over_in_parts(spark: SparkSession, commands: list[str], number: int) -> None:
    columns = [F.lit(at).alias(f"c{at}") for at in range(number)]
    commands.clear()
    selected = spark.range(1).select(*columns)
    calls = len([command for command in commands if command.startswith(("c\n", "i\n"))])
    assert calls <= 8 + 2 * (number // 10)
    assert selected.collect() == [tuple(range(number))]


@pytest.mark.parametrize(
    "given", [[], ["a"], ["a", None, 2], [1.5, "b", True, 2**40], [["a", "b"], ["c"]], ("a",) * 25]
)
def test_a_list_arrives_as_it_is(spark: SparkSession, given: list[object]) -> None:
    arrived = getattr(spark._jvm, "java.util.ArrayList")(given)
    assert [list(one) if isinstance(one, JavaList) else one for one in arrived] == list(given)


def test_a_set_and_a_map_arrive_as_such(spark: SparkSession) -> None:
    assert sorted(getattr(spark._jvm, "java.util.HashSet")({"a", "b"})) == ["a", "b"]
    assert dict(getattr(spark._jvm, "java.util.HashMap")({"a": 1, "b": 2})) == {"a": 1, "b": 2}
