"""A backfill can write the corrections of a sink whatever its fields are called (docs/own_streams.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from recount.backfill.corrections import make_table
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, decimal, list_of
from recount.recompute.spark_columns import spark_type


@pytest.mark.parametrize("name", ["amount", "net weight", "sum(a, b)", "x=y;{z}", "weight.kg", "größe"])
def test_a_table_is_made_with_columns_of_any_name_and_kind_once(tmp_path: Path, name: str) -> None:
    kinds = [STRING, LONG, DOUBLE, BOOLEAN, decimal(15, 2), list_of(STRING)]
    fields = [
        T.StructField(f"{name}{number}", spark_type(kind), nullable=number > 0) for number, kind in enumerate(kinds)
    ]
    for _ in range(2):
        make_table(str(tmp_path / "table"), T.StructType(fields))
    table = DeltaTable(tmp_path / "table")
    assert T.StructType.fromJson(json.loads(table.schema().to_json())) == T.StructType(
        [T.StructField(one.name, one.dataType) for one in fields]
    )
    assert table.version() == 0
