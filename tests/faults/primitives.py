"""What the package writes with, and the wrapper around each: import this before anything of ``recount``."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import delta.tables
import deltalake
import pyarrow.parquet
from deltalake.table import TableAlterer, TableOptimizer
from pyspark.sql.readwriter import DataFrameWriter
from tests.faults.effects import Effects

EFFECTS = Effects()


class Clock:
    """The clock that the package's Python reads, and how far it is off; the JVM, Delta and Kafka have their own."""

    def __init__(self) -> None:
        self._true_ns, self._off_ns = time.time_ns, 0

    def step(self, seconds: int) -> None:
        """Be off by so much from now on."""
        self._off_ns = seconds * 1_000_000_000

    def now_ns(self) -> int:
        return self._true_ns() + self._off_ns


CLOCK = Clock()

_UNTIL_SENT_S = 0.2
"""A producer sends in the background: after so long its first record is with the broker."""

SEEN: set[str] = set()
"""What has been wrapped in this process, by the name under which it is called."""

Name = Callable[..., str | None]
"""What a call is called as an effect, given its arguments; None where it is none."""


def _wrapped(call: Callable[..., Any], name: Name) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        what = name(*args, **kwargs)
        if what is None:
            return call(*args, **kwargs)
        EFFECTS.require_alive()
        result = call(*args, **kwargs)
        EFFECTS.happened(what)
        return result

    return wrapper


def _table(table: Any) -> str | None:
    return EFFECTS.place(table if isinstance(table, str | Path) else table.table_uri.rstrip("/"))


def _file(doing: str) -> Name:
    def name(path: Any, *_args: Any, **_kwargs: Any) -> str | None:
        place = EFFECTS.place(path)
        return None if place is None else f"{doing} {place}"

    return name


def _target(doing: str) -> Name:
    return lambda _source, target, *_args, **_kwargs: _file(doing)(target)


def _write(table: Any, _rows: Any, *_args: Any, mode: str = "error", **_kwargs: Any) -> str:
    return f"delta {mode} {_table(table)}"


def _saved(_writer: Any, path: str, *_args: Any, **_kwargs: Any) -> str:
    return f"spark save {_table(path)}"


class SeenProducer(confluent_kafka.Producer):  # type: ignore[misc]
    """A producer whose effects are seen; of the records of a transaction the first."""

    def __init__(self, config: Mapping[str, Any], **kwargs: Any) -> None:
        short = EFFECTS.transaction_timeout_ms if "transactional.id" in config else None
        super().__init__({**config, **({"transaction.timeout.ms": short} if short else {})}, **kwargs)
        self._who = str(config.get("transactional.id", "no transaction"))
        self._has_sent = False
        EFFECTS.at_death(self.purge)

    def init_transactions(self, *args: Any) -> None:
        EFFECTS.require_alive()
        super().init_transactions(*args)
        EFFECTS.happened(f"kafka init {self._who}")

    def begin_transaction(self) -> None:
        EFFECTS.require_alive()
        super().begin_transaction()
        self._has_sent = False

    def produce(self, *args: Any, **kwargs: Any) -> None:
        EFFECTS.require_alive()
        super().produce(*args, **kwargs)
        if not self._has_sent:
            self._has_sent = True
            time.sleep(_UNTIL_SENT_S if EFFECTS.is_watched else 0)
            EFFECTS.happened(f"kafka first record {self._who}")

    def send_offsets_to_transaction(self, *args: Any) -> None:
        EFFECTS.require_alive()
        super().send_offsets_to_transaction(*args)
        EFFECTS.happened(f"kafka offsets {self._who}")

    def commit_transaction(self, *args: Any) -> None:
        EFFECTS.require_alive()
        super().commit_transaction(*args)
        EFFECTS.happened(f"kafka commit {self._who}")

    def abort_transaction(self, *args: Any) -> None:
        EFFECTS.require_alive()
        super().abort_transaction(*args)
        EFFECTS.happened(f"kafka abort {self._who}")

    def flush(self, *args: Any) -> int:
        EFFECTS.require_alive()
        return int(super().flush(*args))


def _answered(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that waits for its answers."""

    def waits(*args: Any, **kwargs: Any) -> Any:
        answers = call(*args, **kwargs)
        for answer in answers.values():
            answer.exception()
        return answers

    return waits


def _see(owner: Any, attribute: str, name: Name) -> None:
    setattr(owner, attribute, _wrapped(getattr(owner, attribute), name))
    SEEN.add(attribute)


def wrap() -> None:
    """Let every effect of this process be seen."""
    time.time_ns = CLOCK.now_ns
    time.time = lambda: CLOCK.now_ns() / 1e9
    table = deltalake.DeltaTable
    _see(deltalake, "write_deltalake", _write)
    create = table.create
    table.create = classmethod(  # type: ignore[method-assign,assignment]
        lambda _cls, path, *args, **kwargs: _wrapped(create, lambda *_a, **_k: f"delta create {_table(path)}")(
            path, *args, **kwargs
        )
    )
    for attribute in ("delete", "update", "vacuum", "cleanup_metadata", "create_checkpoint"):
        _see(table, attribute, lambda self, *_a, what=attribute, **_k: f"delta {what} {_table(self)}")
    _see(table, "create_write_transaction", lambda self, *_a, mode, **_k: f"delta {mode} {_table(self)}")
    _see(TableOptimizer, "compact", lambda self, *_a, **_k: f"delta compact {_table(self.table)}")
    for attribute in ("set_table_properties", "add_columns"):
        _see(TableAlterer, attribute, lambda self, *_a, what=attribute, **_k: f"delta {what} {_table(self.table)}")
    _see(DataFrameWriter, "save", _saved)
    _see(delta.tables.DeltaTableBuilder, "execute", lambda _self: "spark create table")
    _see(Path, "replace", _target("file replace"))
    _see(Path, "rename", _target("file rename"))
    _see(Path, "unlink", _file("file unlink"))
    _see(Path, "write_text", _file("file write"))
    _see(Path, "write_bytes", _file("file write"))
    _see(os, "link", _target("file link"))
    _see(pyarrow.parquet, "write_table", lambda _table, where, *_a, **_k: _file("file write")(where))
    confluent_kafka.Producer = SeenProducer
    SEEN.update(name for name in vars(SeenProducer) if not name.startswith("_"))
    SEEN.add("create")
    # another class cannot take its place: its methods name it
    admin = confluent_kafka.admin.AdminClient
    admin.delete_consumer_groups = _answered(admin.delete_consumer_groups)
    _see(admin, "delete_consumer_groups", lambda *_a, **_k: "kafka delete groups")
