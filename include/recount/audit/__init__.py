"""The audit: outputs and ledgers of a stream judged against a recompute of the raw log."""
