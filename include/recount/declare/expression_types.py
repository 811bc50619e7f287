"""The types of expressions, checked where an expression is declared and not where a record meets it."""

from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches

from recount.declare.expressions import (
    ARITHMETIC,
    COMPARISONS,
    JSON_SIZE,
    PLAIN_SIZE,
    Call,
    Column,
    Expression,
    Literal,
    Scalar,
)
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, MAX_DECIMAL_PRECISION, STRING, FieldType
from recount.runtime.errors import InvalidDeclaration, require, require_each

_NUMERIC = ("long", "double", "decimal")
_EQUALITY = ("==", "!=")


def columns_of(tree: Expression) -> frozenset[str]:
    match tree:
        case Column(name):
            return frozenset({name})
        case Call(_, arguments):
            return frozenset().union(*(columns_of(argument) for argument in arguments))
    return frozenset()


def type_of(tree: Expression, fields: Mapping[str, FieldType]) -> FieldType | None:
    """The type of ``tree`` over ``fields`` (None: the null constant); ``InvalidDeclaration`` where it has none."""
    match tree:
        case Column(name):
            return _column_type(name, fields)
        case Literal(value):
            return _literal_type(value)
        case Call(name, arguments):
            return _call_type(tree, name, [type_of(argument, fields) for argument in arguments])
    require_expression(tree)
    raise AssertionError(tree)


def made_double(tree: Expression, fields: Mapping[str, FieldType]) -> list[Call]:
    """The parts of ``tree`` in which a decimal becomes a DOUBLE because it meets one.

    A factor of 1.0 is how a decimal is made a DOUBLE on purpose: what it is in is not among them.
    """
    if not isinstance(tree, Call):
        return []
    found = [part for argument in tree.arguments for part in made_double(argument, fields)]
    types = [type_of(argument, fields) for argument in tree.arguments]
    if tree.operator in ARITHMETIC and {"decimal", "double"} <= {given.kind for given in types if given}:
        found += [] if _is_on_purpose(tree) else [tree]
    return found


def _is_on_purpose(tree: Expression) -> bool:
    if not isinstance(tree, Call) or tree.operator not in ARITHMETIC:
        return False
    has_one = any(isinstance(part, Literal) and repr(part.value) == "1.0" for part in tree.arguments)
    return (tree.operator == "*" and has_one) or any(map(_is_on_purpose, tree.arguments))


def require_expression(given: object) -> None:
    require_each("not-an-expression-of-ours", [given], Expression)


def require_boolean(declared: str, tree: Expression, fields: Mapping[str, FieldType], remedy: str) -> None:
    """Raise ``InvalidDeclaration`` for the field ``declared`` unless ``tree`` is true or false over ``fields``."""
    require_each("not-a-condition", [tree], Expression, field=declared, remedy=remedy)
    given = type_of(tree, fields)
    require(
        given is not None and given.kind == "boolean",
        "not-a-condition",
        given=f"{tree} ({given})",
        field=declared,
        remedy=remedy,
    )


def require_key(declared: str, tree: Expression, fields: Mapping[str, FieldType]) -> None:
    """Raise ``InvalidDeclaration`` for ``declared`` unless ``tree``, a key, is a text or a whole number."""
    given = type_of(tree, fields)
    require(
        given is not None and given.kind in ("string", "long"),
        "key-of-another-type",
        given=f"{tree} ({given})",
        field=declared,
    )


def require_key_passes(declared: str, key: FieldType, made: FieldType | None) -> None:
    """Raise ``InvalidDeclaration`` unless a field ``made``, which is named like the ``key``, has its type."""
    require(made is None or made == key, "field-named-like-the-key", given=str(made), field=declared, key=key)


def _column_type(name: str, fields: Mapping[str, FieldType]) -> FieldType:
    close = get_close_matches(name, fields, 1)
    require(
        name in fields,
        "no-such-column",
        given=name,
        fields=sorted(fields),
        remedy=f"did you mean {close[0]!r}?" if close else "declare the field in the topic's schema",
    )
    return fields[name]


