"""Inputs of real people that failed elsewhere, each held by every implementation of the language, and by an audit.

A case (``case.Case``) is a topology, a log and the right outcome, worked out by hand. Three test files run all cases:

* ``tests/unit/engine/test_field_rows.py``: the unit-test driver and the stream's operators, the log in one batch, in
  the case's own batches and record by record, with a restart before each batch;
* ``tests/spark/recompute/test_plain_logs.py``: the recompute of the audit;
* ``tests/spark/audit/test_field_rows.py``: broker, stream, Delta and audit, whose certificate must say "match".

To add a case, append it to ``CASES`` of the module of its subject: ``expressions``, ``sums``, ``partitions``,
``functions``, ``sessions``, ``too_large``. Nothing else has to be changed. For example::

    Case(
        name="F1 product of two decimals",
        topology=ending(
            "f1-product", stream(source("f1-product", a=MONEY, b=MONEY)).with_fields(p=col("a") * col("b"))
        ),
        log=[[record("f1-product", at_ms=1_000, a=Decimal("1.0001"), b=Decimal("1.0001"))]],
        results={"f1-product": [Result(key="k", value={"p": Decimal("1.00020001")})]},
    )

* ``source("x")`` is the topic ``x-in`` and ``ending("x", flow)`` writes to the topic and table ``x-out``; ``x`` is
  met in no other case, for all cases share one broker.
* ``results`` names by ``x`` every result that counts, with only the fields that the case is about. Where a result can
  be revised (windows, tables, totals) only the last row of each key and window counts, and a deleted one does not.
* The log ends with records of the key ``CLOSING`` that let everything leave: event time passes in each partition.
  What comes of this key does not count.
* ``dead_letters`` names by topic-partition@offset the reason of each bad record.
* ``stops`` says that driver and stream end with an error whose text has this in it; recompute and audit pass it over.
* ``on_broker=False`` leaves a case out of the audit, where it would add nothing: audits are expensive.
* A declaration that must be refused is no case: test it where it is declared.
"""
