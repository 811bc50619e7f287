"""The operators of a stream at work, batch by batch: Polars on the driver, for every topology that can be declared.

Read ``batch_rows`` (rows between operators), ``engine.state.keyed_rows`` (state), ``batch_operator`` (lateness, and
what an operator does with a batch), then any operator, then ``batch_graph``, which wires them.

An operator sees a whole batch at once and must come to the same as if it had seen its records one by one: no result
may depend on where batches were cut. Everything that it remembers is in ``KeyedRows``, which the stream writes to
its state table and reads back on start.
"""
