"""What a schema registry can answer but what was asked for."""

from __future__ import annotations

from recount.core.errors import Terminal, Transient

VARIABLE = "RECOUNT_SCHEMA_REGISTRY"


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
            remedy=f"set {VARIABLE} for the driver and for the audit, up to the path below which /schemas/ids lies",
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
