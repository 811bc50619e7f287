"""Rules of how values of a schema registry are read made wrong; scenes_of_formats.py has the values."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.mutant import Mutant, comparison, other


def format_mutants() -> Iterator[Mutant]:
    """Of Avro, of Protobuf, and of what both have before a value."""
    head = "formats/registry_decoders.py"
    yield from comparison(head, "RegistryDecoder._row", "the head of a value", "len(value) < HEAD")
    yield from other(head, "RegistryDecoder._row", "the head of a value", "or value[0] != _MAGIC", "")
    yield from other(head, "RegistryDecoder._row", "the id of a schema", '"big"', '"little"')
    yield from _of_keys()
    yield from _of_avro_fields()
    yield from _of_messages()
    yield from _of_message_fields()


def _of_keys() -> Iterator[Mutant]:
    keys = "formats/record_decoder.py"
    yield from other(keys, "KeyColumns.decode", "a key that must be there", "if key is None", "if False")
    yield from other(keys, "KeyColumns.decode", "a key that must be there", "*decoded.faults, *absent", "*absent")
    yield from other(
        "formats/record_decoder.py", "RecordDecoder.decode", "a value before its key", "reversed(parts)", "parts"
    )


def _of_avro_fields() -> Iterator[Mutant]:
    values, digits = "formats/avro_values.py", "the digits of Avro"
    yield from other(values, "AvroWriter.value", "what is left over", "source.tell() != len(data)", "False")
    yield from comparison(values, "_fits", digits, "scale <= declared.scale")
    yield from comparison(values, "_fits", digits, "precision - scale <= declared.precision - declared.scale")
    largest = "10 ** (declared.precision - declared.scale + scale)"
    yield from other(values, "_decimal", digits, largest, f"{largest} - 1")
    yield from other(values, "", "a moment of Avro", '"timestamp-micros": 1_000', '"timestamp-micros": 1_001')
    yield from other(values, "", "a moment of Avro", "(1970, 1, 1)", "(1970, 1, 2)")
    yield from other(values, "_finite", "no number beyond all", "if math.isfinite(given) else None", "")
    well_formed = "0 <= scale <= precision"
    yield from other(
        values, "_digits", "a decimal of Avro", well_formed, "0 < scale <= precision", "0 <= scale < precision"
    )


def _of_messages() -> Iterator[Mutant]:
    decoder, place = "formats/protobuf_resolution.py", "which message of its file"
    count = "0 <= count <= len(value) - at"
    wrong = ("0 < count <= len(value) - at", "0 <= count < len(value) - at")
    yield from other(decoder, "_indexes", place, count, *wrong)
    yield from other(decoder, "_indexes", place, "or (0,)", "or (1,)")
    yield from comparison(decoder, "_index", place, "byte < 0x80")
    yield from other(decoder, "_index", place, "(number >> 1) ^ -(number & 1)", "(number >> 1)")
    yield from other(decoder, "", "the bytes of an index", "_LONGEST = 5", "_LONGEST = 1")
    yield from comparison("formats/protobuf_schemas.py", "writer_message", place, "len(meant) > 1")
    unset = "if field.has_presence"
    yield from other("formats/protobuf_schemas.py", "_step", "what is not written is null", unset, "if False")


def _of_message_fields() -> Iterator[Mutant]:
    resolution, digits = "formats/protobuf_resolution.py", "the digits of Protobuf"
    yield from comparison(resolution, "_scalar", "a whole number of Protobuf", "given <= LONG_MAX")
    yield from comparison(resolution, "_decimal_of_bytes", digits, "len(given.value) > _LONGEST_DECIMAL")
    yield from other(resolution, "_decimal_of_bytes", digits, "signed=True", "signed=False")
    largest = "10**declared.precision"
    yield from other(resolution, "_decimal", digits, f">= {largest}", f">= {largest} - 1")
    yield from other(resolution, "_decimal", digits, "if rest or", "if")
    moment = "a moment of Protobuf"
    yield from other(resolution, "", moment, "253_402_300_800", "253_402_300_799", "253_402_300_801")
    yield from other(resolution, "", moment, "range(1_000_000_000)", "range(999_999_999)", "range(1_000_000_001)")
    yield from other(resolution, "_milliseconds", moment, "int(given.nanos) //", "int(given.nanos + 1) //")
    yield from other(resolution, "_scalar", "a symbol of Protobuf", "_first_names(place.field).get", "str")