def _literal_type(value: Scalar | None) -> FieldType | None:
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case int():
            return LONG
        case float():
            return DOUBLE
        case Decimal():
            scale = max(0, -int(value.as_tuple().exponent))
            return FieldType(kind="decimal", precision=38, scale=scale)
        case _:
            return STRING


def _call_type(tree: Call, name: str, types: list[FieldType | None]) -> FieldType | None:
    known = [given for given in types if given is not None]
    kinds = set(map(_kind, known))
    numeric = kinds <= set(_NUMERIC)
    has_list = any(given.element is not None for given in known)
    if name in COMPARISONS and (numeric or len(kinds) == 1) and (name in _EQUALITY or not has_list):
        return BOOLEAN
    if name in ARITHMETIC and numeric:
        return _number_type(name, known)
    if name == "/" and numeric:
        return DOUBLE
    if name in (JSON_SIZE, PLAIN_SIZE):
        return LONG
    if name in {"and", "or", "not"} and kinds <= {"boolean"}:
        return BOOLEAN
    if name == "is_null":
        return BOOLEAN
    if name in {"upper", "lower"} and kinds <= {"string"}:
        return STRING
    if name == "contains" and types[0] and types[0].kind == "list" and types[0].element == types[1]:
        return BOOLEAN
    if name == "coalesce" and len(kinds) <= 1:
        return _common_type(known)
    if name == "when" and _kinds_match(types[1], types[2]) and (types[0] is None or types[0].kind == "boolean"):
        return _common_type([given for given in types[1:] if given is not None])
    raise InvalidDeclaration.of(
        "operator-undefined-for-types",
        given=f"{tree} over ({', '.join(str(given) for given in types)})",
        name=name,
        remedy=_remedy(name, kinds),
    )


def _remedy(name: str, kinds: set[str]) -> str:
    if name in {"and", "or", "not"}:
        return 'put each comparison in brackets, for & | ~ bind closer: (col("a") > 1) & (col("b") < 5)'
    if name in {"coalesce", "when"} and kinds <= {*_NUMERIC, "boolean"}:
        if "decimal" in kinds:
            return 'make both decimals: a constant is Decimal("0.00"), a LONG field col("n") * Decimal(1)'
        return 'make both DOUBLE: a constant is 0.0, a LONG field col("n") * 1.0'
    return "compare and combine values of one kind; see recount.declare.expressions"


def _kinds_match(one: FieldType | None, other: FieldType | None) -> bool:
    """Null is of every kind."""
    return one is None or other is None or _kind(one) == _kind(other)


def _kind(given: FieldType) -> str:
    """Return what two values that go together have in common; of lists also their items, for no item is converted."""
    return given.kind if given.element is None else str(given)


def _common_type(types: list[FieldType]) -> FieldType | None:
    """The type that loses nothing of any of ``types``, which are of one kind; None without types."""
    if not types or types[0].kind != "decimal":
        return types[0] if types else None
    scale = max(given.scale for given in types)
    digits = max(given.precision - given.scale for given in types)
    return FieldType(kind="decimal", precision=min(38, digits + scale), scale=scale)


def _number_type(name: str, types: list[FieldType]) -> FieldType:
    if any(given.kind == "double" for given in types):
        return DOUBLE
    if all(given.kind == "long" for given in types):
        return LONG
    scales = [given.scale for given in types]
    scale = sum(scales) if name == "*" else max(scales, default=0)
    require(
        scale <= MAX_DECIMAL_PRECISION,
        "product-with-too-many-places",
        given=f"a product of decimals with {' and '.join(map(str, scales))} places",
        most=MAX_DECIMAL_PRECISION,
    )
    return FieldType(kind="decimal", precision=MAX_DECIMAL_PRECISION, scale=scale)
