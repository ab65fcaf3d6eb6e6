"""JSON schemas by the keyword that they are for: those of 2020-12 that constrain a value, alone and together."""

from __future__ import annotations

from typing import Any

INTEGER, NUMBER, STRING, NULL, BOOLEAN = ({"type": name} for name in ("integer", "number", "string", "null", "boolean"))


def array(**keywords: object) -> dict[str, Any]:
    return {"type": "array"} | keywords


def record(required: tuple[str, ...] = (), more: object = False, **properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": more}


SHORT = {"type": "string", "maxLength": 4}
TREE = {"$defs": {"tree": record(("v",), v=INTEGER, next={"anyOf": [NULL, {"$ref": "#/$defs/tree"}]})}}
# by the keyword that they are for
SCHEMAS: dict[str, list[Any]] = {
    "type": [
        *(INTEGER, NUMBER, SHORT, NULL, BOOLEAN),
        *({"type": [a, b]} for a, b in [("integer", "null"), ("boolean", "null"), ("number", "boolean")]),
        {"type": ["integer", "boolean", "null", "number"]},
        {"type": ["array", "null"], "items": BOOLEAN, "maxItems": 3},
    ],
    "enum": [
        *(
            {"enum": values}
            for values in ([1], [1, 2, 3], ["a"], ["a", "ab", "abc"], [None], [True, False], [1, "1", None])
        ),
        *(
            {"enum": values}
            for values in ([[1, 2], []], [{"a": 1}, {"b": []}], ["\n", '"', "\\", "/"], ["é", "漢", "😀"], [1.5])
        ),
        {"type": "string", "enum": ["x", "y"]},
    ],
    "const": [
        {"const": value} for value in (0, "", "a b", None, True, [], {}, [1, [2]], {"a": {"b": 1}}, -1.5, "\t", "ß")
    ],
    "minimum, maximum": [
        *(
            {"type": "integer", "minimum": low, "maximum": high}
            for low, high in [(0, 9), (0, 255), (-5, 5), (7, 7), (-99, -10)]
        ),
        *(
            {"type": "integer", "minimum": low, "maximum": high}
            for low, high in [(999, 1001), (0, 10**6), (-(10**6), 0)]
        ),
        {"type": "integer", "minimum": 100},
        {"type": "integer", "maximum": -100},
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 2},
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 3},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "minimum": -2.5, "maximum": 2.25},
        {"type": "number", "minimum": 1e3, "maximum": 2e3},
    ],
    "multipleOf": [{"type": "integer", "multipleOf": number} for number in (1, 2, 3, 5, 7, 10)]
    + [{"type": "integer", "multipleOf": 4, "minimum": 0, "maximum": 100}, {"type": "number", "multipleOf": 0.5}],
    "minLength, maxLength": [
        *(
            {"type": "string", "minLength": low, "maxLength": high}
            for low, high in [(0, 0), (1, 1), (0, 5), (3, 5), (8, 8)]
        ),
        {"type": "string", "minLength": 2},
        {"type": "string", "maxLength": 20},
    ],
    "pattern": [
        *(
            {"type": "string", "pattern": regex}
            for regex in ("^a+$", "^[a-z]{1,8}$", r"^\d{3}-\d{4}$", "^(red|blue)$", "^$")
        ),
        *(
            {"type": "string", "pattern": regex}
            for regex in (r"^[A-Z]{2}\d+$", "^.{2,4}$", r"^\w+\.\w+$", "^[^0-9]{3}$", "^x?y*z$")
        ),
        *(
            {"type": "string", "pattern": regex}
            for regex in ("^(?:[01]\\d|2[0-3]):[0-5]\\d$", "^#[0-9a-fA-F]{6}$", "^a|b$")
        ),
        {"type": "string", "pattern": "abc"},
        {"type": "string", "pattern": r"^\S+@\S+$", "maxLength": 30},
    ],
    "format": [
        {"type": "string", "format": name}
        for name in ("date", "time", "date-time", "uuid", "ipv4", "email", "duration")
    ],
    "items": [
        *(array(items=kind, maxItems=4) for kind in (INTEGER, NUMBER, SHORT, NULL, BOOLEAN)),
        *(array(items=INTEGER, minItems=low, maxItems=high) for low, high in [(0, 0), (1, 1), (2, 5), (8, 8)]),
        array(items=array(items=INTEGER, maxItems=2), maxItems=3),
        array(items=record(("a",), a=INTEGER), maxItems=3),
        array(items={"enum": ["a", "b"]}, minItems=1),
        array(items={"anyOf": [INTEGER, NULL]}, maxItems=5),
        array(items=False),
        array(minItems=1, maxItems=1, items={"const": 1}),
        array(items=True, maxItems=1),
        array(items={"type": "integer", "minimum": 10, "maximum": 12}, minItems=3, maxItems=3),
        array(items={"type": "string", "pattern": "^[ab]$"}, maxItems=3),
        array(items=array(items=array(items=NULL, maxItems=1), maxItems=1), maxItems=1),
    ],
    "prefixItems": [
        array(prefixItems=[INTEGER, SHORT], items=False, minItems=2),
        array(prefixItems=[INTEGER, BOOLEAN], items=NULL, maxItems=4),
        array(prefixItems=[NULL], minItems=1, maxItems=1),
        array(prefixItems=[INTEGER, INTEGER, INTEGER], items=False, minItems=3),
        array(prefixItems=[record(("a",), a=NULL), array(items=NULL, maxItems=1)], items=False),
        array(prefixItems=[INTEGER], items=False),
    ],
    "uniqueItems, contains": [
        array(items={"enum": [1, 2, 3]}, uniqueItems=True, maxItems=3),
        array(items=INTEGER, contains={"const": 1}),
        array(items=INTEGER, uniqueItems=False, maxItems=2),
    ],
    "properties": [
        record(a=INTEGER),
        record(("a",), a=INTEGER),
        record(("a", "b"), a=INTEGER, b=SHORT),
        record(("b",), a=INTEGER, b=BOOLEAN),
        record(),
        record(("a",), a=record(("b",), b=record(("c",), c=NULL))),
        record(("x", "y", "z"), x=NUMBER, y=NUMBER, z=NUMBER),
        record(tuple("abcdefgh"), **{letter: BOOLEAN for letter in "abcdefgh"}),
        record((), **{letter: BOOLEAN for letter in "abcdefgh"}),
        record(("list",), list=array(items=INTEGER, maxItems=3)),
        record(("a b", 'q"', "é", ""), **{"a b": NULL, 'q"': NULL, "é": NULL, "": NULL}),
        record(("a",), a={"enum": ["x", None, 3]}),
        record(("name", "age"), name=SHORT, age={"type": "integer", "minimum": 0, "maximum": 150}),
        {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "maxProperties": 1},
        {"properties": {"a": INTEGER}, "type": "object", "additionalProperties": False},
        record(("a",), a=True),
        record((), a=False, b=NULL),
    ],
    "additionalProperties": [
        record(("a",), more=INTEGER, a=NULL),
        record((), more=BOOLEAN),
        record((), more={"enum": [1]}, a=NULL),
        {"type": "object", "additionalProperties": SHORT, "required": ["k"]},
        {"type": "object", "additionalProperties": False},
        {"type": "object", "additionalProperties": NULL, "maxProperties": 2},
        {"type": "object", "additionalProperties": NULL, "minProperties": 1},
    ],
    "patternProperties": [
        {"type": "object", "patternProperties": {"^x_[a-z]{1,3}$": INTEGER}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"^a$": INTEGER, "^b$": NULL}, "additionalProperties": False},
        {
            "type": "object",
            "properties": {"id": INTEGER},
            "patternProperties": {"^n[0-9]$": NULL},
            "required": ["id"],
            "additionalProperties": False,
        },
    ],
    "propertyNames, dependencies": [
        {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,3}$"}, "additionalProperties": NULL},
        {"type": "object", "properties": {"a": NULL, "b": NULL}, "dependentRequired": {"a": ["b"]}},
        {"type": "object", "properties": {"a": NULL}, "dependentSchemas": {"a": {"required": ["b"]}}},
    ],
    "anyOf": [
        {"anyOf": [INTEGER, NULL]},
        {"anyOf": [INTEGER, SHORT, BOOLEAN, NULL]},
        {"anyOf": [{"const": 1}, {"const": "one"}]},
        {"anyOf": [record(("a",), a=INTEGER), record(("b",), b=INTEGER)]},
        {"anyOf": [array(items=INTEGER, maxItems=2), record(("a",), a=NULL)]},
        {
            "anyOf": [
                {"type": "integer", "maximum": 5, "minimum": 0},
                {"type": "integer", "minimum": 100, "maximum": 105},
            ]
        },
        {"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"const": 3}]},
        {"type": "integer", "anyOf": [{"minimum": 10, "maximum": 12}, {"minimum": 20, "maximum": 22}]},
        {"anyOf": [False, INTEGER]},
        {"anyOf": [{"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^b+$"}]},
    ],
    "oneOf": [
        {"oneOf": [INTEGER, NULL]},
        {
            "oneOf": [
                record(("kind", "r"), kind={"const": "circle"}, r=INTEGER),
                record(("kind", "w"), kind={"const": "square"}, w=INTEGER),
            ]
        },
        {"oneOf": [{"const": "a"}, {"const": "b"}, {"const": "c"}]},
        {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "integer", "maximum": 5}]},
        {"oneOf": [array(items=NULL, maxItems=2), BOOLEAN]},
    ],
    "allOf": [
        {"allOf": [INTEGER, {"minimum": 3}, {"maximum": 8}]},
        {"allOf": [record(("a",), more=True, a=INTEGER)]},
        {
            "allOf": [
                {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
                {"type": "object", "properties": {"b": NULL}, "required": ["b"]},
            ],
            "additionalProperties": True,
        },
        {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]},
        {"allOf": [{"type": "string", "maxLength": 6}, {"minLength": 2}]},
        {"allOf": [array(items=INTEGER), {"maxItems": 2}]},
        {"allOf": [{"type": ["integer", "null"]}, {"type": ["null", "string"]}]},
        INTEGER | {"allOf": [{"minimum": 3}, {"maximum": 4}]},
    ],
    "not, if": [
        {"not": INTEGER},
        INTEGER | {"not": {"const": 0}},
        INTEGER | {"if": {"minimum": 5}, "then": {"maximum": 9}},
        {"type": "string", "not": {"pattern": "a"}, "maxLength": 3},
    ],
    "$ref": [
        {"$ref": "#/$defs/n", "$defs": {"n": INTEGER}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": NULL}, "$ref": "#/$defs/a"},
        record(("x", "y"), x={"$ref": "#/$defs/n"}, y={"$ref": "#/$defs/n"}) | {"$defs": {"n": INTEGER}},
        {"definitions": {"n": BOOLEAN}, "$ref": "#/definitions/n"},
        TREE | {"$ref": "#/$defs/tree"},
        {
            "$defs": {
                "l": {"anyOf": [NULL, array(prefixItems=[INTEGER, {"$ref": "#/$defs/l"}], items=False, minItems=2)]}
            },
            "$ref": "#/$defs/l",
        },
        record(("child",), v=INTEGER, child={"anyOf": [NULL, {"$ref": "#"}]}),
        {"$defs": {"a/b": INTEGER}, "$ref": "#/$defs/a~1b"},
        {"$defs": {"n": INTEGER}, "$ref": "#/$defs/missing"},
        {"$ref": "https://example.org/schema.json"},
        {"$id": "https://example.org/s", "$defs": {"n": INTEGER}, "$ref": "#/$defs/n"},
    ],
    "annotations": [
        INTEGER | {"title": "n", "description": "a number", "default": 3, "examples": [1]},
        INTEGER | {"$comment": "x", "deprecated": True, "readOnly": True},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"} | BOOLEAN,
        SHORT | {"contentEncoding": "base64", "contentMediaType": "text/plain"},
        INTEGER | {"unheard_of": 3},
        {},
    ],
    "forms of requests": [
        record(
            ("city", "unit", "days"),
            city=SHORT,
            unit={"enum": ["C", "F"]},
            days={"type": "integer", "minimum": 1, "maximum": 14},
        ),
        record(
            ("steps", "answer"), steps=array(items=record(("why",), why=SHORT), minItems=1, maxItems=2), answer=NUMBER
        ),
        record(
            ("sentiment", "score"),
            sentiment={"enum": ["good", "bad"]},
            score={"type": "number", "minimum": 0, "maximum": 1},
        ),
        record(("rows",), rows=array(items=array(items=INTEGER, minItems=3, maxItems=3), minItems=2, maxItems=2)),
        record(
            ("id", "tags", "meta"),
            id={"type": "string", "format": "uuid"},
            tags=array(items=SHORT, maxItems=2),
            meta=record((), more=INTEGER),
        ),
        record(
            ("start", "end"),
            start={"type": "string", "format": "date"},
            end={"anyOf": [{"type": "string", "format": "date"}, NULL]},
        ),
        record(("ok",), ok=BOOLEAN, error={"type": ["string", "null"], "maxLength": 8}),
        record(
            ("entities",),
            entities=array(
                items=record(
                    ("kind", "at"),
                    kind={"enum": ["person", "place"]},
                    at=array(prefixItems=[INTEGER, INTEGER], items=False, minItems=2),
                ),
                maxItems=2,
            ),
        ),
        record(
            ("email", "phone"),
            email={"type": "string", "format": "email"},
            phone={"type": "string", "pattern": r"^\+\d{6,12}$"},
        ),
        record(("a",), a={"anyOf": [record(("b",), b=INTEGER), array(items=NULL, maxItems=2), SHORT]}),
    ],
}
