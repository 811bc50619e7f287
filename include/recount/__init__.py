"""Recount: streams you can audit."""
