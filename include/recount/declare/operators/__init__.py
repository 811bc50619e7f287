"""The operators of a topology, declared, and what follows from a declaration alone."""
