"""The shop's records, made by one generator: for ``make play``, ``make shop-demo``, the tests and the bench."""
