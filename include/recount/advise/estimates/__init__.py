"""How much a stream will keep, write and read back, from its declaration and a workload; and what it does keep.

Read ``workload`` (what is assumed, and the one model of when keys occur), then ``estimated_windows`` and
``estimated_state``: a formula for every state that an operator of the engine declares. ``state_estimate`` says how wide
such a row is, how many rows leave each operator, and puts them together. ``measured`` reads the tables of a stream,
``benchmark`` the published results; ``estimate_page`` and ``estimate_command`` show estimate and measurement.

What is estimated follows from a formula; what is measured says where. A cost without a measurement is *not measured*:
no constant here is a guess.
"""
