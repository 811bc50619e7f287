"""Up to where an audit judges, and what of the log, the ledger and the declaration holds there."""
