"""A standalone Spark cluster as its drivers meet it."""
