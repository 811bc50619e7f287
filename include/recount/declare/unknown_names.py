"""Names that a declaration uses and that do not exist: the error says which there are, and which one is meant."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from types import FunctionType
from typing import Any, NoReturn, TypeVar

from recount.runtime.errors import InvalidDeclaration

_METHODS: Mapping[str, str] = {
    "isin": '(col("a") == "x") | (col("a") == "y")',
    "between": '(col("a") >= 1) & (col("a") <= 5)',
    "isnull": 'col("a").is_null()',
    "isnone": 'col("a").is_null()',
    "isnotnull": '~col("a").is_null()',
    "notnull": '~col("a").is_null()',
    "otherwise": 'when(col("a") > 1, "many", "few")',
    "fillna": 'coalesce(col("a"), 0), of a decimal coalesce(col("a"), Decimal("0.00"))',
    "alias": 'with_fields(b=col("a")): a value is named where it is used',
    "cast": "the type that a field has is declared in the schema of its topic; a map() can convert it",
    "groupby": 'select_key(region=col("region")), then windowed_by(...) or aggregate(...); a table has group_by',
    "groupbykey": "windowed_by(...) or aggregate(...): records are grouped by their key",
    "keyby": 'select_key(region=col("region"))',
    "where": 'filter(col("amount") > 100)',
    "withcolumn": 'with_fields(net=col("gross") * 0.8)',
    "withcolumns": 'with_fields(net=col("gross") * 0.8)',
    "mapvalues": "map(function, field=TYPE): the key passes unchanged",
    "window": 'windowed_by(tumbling("5 min", grace="1 min"))',
    "agg": 'aggregate(orders=count(), revenue=total("amount"))',
    "count": "aggregate(orders=count())",
    "sum": 'aggregate(revenue=total("amount"))',
    "reduce": 'aggregate(best=reduce("score", max))',
    "union": "merge(other)",
    "dropduplicates": 'deduplicate("order_id", horizon="1 h")',
    "distinct": 'deduplicate("order_id", horizon="1 h"), or aggregate(n=distinct("user"))',
    "suppress": 'emit_final(), or emit_after("1 min")',
    "emit": "emit_final(), emit_each_batch(), emit_each_record() or emit_after(limit)",
    "totable": "to_table()",
    "tostream": "to_stream()",
    "sink": ".to(topic)",
    "write": ".to(topic)",
}
"""By the name that other engines have for it, in lower case without ``_``: what it is here."""
_ARGUMENTS: Mapping[str, str] = {
    "timezone": "origin=datetime(2026, 1, 1, tzinfo=...): windows start at a moment, and follow no change of clocks",
    "tz": "origin=datetime(2026, 1, 1, tzinfo=...): windows start at a moment, and follow no change of clocks",
    "offset": 'origin="23 h": how long after 1970-01-01 UTC a window starts',
    "start": 'origin="23 h": how long after 1970-01-01 UTC a window starts',
    "slide": "hopping(size, advance=...)",
    "hop": "hopping(size, advance=...)",
    "watermark": 'grace="1 min"',
    "lateness": 'grace="1 min"',
    "allowedlateness": 'grace="1 min"',
    "timeout": 'session(gap, grace="1 min")',
    "within": "before=... and after=... of a join, horizon=... of a deduplication",
    "on": "by=...; a join of streams or tables goes by their key",
    "how": "join(), left_join() or outer_join()",
    "schema": "value=RecordSchema.of(amount=LONG)",
    "fields": "value=RecordSchema.of(amount=LONG)",
    "format": 'encoding="avro"',
    "timestamp": 'event_time="at", a field of the value',
    "retention": "retention_ms=...",
    "sink": "sinks=[...]",
    "flows": "sinks=[...]",
    "streams": "sinks=[...]",
}
_EXAMPLES: Mapping[str, str] = {
    "aggregate": 'aggregate(orders=count(), revenue=total("amount"))',
    "average": 'average("amount")',
    "branch": 'branch(large=col("amount") > 100)',
    "count": 'count(), or count().only(col("amount") > 100)',
    "deduplicate": 'deduplicate("order_id", horizon="1 h")',
    "flat_map": "flat_map(function, amount=LONG)",
    "group_by": 'group_by(tier=col("tier"))',
    "hopping": 'hopping("10 min", advance="5 min", grace="1 min")',
    "in_order": 'in_order(grace="1 min")',
    "join": 'join(other, before="5 min", after="5 min", grace="1 min"); of tables join(other); '
    "of a stream and a table join_table(other)",
    "left_join": 'left_join(other, before="5 min", after="5 min", grace="1 min"); of tables left_join(other); '
    "of a stream and a table left_join_table(other)",
    "map": "map(function, amount=LONG)",
    "outer_join": 'outer_join(other, before="5 min", after="5 min", grace="1 min"); of tables outer_join(other)',
    "process": "process(function, on_timer=function, amount=LONG)",
    "RecordSchema": "RecordSchema.of(amount=LONG)",
    "select": 'select("order_id", total=col("amount"))',
    "select_key": 'select_key(region=col("region"))',
    "session": 'session("30 min", grace="1 min")',
    "sliding": 'sliding("10 min", grace="1 min")',
    "Topic": 'Topic(name="orders", key="order_id", value=RecordSchema.of(amount=LONG))',
    "Topology": 'Topology(name="orders", sinks=[...])',
    "total": 'total("amount")',
    "tumbling": 'tumbling("5 min", grace="1 min")',
    "when": 'when(col("amount") > 100, "large", "small")',
    "with_fields": 'with_fields(net=col("gross") * 0.8)',
}
"""By the method, function or class: how it is called."""
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
        remedy=_meant(name, names, _METHODS) or _next_step(name, names),
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
    meant = next((found for name in unknown if (found := _meant(name, names, _ARGUMENTS))), None)
    shown = Signature([one.replace(annotation=Parameter.empty) for one in parameters])
    return WrongArguments(
        f"arguments of {named}",
        given=error,
        expected=f"{named}{shown}",
        remedy=meant or f"write {_EXAMPLES.get(named, 'the arguments that are expected, by these names')}",
    )


def _meant(name: str, names: Iterable[str], elsewhere: Mapping[str, str]) -> str | None:
    plain = name.replace("_", "").lower()
    close = get_close_matches(plain, by_plain := {one.replace("_", "").lower(): one for one in names}, 1, 0.75)
    if close:
        return f"did you mean {by_plain[close[0]]!r}?"
    return f"write {elsewhere[plain]}" if plain in elsewhere else None
