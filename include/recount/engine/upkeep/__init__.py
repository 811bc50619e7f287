"""Compaction, retention, memory, and the archive of topics."""
