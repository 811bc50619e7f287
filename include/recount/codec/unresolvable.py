"""A schema of a writer that cannot be read as what is declared."""


class Unresolvable(Exception):
    """No value of the schema can be read as what is declared; the text says why."""
