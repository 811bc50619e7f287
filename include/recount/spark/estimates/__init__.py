"""How much a stream will keep, write and read back, from its declaration and a workload; and what it does keep.

Read ``workload`` (what is assumed), ``arrivals`` (the one model of when keys speak), ``kept`` (rows of state in
general), then ``windowed``, ``joined`` and ``remembering``: a formula for every state that an operator of the engine
declares. ``operators`` says how wide such a row is and puts them together, ``rates`` says how many rows leave each
operator. ``measured`` reads the tables of a stream, ``benchmark`` the published results; ``page`` and ``command`` show
estimate and measurement side by side, for people and for machines.

What is estimated follows from a formula; what is measured says where. A cost without a measurement is *not measured*:
no constant here is a guess.
"""
