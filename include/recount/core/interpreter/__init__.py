"""The reference interpreter: docs/semantics.md as a program, one record at a time, standard library only.

Read it in this order, and you have read how stream processing works:

1. ``record``: what travels from operator to operator, and where it came from in the log;
2. ``clock``: stream time, lateness and the frontier;
3. ``panes``: which windows a record falls into, for each kind of window;
4. ``aggregating``: the value of an aggregate over the records of one window;
5. ``windowed``: a windowed aggregation, and when its results leave;
6. ``stateless``, ``tables``, ``joins``, ``remembering``: all other operators;
7. ``graph``: how they are wired, and what happens to one record; ``driver``: the unit-test driver on top.

It is slow on purpose: an aggregate is computed from the list of its records whenever it is needed, never merged from
partial ones, so that the stream and the recompute, which do merge, can be proved against it.
"""
