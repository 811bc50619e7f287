"""Answers about what the streams know, from their Delta tables; without Spark."""
