"""Why a result differs or is incomplete, down to records of the log."""
