"""The reference interpreter: docs/semantics.md as a program, one record at a time, standard library only.

Read it in this order, and you have read how stream processing works:

1. ``records``: what travels from operator to operator, and where it came from in the log;
2. ``record_clock``: stream time, lateness and the frontier;
3. ``record_panes``: which windows a record falls into, for each kind of window;
4. ``record_aggregates``: the value of an aggregate over the records of one window;
5. ``record_windows``: a windowed aggregation, and when its results leave;
6. ``record_operator``, ``record_joins``, ``record_state``: all other operators;
7. ``interpreter``: how they are wired, and what happens to one record; ``topology_driver``: the unit-test driver.

It is slow on purpose: an aggregate is computed from the list of its records whenever it is needed, never merged from
partial ones, so that the stream and the recompute, which do merge, can be proved against it.
"""
