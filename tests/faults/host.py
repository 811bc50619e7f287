"""A process that does ``tests.faults.jobs``: what they write with is wrapped before the package is imported."""

from __future__ import annotations

import importlib

from tests.faults import primitives

if __name__ == "__main__":
    primitives.wrap()
    importlib.import_module("tests.faults.jobs").main()
