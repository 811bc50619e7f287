"""Delta tables: where they lie, the ledger and its proofs, signed orders, the Spark session."""
