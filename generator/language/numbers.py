"""Numbers with bounds, as annotations of fields say them: `PositiveInt`, or `Annotated[float, 0, 1]`."""

from __future__ import annotations

import ast
from contextlib import suppress

Number = tuple[type, float, float]  # int or float, least and greatest value

# as fragments/config/numbers.py defines them
NUMBERS: dict[str, Number] = {
    "PositiveInt": (int, 1, 2**31 - 1),
    "NonNegativeInt": (int, 0, 2**31 - 1),
    "PositiveFloat": (float, 1e-30, 1e30),
    "NonNegativeFloat": (float, 0, 1e30),
}


def read_number(annotation: ast.expr) -> Number | None:
    """Returns the type and the bounds of an annotation, None if it has no bounds."""
    match annotation:
        case ast.Name(name):
            return NUMBERS.get(name)
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([ast.Name("int" | "float" as kind), least, most])):
            with suppress(ValueError, TypeError):
                bounds = ast.literal_eval(least), ast.literal_eval(most)
                if all(type(x) in (int, float) for x in bounds):
                    return int if kind == "int" else float, *bounds
    return None
