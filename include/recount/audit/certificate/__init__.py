"""Certificates made, signed, chained, shown and verified."""
