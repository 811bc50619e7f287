"""Files of folders to which others can write: a pipe or a device there is refused, and not waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def bytes_of_file(path: Path) -> bytes:
    """What is in the file ``path``, or in the one to which it links; raises ``OSError`` where that is no plain file.

    A pipe that nobody writes to would keep its reader for ever. It is opened first and looked at then, so that nobody
    can put another one in its place between the two.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
