"""Backfills of topologies that the general audit audits."""
