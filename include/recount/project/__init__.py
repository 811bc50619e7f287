"""A new project of the mandated shape: ``recount init my-project``."""
