"""Finds join points: places that hosts mark with `point(...)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from generator.code.bindings import bound_names, names_in
from generator.code.caching import cached
from generator.code.traced import Traced
from generator.code.tree import FUNCTIONS, Function, TracedTree, blocks, called_name, statement_expression
from generator.errors import LoomError
from generator.language.fragment import Fragment
from generator.language.parts import Splice
from generator.recipe.recipe import Recipe


@dataclass(frozen=True)
class Point:
    """A join point in a host.

    Attributes:
        named: keyword -> expression.
        function: id of the enclosing function, as in the call graph.
        hosts: the enclosing functions, the outermost one first.
        owner: the class around it.
        key: of the definition that contains it.
    """

    name: str
    shown: tuple[str, ...]
    named: dict[str, str]
    function: str
    hosts: tuple[Function, ...]
    owner: ast.ClassDef | None
    key: str
    statement: ast.stmt
    source: TracedTree

    @property
    def where(self) -> str:
        return self.source.where(self.statement)

    @property
    def is_block(self) -> bool:
        return isinstance(self.statement, ast.With)

    @property
    def block(self) -> list[ast.stmt]:
        """Returns the statements that it holds, or its own."""
        return self.statement.body if isinstance(self.statement, ast.With) else [self.statement]

    @property
    def shows(self) -> str:
        """Returns the names that it shows, for messages."""
        return ", ".join([*self.shown, *self.named]) or "no names"

    @property
    def in_method(self) -> bool:
        """Returns whether the outermost function has `self`."""
        first = self.hosts[0].args.args[:1] if self.hosts and self.owner else []
        return [parameter.arg for parameter in first] == ["self"]

    def inside(self, other: Point) -> bool:
        """Returns whether this point is among the statements of another one."""
        first, last = other.statement.lineno, other.statement.end_lineno or 0
        return self.key == other.key and first < self.statement.lineno <= last

    def names_in(self, keyword: str) -> set[str]:
        """Returns the variables in the expression of a keyword."""
        return names_in(ast.parse(self.named[keyword].strip(), mode="eval"))


@cached
def find_points(key: str, text: Traced) -> dict[str, Point]:
    """Returns the join points of a definition by name."""
    points: dict[str, Point] = {}
    source = TracedTree(text if "point(" in text.text else Traced())

    def visit(node: ast.AST, function: str, hosts: tuple[Function, ...], owner: ast.ClassDef | None) -> None:
        for child in (statement for block in blocks(node) for statement in block):
            dot = "." if function and not function.endswith(":") else ""
            if isinstance(child, FUNCTIONS):
                visit(child, f"{function}{dot}{child.name}", (*hosts, child), owner)
                continue
            if isinstance(child, ast.ClassDef):
                if hosts and "point(" in source.code(child):
                    remedy = "Move the class out of the function, and its points into its methods."
                    raise LoomError("a class in a function can have no points", source.where(child), remedy)
                visit(child, f"{function}{dot}{child.name}", hosts, child)
                continue
            if (call := _point_call(child, source)) and (hosts or owner):
                name, shown, named = _read_point(call, child, source)
                point = Point(name, shown, named, function, hosts, owner, key, child, source)
                if name in points:
                    remedy = "Give one of them another name."
                    raise LoomError(f"the point {name!r} is also at {points[name].where}", point.where, remedy)
                if not hosts and (len(call.args) > 1 or named):
                    remedy = 'Write point("Host.fields") alone.'
                    raise LoomError("a point among the fields of a class shows nothing", point.where, remedy)
                points[name] = point
            visit(child, function, hosts, owner)

    visit(source.module, key.rsplit(":", 1)[0] + ":" if ":" in key else "", (), None)
    return points


def reads_checkpoints(recipe: Recipe) -> bool:
    """Returns whether a package reads checkpoints of Hugging Face, about which its architecture makes statements."""
    return any("hf.tensors" in find_points(d.name, d.text) for f in recipe.fragments for d in f.definitions)


def find_points_of(fragment: Fragment) -> Iterator[Point]:
    """Yields the join points of a fragment, in its definitions and in its splices; a splice for several points once."""
    for definition in fragment.definitions:
        yield from find_points(definition.name, definition.text).values()
    for splice in {splice.origin: splice for splice in fragment.splices}.values():
        yield from find_points_in(splice).values()


def find_points_in(splice: Splice) -> dict[str, Point]:
    """Returns the join points of a splice by name."""
    return find_points("_", Traced.insert("def _():\n", splice.origin) + splice.body)


def _point_call(statement: ast.stmt, source: TracedTree) -> ast.Call | None:
    items = [item.context_expr for item in statement.items] if isinstance(statement, ast.With) else []
    for call in (statement_expression(statement), *items):
        if isinstance(call, ast.Call) and called_name(call) == "point":
            if isinstance(statement, ast.With) and (len(items) > 1 or statement.items[0].optional_vars):
                remedy = "Write `with point(...):` alone, and other `with` statements around or inside it."
                raise LoomError("a point shares its `with`", source.where(statement), remedy)
            return call
    return None


def _read_point(call: ast.Call, statement: ast.stmt, source: TracedTree) -> tuple[str, tuple[str, ...], dict[str, str]]:
    """Returns the name of a point, the local names that it shows, and the expressions by keyword."""
    where, first = source.where(statement), call.args[0] if call.args else None
    name = first.value if isinstance(first, ast.Constant) else None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    stars = len(keywords) < len(call.keywords) or any(isinstance(argument, ast.Starred) for argument in call.args)
    if not isinstance(name, str) or stars:
        raise LoomError("a point needs a name", where, 'Write point("Host.place", x, size=x.shape[0]).')
    shown = []
    for argument in call.args[1:]:
        if not isinstance(argument, ast.Name):
            text = source.code(argument)
            remedy = f"Name the expression: point(..., name={text})."
            raise LoomError(f"a point shows {text}, which is not a local name", where, remedy)
        shown.append(argument.id)
    texts = {word: source.code(value) for word, value in keywords.items()}
    named = {word: f"({text})" if "\n" in text else text for word, text in texts.items()}
    if isinstance(statement, ast.With):  # a splice may rebind the same names as its statements
        shown += sorted(bound_names(*statement.body))
    return name, tuple(dict.fromkeys(shown)), named


def explain_missing(
    splice: Splice,
    chosen: Sequence[Fragment],
    recipe: Recipe,
    file_of: Callable[[Fragment, Recipe], str],
    left_out: Collection[str] = (),
) -> str | None:
    """Explains why no chosen fragment has the point of a splice.

    A splice may miss a point that only parts which the package does not have offer. So may an optional one, unless
    another definition has replaced the host, and the fragment of the splice has no splice for that one.

    Args:
        left_out: definitions that are woven elsewhere, with their points.

    Returns:
        '' where nothing explains it, None where the point may be missing.
    """
    if _is_of_absent_part(splice.point, recipe):
        return None
    points = {other.point for fragment in chosen if fragment.name == splice.fragment for other in fragment.splices}
    for host in recipe.library.fragments_with(splice.point):
        hosts = (d.name for d in host.definitions if splice.point in find_points(d.name, d.text))
        for name in (name for name in hosts if name not in left_out):
            place = file_of(host, recipe)
            others = [
                f for f in recipe.fragments if file_of(f, recipe) == place and name in (d.name for d in f.definitions)
            ]
            other = next((f for f in others if f in chosen), None)
            offered = {point for f in others for d in f.definitions for point in find_points(d.name, d.text)}
            of_a_kind = host.name in recipe.pattern.kind_fragments
            if splice.optional and (of_a_kind or other is None or other.name == host.name or points & offered):
                continue
            if of_a_kind:
                remedy = _of_a_kind(splice, host, recipe)
                return f"It is a point of {host.name}, which only some kinds of layer select. {remedy}"
            instead = f"; {other.name} stands in its place: repeat the point there" if other else ""
            return f"It is a point of {host.name}, which is not selected{instead}."
    return None if splice.optional else ""


def _is_of_absent_part(point: str, recipe: Recipe, within: frozenset[str] = frozenset()) -> bool:
    """Returns whether only parts that the package does not have offer a point, or splices at their points.

    Args:
        within: points of splices that lead to this one.
    """
    fragments = recipe.library.fragments_with(point)
    of_definitions = [f for f in fragments for d in f.definitions if point in find_points(d.name, d.text)]
    of_splices = [(f, s) for f in fragments for s in f.splices if point in find_points_in(s)]
    return (
        bool(of_definitions or of_splices)
        and all(recipe.is_left_out(f.name) for f in of_definitions)
        and all(
            recipe.is_left_out(f.name)
            or (s.point not in within and _is_of_absent_part(s.point, recipe, within | {point}))
            for f, s in of_splices
        )
    )


def _of_a_kind(splice: Splice, host: Fragment, recipe: Recipe) -> str:
    """Returns a remedy for a splice that all layers have, at a point that layers of some kinds lack."""
    tables = " and ".join(f"[kinds.{kind.name}]" for kind in recipe.pattern.kinds_with(host.name))
    parts = recipe.package_file.data.parts
    required = ((name, *needed) for name in recipe.parts for needed in parts[name].requires.items())
    for name, words, gives in required:
        if splice.fragment in words.split(" or "):
            why = f"The part {name} needs {gives} of every layer: build without it"
            return f'{why}; to have the other parts, select "{splice.fragment}" under {tables} alone.'
    return f'Select "{splice.fragment}" under {tables} alone.'
