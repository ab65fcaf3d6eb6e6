"""What an architecture states of its checkpoints, and of the order of splices: written into the splices of fragments.

[hf.tensors]    # parameter -> its name in checkpoints, or its name and its layout there
"mlp.router.kernel" = "model.layers.{}.block_sparse_moe.gate.weight"

[hf.names]      # what fragments call a setting of config.json -> what this family calls it
rms_norm_eps = "norm_eps"

[hf.settings]   # what config.json says, and must say
hidden_act = "relu2"

[hf.defaults]   # what a setting means that config.json leaves out
rope_theta = 500_000.0

[hf.unread]     # the value that a setting must have, or null, unless a selected fragment reads it; what to select then
clip_qkv = { select = "model/clip_qkv" }
hidden_act = { value = "silu", select = "experts of that activation" }

[hf.export]     # what an exported config.json says besides; {} is null, which TOML does not have
pad_token_id = {}

[order]         # of splices at a point, whatever their fragments declare
"Attention.heads" = ["model/rope", "model/qk_norm"]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import libcst as cst

from generator.code import syntax
from generator.code.literals import literal
from generator.code.names import as_block, unblocked
from generator.code.syntax import Source
from generator.code.traced import Edit, Origin, Traced
from generator.errors import LoomError, nearest, short
from generator.language.fragment import Fragment
from generator.language.parts import Splice
from generator.recipe.schema import Architecture, UnreadTable
from generator.recipe.tensors import check_tensor
from generator.recipe.toml import Toml
from generator.recipe.typed import check_value

Said = dict[str, tuple[Any, Origin]]  # with the line that says it
_SETTING = r'(?:hf\[|hf\.\w+\(|yield )"(\w[\w.]*)"(?!, "[^"]*", "[^"]*->)'
_READING = "hf.get", "hf.setdefault"
TABLES = "names", "tensors", "settings", "defaults"  # names first: settings go by what config.json calls them
SAID = "settings", "defaults", "unread", "export"  # of values of config.json


def state(
    fragments: Sequence[Fragment], lineage: Sequence[Toml[Architecture]], left_out: Sequence[Fragment]
) -> tuple[Fragment, ...]:
    """The fragments of an architecture, their splices as the architecture and its bases state them.

    Args:
        left_out: fragments that went, of which bases may state something still.
    """
    order, hf = _merged(lineage, "order"), {name: _merged(lineage, "hf", name) for name in {*TABLES, *SAID}}
    _check_order(order, fragments, left_out)
    _check_known(hf, fragments, left_out)
    _check_values(hf)
    found: set[tuple[str, str]] = set()
    others: dict[str, Callable[[], None]] = {}
    made = [
        replace(f, splices=tuple(_written(_ordered(splice, order), hf, found, others) for splice in f.splices))
        for f in fragments
    ]
    for key, refuse in others.items():
        if ("tensors", key) not in found:
            refuse()
    _check_apart(hf, made)
    more = [*_additions(hf, found, made[0].name if made else "")]  # before what fragments say
    made = [replace(f, splices=(*more, *f.splices)) if f is made[0] else f for f in made]
    beside = _beside(hf, made, lineage)
    return tuple(replace(f, splices=(*f.splices, *beside[f.name])) for f in made)


def _merged(lineage: Iterable[Toml[Architecture]], *keys: str) -> Said:
    """A table of an architecture on top of those of its bases."""
    said: Said = {}
    for file in lineage:
        table: Any = file.data
        for key in keys:
            table = getattr(table, key)
        said |= {name: (value, file.origin(*keys, name)) for name, value in table.items()}
    return said


def _written(
    splice: Splice, hf: dict[str, Said], found: set[tuple[str, str]], others: dict[str, Callable[[], None]]
) -> Splice:
    """A splice that says of checkpoints what `[hf]` does.

    Args:
        found: gets the tables and keys that had a place in it.
        others: gets the keys of tensors that have one here of another parameter: of a layer, or of none.
    """
    for table in TABLES:
        said = hf[table]
        if not said or not splice.point.startswith("hf."):
            continue
        source, edits, end = as_block(splice.body), [], 0
        for key, places in _places(table, source):
            if key not in said or source.span(places[0])[0] < end:  # the default of a default went with it
                continue
            value, origin = said[key]
            parts = value if isinstance(value, tuple) else (value,)
            if table == "tensors":
                check = partial(check_tensor, parts, [_text(place) for place in places], str(origin))
                if ("{}" in parts[0]) != ("{}" in _text(places[0])):
                    others[key] = check
                    continue
                check()
            found.add((table, key))
            for place, part in zip(places, parts, strict=False):
                start, end = source.span(place)
                edits.append(Edit(start, end, Traced.insert(literal(part, str(origin)), origin)))
        splice = replace(splice, body=unblocked(source.traced.edited(edits))) if edits else splice
    return splice


def _places(table: str, source: Source) -> Iterator[tuple[str, list[cst.BaseExpression]]]:
    """In statements of fragments, each key that a table may have, and the expressions that it stands for."""
    for node in syntax.walk(source.module):
        if table == "names" and isinstance(node, cst.SimpleString):
            yield _text(node), [node]
        elif table == "defaults" and isinstance(node, cst.Call) and source.code(node.func) in _READING:
            key, *places = (argument.value for argument in node.args)
            if places:
                yield _text(key), places
        elif table in ("tensors", "settings") and isinstance(node, cst.Yield) and isinstance(node.value, cst.Tuple):
            key, *places = (element.value for element in node.value.elements)
            if len(places) == 2:  # of a size it is one
                yield _text(key), places[: 1 if table == "settings" else 2]


def _additions(hf: dict[str, Said], found: set[tuple[str, str]], fragment: str) -> Iterator[Splice]:
    """Splices of the defaults and settings that had no place in any, as if a fragment said them."""
    for table, point, reads, line in (
        ("defaults", "hf.complete", ("hf",), "    hf.setdefault({}, {})\n"),
        ("settings", "hf.structure", (), "    yield {}, {}, {}\n"),
    ):
        for key, (value, origin) in hf[table].items():
            if (table, key) not in found:
                words = (literal(word, str(origin)) for word in (key, value, f"fragments for another {key}"))
                body = Traced.insert(line.format(*words), origin)
                yield Splice(point, reads, body, (), (), optional=False, fragment=fragment, origin=origin)


def _beside(
    hf: dict[str, Said], made: Sequence[Fragment], lineage: Iterable[Toml[Architecture]]
) -> dict[str, list[Splice]]:
    """Splices of what no fragment says, by the fragment that they follow: the last that the same file selects."""
    text = _standing_at(made, "hf.sizes") + _standing_at(made, "hf.structure")
    read = set(re.findall(r"""yield ["'](.+?)["'], """, text))
    ends = {file.path: [f.name for f in made if f is made[0] or f.name in file.data.fragments] for file in lineage}
    beside: dict[str, list[Splice]] = {f.name: [] for f in made}

    def add(point: str, reads: tuple[str, ...], line: str, words: Iterable[object], origin: Origin) -> None:
        body = Traced.insert(line.format(*(literal(word, str(origin)) for word in words)), origin)
        for name in ends[origin.path][-1:]:
            beside[name].append(Splice(point, reads, body, (), (), optional=False, fragment=name, origin=origin))

    for key, (table, origin) in hf["unread"].items():
        if key not in read:
            add("hf.structure", (), "    yield {}, {}, {}\n", (key, table.value, table.select), origin)
    for key, (value, origin) in hf["export"].items():
        add("hf.export", ("hf",), "    hf[{}] = {}\n", (key, None if value == {} else value), origin)
    return beside


def _text(node: cst.CSTNode) -> str:
    """What a plain string says, or nothing."""
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""


def _check_known(hf: dict[str, Said], fragments: Iterable[Fragment], left_out: Iterable[Fragment]) -> None:
    """Parameters and settings that are called otherwise are such as a fragment speaks of, or one that went."""
    for table, kind, pattern in (
        ("tensors", "parameter", r'yield "([^"]+)", "[^"]*", "'),
        ("names", "setting of config.json", r'"([\w.]+)"'),
    ):
        if hf[table]:
            here, gone = _spoken_of(fragments, pattern), _spoken_of(left_out, pattern)
            for key in sorted(hf[table].keys() - here - gone):
                message = f"no selected fragment speaks of a {kind} {key!r}"
                other = here if table == "tensors" else _spoken_of(fragments, _SETTING)
                raise LoomError(message, str(hf[table][key][1]), nearest(key, other))


def _check_values(hf: dict[str, Said]) -> None:
    """What a config.json can say, by names that it can have."""
    for key, (name, origin) in hf["names"].items():
        if not name.isprintable() or not name.strip() == name != "":
            raise LoomError(f"{name!r} cannot be the name of {key}", str(origin), "Write what config.json calls it.")
    if "model_type" in hf["settings"]:
        remedy = "Write it above the tables: model_type = ..."
        raise LoomError("model_type is no setting among others", str(hf["settings"]["model_type"][1]), remedy)
    for key, (value, origin) in (it for table in SAID for it in hf[table].items()):
        value = value.value if isinstance(value, UnreadTable) else value
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            message = f"{key} is {short(str(value))}, which no config.json can say"
            raise LoomError(message, str(origin), "Give a text, a finite number, true or false.") from None


def _check_apart(hf: dict[str, Said], made: Sequence[Fragment]) -> None:
    """No two sizes are one setting, no two parameters one tensor unless they are joined; defaults fit their fields."""
    text = _standing_at(made, "hf.")
    sizes = re.findall(r"""yield ["'](.+)["'], "(\w+)"\n""", text)
    tensors = [pair[::-1] for pair in re.findall(r"""yield "(.+)", ["'](.+)["'], ["'].*->""", text)]
    joined = any(splice.point == "hf.view" for f in made for splice in f.splices)
    for table, pairs in (("names", sizes), ("tensors", [] if joined else tensors)):
        for key, (value, origin) in hf[table].items():
            name = value if isinstance(value, str) else value[0]
            of = sorted({it for found, it in pairs if found == name})
            if len(of) > 1:
                message = f"{name} would be {' and '.join(of)}"
                raise LoomError(message, str(origin), f"Give {key} a name of its own.")
    fields = {member.name: member for f in made for member in f.fields}
    for setting, field in sizes:
        if setting in hf["defaults"] and field in fields:
            value, origin = hf["defaults"][setting]
            check_value(fields[field], value, str(origin))


def _spoken_of(fragments: Iterable[Fragment], pattern: str) -> set[str]:
    """What splices for checkpoints say that is of a pattern."""
    splices = (splice for f in fragments for splice in f.splices if splice.point.startswith("hf."))
    return {name for splice in splices for name in re.findall(pattern, splice.body.text)}


def _standing_at(made: Iterable[Fragment], start: str) -> str:
    """Gives the statements of splices at points that begin so, except those that another splice replaces."""
    splices = [splice for f in made for splice in f.splices if splice.point.startswith("hf.")]
    points = {splice.point for splice in splices}
    return "".join(_standing(splice.body.text, points) for splice in splices if splice.point.startswith(start))


def _standing(text: str, points: Collection[str]) -> str:
    """Gives the statements of a splice except those that another one replaces."""
    held = r'( *)with point\("([\w.]+)".*\):\n((?:\1 .*\n)+)'
    return re.sub(held, lambda block: "" if block[2] in points else _standing(block[3], points), text)


def _ordered(splice: Splice, order: Said) -> Splice:
    """A splice that comes after those which its architecture names before it."""
    names = order[splice.point][0] if splice.point in order else ()
    if splice.fragment not in names:
        return splice
    others = {name for full in names for name in (full, full.split("/")[-1])}
    before = tuple(name for name in splice.before if name not in others)
    after = tuple(name for name in splice.after if name not in others)
    return replace(splice, before=before, after=after + names[: names.index(splice.fragment)])


def _check_order(order: Said, fragments: Iterable[Fragment], left_out: Iterable[Fragment]) -> None:
    """Each fragment that is put in order has a splice there, or went."""
    gone = {fragment.name for fragment in left_out}
    for point, (names, origin) in order.items():
        if len({*names}) < max(len(names), 2):
            message = f"the order at {point!r} is not one of two fragments or more, each named once"
            raise LoomError(message, str(origin), "Name those that rebind the same, in the order that they have.")
        there = {f.name for f in fragments if any(splice.point == point for splice in f.splices)}
        for name in names:
            if name not in there | gone:
                raise LoomError(f"{name} has no splice for the point {point!r}", str(origin), nearest(name, there))
