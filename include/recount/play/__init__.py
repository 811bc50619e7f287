"""The shop's records, made by one generator: for ``recount play``, ``recount demo --all``, the tests and the bench."""
