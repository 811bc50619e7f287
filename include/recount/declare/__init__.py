"""The language: topics, schemas, expressions, windows, aggregates, topologies. Standard library only."""
