"""The process that imports modules of topologies for another one: ``python -m`` this module, with their names."""

from __future__ import annotations

import sys

from recount.declare.registry import packed
from recount.runtime.console import errors_reported

if __name__ == "__main__":
    with errors_reported("the deployed declarations"):
        # whatever a module prints is not to come between
        said, sys.stdout = sys.stdout, sys.stderr
        declarations = packed(sys.argv[1])
        said.buffer.write(declarations)
