"""Frames of rows that DuckDB computes: columns, functions, frames, their database, and the way from Spark and back."""
