"""Findings of audits, and what people accepted."""
