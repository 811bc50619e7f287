"""Spark's daemon of Python workers, which has imported what all of them import: each worker is then a mere fork of it.

Nothing of the package is among it, so that every worker imports the package as it is at that moment, with its mutant.
"""

from __future__ import annotations

from importlib import import_module

from pyspark import daemon

_LIBRARIES = ("numpy", "pandas", "pyarrow.compute", "pyspark.sql.pandas.serializers", "pyspark.worker")

if __name__ == "__main__":
    for library in _LIBRARIES:
        import_module(library)
    daemon.manager()
