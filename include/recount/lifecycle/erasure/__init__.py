"""Erasure of one key from everything that Recount keeps at rest, so that later audits prove what is left."""
