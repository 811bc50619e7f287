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
    yield from _of_avro_bytes()
    yield from _of_avro_fields()
    yield from _of_messages()
    yield from _of_message_fields()
    yield from _of_files()


def _of_keys() -> Iterator[Mutant]:
    keys = "formats/record_decoder.py"
    yield from other(keys, "KeyColumns.decode", "a key that must be there", "if key is None", "if False")
    yield from other(keys, "KeyColumns.decode", "a key that must be there", "*decoded.faults, *absent", "*absent")
    yield from other(
        "formats/record_decoder.py", "RecordDecoder.decode", "a value before its key", "reversed(parts)", "parts"
    )


def _of_avro_bytes() -> Iterator[Mutant]:
    binary, number, cut = "formats/avro_binary.py", "a number of Avro", "what is cut off"
    yield from other(binary, "_long", cut, "len(data)", "len(data) - 1")
    yield from comparison(binary, "_long", number, "byte < 0x80")
    yield from comparison(binary, "_long", number, "shift > 63")
    yield from other(binary, "_long", number, "(number >> 1) ^ -(number & 1)", "(number >> 1)")
    yield from other(binary, "", number, "range(-(2**31), 2**31)", "range(-(2**31), 2**31 - 1)")
    yield from comparison(binary, "_taken", "a length of Avro", "length < 0")
    yield from comparison(binary, "_taken", cut, "at + length > len(data)")
    yield from other(binary, "whole_value", "what is left over", "end != len(data)", "end > len(data)")
    yield from comparison(binary, "_boolean", "a boolean of Avro", 'found > b"\\x01"')
    branch, symbol = "0 <= index < len(branches)", "0 <= index < len(symbols)"
    yield from other(binary, "_union", "a branch of Avro", branch, branch.replace("<=", "<"), f"{branch} - 1")
    yield from other(binary, "_enum", "a symbol of Avro", symbol, symbol.replace("<=", "<"), f"{symbol} - 1")
    yield from other(binary, "_blocks", "a block of Avro", "count < 0", "count < -1")


def _of_avro_fields() -> Iterator[Mutant]:
    resolution, schemas, digits = "formats/avro_schemas.py", "formats/avro_schemas.py", "the digits of Avro"
    yield from comparison(resolution, "_fits", digits, "writer.scale <= declared.scale")
    yield from comparison(resolution, "_fits", digits, "writer.precision - writer.scale <= before")
    largest = "10 ** (declared.precision - declared.scale + scale)"
    yield from other(resolution, "_decimal", digits, largest, f"{largest} - 1")
    yield from other(resolution, "", "a moment of Avro", '"timestamp-micros": 1_000', '"timestamp-micros": 1_001')
    yield from other(resolution, "", "a moment of Avro", "(1970, 1, 1)", "(1970, 1, 2)")
    yield from other(resolution, "_finite", "no number beyond all", "if math.isfinite(given) else None", "")
    well_formed = "0 <= scale <= precision"
    yield from other(
        schemas, "_logical", "a decimal of Avro", well_formed, "0 < scale <= precision", "0 <= scale < precision"
    )
    yield from comparison(schemas, "_whole", "a fixed of Avro", "size < 0")


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


def _of_files() -> Iterator[Mutant]:
    texts, file = "formats/protobuf_texts.py", "the text of a file"
    yield from other(texts, "_Parser._peek", file, "< len(self._words)", "< len(self._words) - 1")
    yield from comparison(texts, "_Parser._next", file, "self._at > len(self._words) + 1")
    yield from comparison(texts, "_words", file, "at < len(text)")
    yield from other(texts, "_Parser._enum", "a negative symbol", "-number if is_negative else number", "number")
    yield from other(texts, "_Parser._body", "what is not written is null", '"optional" if', '"no word" if')
