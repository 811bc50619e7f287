"""How the records of a topic are made: what each field is drawn from.

>>> import random
>>> pets = RecordKind(key="name", fields={"name": numbered("cat-"), "colour": one_of("red", "red")})
>>> pets.made(random.Random(1), 7)
('cat-7', b'{"name": "cat-7", "colour": "red"}')
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Draw = Callable[[random.Random, int], Any]
"""A value of a field, from the dice and the number of the record in its topic."""


@dataclass(frozen=True, kw_only=True)
class RecordKind:
    """``fields`` are drawn in their order. ``key`` names the one that is the record's key; None: each has its own.

    ``is_plain``: the value is the text of the first field, and no JSON.
    """

    fields: Mapping[str, Draw]
    key: str | None = None
    is_plain: bool = False

    def made(self, dice: random.Random, number: int) -> tuple[str, bytes]:
        """Key and value of the record ``number`` of a topic."""
        drawn = {name: draw(dice, number) for name, draw in self.fields.items()}
        key = f"c{number}" if self.key is None else str(drawn[self.key])
        value = str(next(iter(drawn.values()))) if self.is_plain else json.dumps(drawn)
        return key, value.encode()


def numbered(prefix: str) -> Draw:
    """``prefix`` and the number of the record."""
    return lambda _, number: f"{prefix}{number}"


def one_of(*values: Any) -> Draw:
    """Any of ``values``, as likely as another."""
    return lambda dice, _: dice.choice(values)
