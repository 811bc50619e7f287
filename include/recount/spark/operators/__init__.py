"""The operators of a stream at work, batch by batch: Polars on the driver, for every topology that core declares.

Read ``rows`` (what travels), ``keyed_rows`` (what is remembered), ``clock`` (who is late, what is due), ``operator``
(what an operator does with a batch), then any operator, then ``graph``, which wires them.

An operator sees a whole batch at once and must come to the same as if it had seen its records one by one: no result
may depend on where batches were cut. Everything that it remembers lies in ``KeyedRows``, which the stream writes to
its state table and reads back on start.
"""
