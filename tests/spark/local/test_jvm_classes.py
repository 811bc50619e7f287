"""How often a driver or an audit asks the JVM for a class or a method that it has asked for before: not again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.clientserver import ClientServerConnection
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
