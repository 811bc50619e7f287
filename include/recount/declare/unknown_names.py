"""Names that a declaration uses and that do not exist: the error says which there are, and which one is meant."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn, TypeVar

from recount.runtime.errors import InvalidDeclaration

Thing = TypeVar("Thing", bound=Callable[..., Any])


class UnknownName(InvalidDeclaration, AttributeError):
    """A method or a field that there is not."""


class WrongArguments(InvalidDeclaration, TypeError):
    """Arguments that a method or a function does not take."""


def declares(thing: Thing) -> Thing:
    """Let a class or a function of which declarations are made refuse names that there are not, and say which are."""
    if not isinstance(thing, type):
        return _checked(thing)  # type: ignore[return-value]
    for name, member in vars(thing).items():
        if isinstance(member, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(thing, name, _checked(member))
    if not hasattr(thing, "__getattr__"):
        thing.__getattr__ = refuse_name  # type: ignore[attr-defined]
    return thing


def refuse_name(owner: object, name: str) -> NoReturn:
    """Raise ``UnknownName`` for ``name``, which ``owner`` has not; for one that is not public what Python raises."""
    names = [one for one in dir(owner) if not one.startswith("_")]
    if name.startswith("_") or name in names:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    raise UnknownName(
        type(owner).__name__,
        given=f".{name}",
        expected=f"one of {', '.join(names)}",
        remedy=_meant(name, names, _texts()["methods"]) or _next_step(name, names),
    )


def _next_step(name: str, names: Iterable[str]) -> str:
    if name.startswith("emit_") and "group_by" in names:
        return "leave it out: a table writes each update to(topic); windowed_by(...) before aggregate(...) ends results"
    if "aggregate" in names and "filter" not in names:
        return 'aggregate first: .aggregate(orders=count(), revenue=total("amount"))'
    return "docs/own_streams.md and docs/semantics.md say how to declare what you need"


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    taken, named = signature(function), function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(function)
    def called(*given: Any, **arguments: Any) -> Any:
        try:
            taken.bind(*given, **arguments)
        except TypeError as error:
            raise _wrong_arguments(named, taken, arguments, str(error)) from None
        return function(*given, **arguments)

    return called


def _wrong_arguments(named: str, taken: Signature, arguments: Mapping[str, object], error: str) -> WrongArguments:
    parameters = [one for one in taken.parameters.values() if one.name != "self"]
    names = [one.name for one in parameters if one.kind is not Parameter.VAR_KEYWORD]
    unknown = [name for name in arguments if name not in names]
    meant = next((found for name in unknown if (found := _meant(name, names, _texts()["arguments"]))), None)
    example = _texts()["examples"].get(named, "the arguments that are expected, by these names")
    shown = Signature([one.replace(annotation=Parameter.empty) for one in parameters])
    return WrongArguments(
        f"arguments of {named}", given=error, expected=f"{named}{shown}", remedy=meant or f"write {example}"
    )


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """The texts of errors, read when the first is made."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _meant(name: str, names: Iterable[str], elsewhere: Mapping[str, str]) -> str | None:
    plain = name.replace("_", "").lower()
    close = get_close_matches(plain, by_plain := {one.replace("_", "").lower(): one for one in names}, 1, 0.75)
    if close:
        return f"did you mean {by_plain[close[0]]!r}?"
    return f"write {elsewhere[plain]}" if plain in elsewhere else None
