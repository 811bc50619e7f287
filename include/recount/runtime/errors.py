"""The tree of errors: what happened, what was given, what was expected, what to do.

Two branches decide what an orchestrator does next. ``Terminal``: a human must act, retrying cannot help. ``Transient``:
the same call may succeed later. ``recount.airflow.notices`` maps them to Airflow's fail and retry; nothing else does.
"""

import copyreg
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Self

VARIABLE = "RECOUNT_SCHEMA_REGISTRY"


class RecountError(Exception):
    """An error that names what was given, what was expected and the remedy.

    The four parts stay readable as attributes, so that tests and programs never parse prose. ``place`` is the file and
    the line of a declaration, where they are known.
    """

    place: str | None = None

    def __init__(self, what: str, *, given: object = None, expected: str = "", remedy: str = "") -> None:
        self.what = what
        self.given = given
        self.expected = expected
        self.remedy = remedy
        super().__init__(what, given, expected, remedy)

    @classmethod
    def of(cls, condition: str, *, given: object = None, **told: object) -> Self:
        """The error of a ``condition`` in errors.toml, with the values ``told`` in its texts."""
        texts = {part: text.format(**told) for part, text in conditions()[condition].items()}
        # what a declaration error says first is its field
        said = texts.pop("what", None) or texts.pop("field")
        return cls(said, given=given, **texts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross processes, which the default cannot: it would call a constructor with ``args`` alone."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        parts = [self.what]
        if self.given is not None:
            parts.append(f"given: {self.given!r}")
        if self.expected:
            parts.append(f"expected: {self.expected}")
        if self.remedy:
            parts.append(f"remedy: {self.remedy}")
        if self.place:
            parts.append(f"at: {self.place}")
        return "; ".join(parts)


@cache
def conditions() -> Mapping[str, Mapping[str, str]]:
    """The texts of all conditions, read when the first error is made."""
    return tomllib.loads(Path(__file__).with_name("errors.toml").read_text(encoding="utf-8"))


def says_all(error: BaseException) -> bool:
    """Whether the message of ``error`` says what to do, and no other error is behind it: a trace adds nothing."""
    return isinstance(error, RecountError) and error.__cause__ is None


class Terminal(RecountError):
    """A human must act: retrying the same call cannot succeed."""


class OfARecord(Terminal):
    """A value of a record, or of a row made of it, with which a stream cannot go on.

    ``record`` is the record to blame, as ``topic-partition@offset``, where one is known.
    """

    record: str | None = None


class Transient(RecountError):
    """Worth retrying: the cause may pass by itself (a broker that is restarting, a busy port)."""


class InvalidDeclaration(Terminal):
    """A topic, schema, window or stream that cannot mean anything; raised at construction."""

    def __init__(self, field: str, *, given: object, expected: str, remedy: str) -> None:
        self.field = field
        super().__init__(f"invalid {field}", given=given, expected=expected, remedy=remedy)


def require(holds: bool, condition: str, *, given: object, **told: object) -> None:
    """Raise ``InvalidDeclaration`` of the ``condition`` in errors.toml unless something ``holds``."""
    if not holds:
        raise InvalidDeclaration.of(condition, given=given, **told)


def require_each(condition: str, given: Iterable[object], kind: type | UnionType, **told: object) -> None:
    """Raise ``InvalidDeclaration`` of the ``condition`` unless each of ``given`` is of ``kind``."""
    others = [one for one in given if not isinstance(one, kind)]
    named = ", ".join(f"{one!r}, a {type(one).__name__}" for one in others)
    require(not others, condition, given=named, **told)


class RegistryUnreachable(Transient):
    """The schema registry does not answer, or has an error of its own; no record is bad because of that."""

    def __init__(self, said: str) -> None:
        super().__init__(
            "the schema registry does not answer",
            given=said,
            expected=f"a schema from the registry at {VARIABLE}",
            remedy="retry; see that the registry is up",
        )


class RegistryRefused(Terminal):
    """The schema registry is not named, does not let us in, or is another server."""

    def __init__(self, said: str) -> None:
        super().__init__(
            "no schema can be asked for",
            given=said,
            expected=f"{VARIABLE} with the address of a schema registry that Confluent's clients can read",
            remedy=f"set {VARIABLE} for the driver and for the audit, up to the path below which /schemas/ids is found",
        )


class SchemaRefused(Terminal):
    """The schema registry does not take the schema of a sink."""

    def __init__(self, said: str) -> None:
        super().__init__(
            "the schema of a sink cannot be registered",
            given=said,
            expected="a schema that the subject's rule of compatibility allows, and that fits the newest Protobuf file",
            remedy="write to another topic, or change the sink so that the rule allows it: fields can be added and left"
            " out, but no field can have another type",
        )


class Unresolvable(Exception):
    """No value of the schema can be read as what is declared; the text says why."""
