"""Advice on a declaration: grace, estimates, other engines."""
