"""Backfill: results that grace left incomplete are corrected under a higher revision, exactly once."""
