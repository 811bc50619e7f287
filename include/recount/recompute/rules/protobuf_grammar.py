"""The text of a Protobuf file as the parts of its descriptor, by the grammar of the language.

What has no part in reading a value is passed over: imports, options, services, extensions, reserved numbers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any

Numbered = dict[int, list[Any]]
"""The contents of the parts of a message, by number."""
_WORDS = re.compile(r"""(?xsa) \s+ | //[^\n]* | /\*.*?\*/ | (?P<word>
    "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | [\w.]+ | [-+={}\[\]();,<>:/]
)""")
_NUMBER = re.compile("0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]{0,9}")
_INTS = range(-(2**31), 2**31)
_KINDS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_STATEMENTS, _BLOCKS = {"import", "option", "reserved", "extensions"}, {"service", "extend"}
_PAIRS = {"{": "}", "[": "]", "(": ")"}


class FileText:
    """Raises ``ValueError`` for a text that is no file."""

    def __init__(self, text: str) -> None:
        self._words = deque(_words(text))
        self._is_new = False

    def parts(self) -> Numbered:
        """Parts of the file's descriptor: its package, messages, enums and syntax."""
        found: Numbered = {4: [], 5: []}
        while self._words:
            word = self._words.popleft()
            if word in ("syntax", "edition"):
                self._take("=")
                said = self._words.popleft()[1:-1]
                found[12] = [(said if word == "syntax" else f"edition {said}").encode()]
                self._is_new = said == "proto3"
                self._take(";")
            elif word == "package":
                found[2] = [self._words.popleft().encode()]
                self._take(";")
            elif word == "message":
                found[4].append(self._message(self._words.popleft()))
            elif word == "enum":
                found[5].append(self._enum())
            elif not self._passed(word):
                raise ValueError(f"{word} in a file")
        return found

    def _message(self, name: str) -> Numbered:
        found: Numbered = {1: [name.encode()], 2: [], 3: [], 4: [], 8: []}
        self._take("{")
        alone = []
        while (word := self._words.popleft()) != "}":
            if word == "message":
                found[3].append(self._message(self._words.popleft()))
            elif word == "enum":
                found[4].append(self._enum())
            elif word == "oneof":
                one_of = len(found[8])
                found[8].append({1: [self._words.popleft().encode()]})
                self._take("{")
                while (within := self._words.popleft()) != "}":
                    if within != ";" and not (within == "option" and self._passed(within)):
                        self._field(found, within, 1)[9] = [one_of]
            elif word == "map" and self._words[0] == "<":
                self._map(found)
            elif not self._passed(word):
                label = {"optional": 1, "required": 2, "repeated": 3}.get(word)
                made = self._field(found, word if label is None else self._words.popleft(), label or 1)
                if word == "optional" and self._is_new:
                    alone.append(made)
        taken = {one[1][0] for one in (*found[2], *found[8])}
        for made in alone:
            own = b"_" + made[1][0]
            while own in taken:  # so the compiler names it
                own = b"X" + own
            taken.add(own)
            made |= {9: [len(found[8])], 17: [1]}
            found[8].append({1: [own]})
        return found

    def _field(self, around: Numbered, kind: str, label: int) -> Numbered:
        name = self._words.popleft()
        self._take("=")
        made: Numbered = {3: [self._number()], 4: [label]}
        self._pass_options()
        around[2].append(made)
        if kind == "group":
            made |= {1: [name.lower().encode()], 5: [10], 6: [name.encode()]}
            around[3].append(self._message(name))
            return made
        made |= {1: [name.encode()], **_typed(kind)}
        self._take(";")
        return made

    def _map(self, around: Numbered) -> None:
        _, key, _, value, _, name, equals = (self._words.popleft() for _ in range(7))
        if equals != "=":
            raise ValueError(f"{equals} after a map")
        entry = f"{''.join(part[:1].upper() + part[1:] for part in name.split('_'))}Entry".encode()
        pair = [{1: [b"key"], 3: [1], **_typed(key)}, {1: [b"value"], 3: [2], **_typed(value)}]
        around[3].append({1: [entry], 2: pair, 7: [{7: [1]}]})
        around[2].append({1: [name.encode()], 3: [self._number()], 4: [3], 5: [11], 6: [entry]})
        self._pass_options()
        self._take(";")

    def _enum(self) -> Numbered:
        found: Numbered = {1: [self._words.popleft().encode()], 2: []}
        self._take("{")
        while (word := self._words.popleft()) != "}":
            if self._words[0] != "=":
                if not self._passed(word):
                    raise ValueError(f"{word} in an enum")
                continue
            self._take("=")
            is_negative = self._words[0] == "-"
            if is_negative:
                self._take("-")
            number = -self._number() if is_negative else self._number()
            if number not in _INTS:
                raise ValueError(f"{word} = {number}")
            found[2].append({1: [word.encode()], 2: [number]})
            self._pass_options()
            self._take(";")
        return found

    def _passed(self, word: str) -> bool:
        """Pass over what ``word`` begins, if that is of no interest."""
        if word in _STATEMENTS:
            self._pass_to(";")
        elif word in _BLOCKS:
            self._pass_to("}")
        return word == ";" or word in _STATEMENTS | _BLOCKS

    def _pass_options(self) -> None:
        if self._words[0] == "[":
            self._pass_to("]")

    def _pass_to(self, last: str) -> None:
        awaited: list[str] = []
        while True:
            word = self._words.popleft()
            if word in _PAIRS:
                awaited.append(_PAIRS[word])
            elif word in _PAIRS.values() and (not awaited or word != awaited.pop()):
                raise ValueError(f"{word} closes nothing")
            if word == last and not awaited:
                return

    def _number(self) -> int:
        word = self._words.popleft()
        if not _NUMBER.fullmatch(word):
            raise ValueError(f"{word} where a number is expected")
        number = int(word, 16 if word[1:2] in ("x", "X") else 8 if word.startswith("0") else 10)
        if number > -_INTS.start:
            raise ValueError(f"{word} has more than 32 bits")
        return number

    def _take(self, wanted: str) -> None:
        word = self._words.popleft()
        if word != wanted:
            raise ValueError(f"{word} where {wanted} is expected")


def parts_of_text(text: str) -> Numbered:
    """Parts of the descriptor; raises ``ValueError``."""
    try:
        return FileText(text).parts()
    except IndexError as error:
        raise ValueError("it ends too early") from error


def _words(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _WORDS.match(text, at)
        if found is None:
            raise ValueError(f"no word of a file: {text[at : at + 20]!r}")
        at = found.end()
        if found["word"]:
            yield found["word"]


def _typed(kind: str) -> Numbered:
    return {5: [_KINDS[kind]]} if kind in _KINDS else {6: [kind.encode()]}
