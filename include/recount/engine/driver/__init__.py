"""A driver: leases, streams of a group, reports."""
