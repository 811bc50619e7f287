"""At which ports drivers serve their metrics: the setting ``RECOUNT_METRICS``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recount.core.errors import require

_PORT = re.compile(r"\s*([a-zA-Z0-9._-]+)\s*=\s*([0-9]{1,5})\s*")


def metric_ports(text: str) -> Mapping[str, int]:
    """By the name of a group, or of a stream that has a driver of its own, the port in ``text``.

    >>> metric_ports("orders=9401, archive-clicks=9402")
    {'orders': 9401, 'archive-clicks': 9402}

    Raises ``InvalidDeclaration`` for what is no such list, and for a name or a port that is there twice.
    """
    found: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        match = _PORT.fullmatch(part)
        port = int(match[2]) if match else 0
        require(
            match is not None and 0 < port < 65_536 and match[1] not in found and port not in found.values(),
            "ports of metrics",
            given=part.strip(),
            expected="NAME=PORT of a group, or of a stream in none, each name and each port once",
            remedy='write RECOUNT_METRICS="orders=9401, customers=9402"',
        )
        assert match is not None
        found[match[1]] = port
    return found
