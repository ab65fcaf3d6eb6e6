"""Finds what functions do that no jaxpr shows: files, processes, contexts of JAX, and values that the machine gives."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
Texts = Mapping[str, str]
# modules and functions that depend on their arguments alone, or leave their trace in a jaxpr
PURE = {
    *"__future__ collections contextlib dataclasses einops enum flax functools itertools math numpy operator".split(),
    *"optax types typing jax.ad_checkpoint jax.experimental.pallas jax.lax jax.nn jax.numpy jax.random".split(),
    *"jax.scipy jax.sharding jax.tree jax.tree_util".split(),
    *(
        f"jax.{name}"
        for name in "Array ShapeDtypeStruct checkpoint custom_gradient custom_jvp custom_vjp default_matmul_precision "
        "eval_shape grad jit jvp linearize named_scope shard_map typeof value_and_grad vjp vmap".split()
    ),
}
IMPURE = {
    "numpy.random",
    *(f"{module}.{name}" for module in ("numpy", "jax.numpy") for name in "fromfile load memmap save savez".split()),
}
BUILTINS = set("__import__ breakpoint compile delattr eval exec exit globals hash id input open print setattr".split())
# methods that tell what kind of machine this is, so that tracing elsewhere may give another program
MACHINE = {"default_backend", "platform", "device_kind", "memory_stats", "process_count", "process_index", "environ"}
# methods that change a variable of the module, or write with it
CHANGES = set(
    "add append clear debug discard error exception extend info insert log pop popitem put remove reverse send "
    "setdefault sort update warning write".split()
)


class Module:
    """The names of a module, as far as effects depend on them.

    Attributes:
        imports: bound name -> what it imports, with dots; of the package itself, the name alone behind a dot.
        variables: what statements of the module bind.
        functions: name or `Class.name` -> its definitions.
    """

    def __init__(self, text: str):
        tree = ast.parse(text)
        self.imports = _read_imports(tree.body)
        self.variables: set[str] = set()
        self.functions: dict[str, list[Function]] = {}
        for node in tree.body:
            if isinstance(node, FUNCTIONS):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, FUNCTIONS):
                        self.functions.setdefault(f"{node.name}.{item.name}", []).append(item)
            elif not isinstance(node, (ast.Import, ast.ImportFrom)):
                self.variables |= {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and _is_stored(x)}

    def has_effect(self, function: Function) -> bool:
        """Returns whether a function itself sets, calls or reads what no jaxpr shows."""
        imports = self.imports | _read_imports(ast.walk(function))
        inner = {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        return any(self._shows(node, imports, id(node) in inner) for node in ast.walk(function))

    def _shows(self, node: ast.AST, imports: Mapping[str, str], is_inner: bool) -> bool:
        if isinstance(node, ast.Global) or (_is_stored(node) and isinstance(node, (ast.Attribute, ast.Subscript))):
            return True
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        if getattr(node, "id", getattr(node, "attr", "")) in MACHINE:
            return True
        root, *rest = _dotted(node)
        if root in imports:
            name = ".".join([imports[root], *rest])
            return not is_inner and not name.startswith(".") and not _is_pure(name)
        return root in BUILTINS if not rest else root in self.variables and rest[-1] in CHANGES


def find_effective(texts: Texts) -> set[str]:
    """Finds the functions of a package that have effects, by themselves or through others of the package.

    Returns:
        Their names, those of methods without their class, and those of the classes themselves.
    """
    modules = [Module(text) for text in texts.values()]
    mentions = [
        (name, mentioned_names([function]), module.has_effect(function))
        for module in modules
        for name, functions in module.functions.items()
        for function in functions
    ]
    effective: set[str] = set()
    while (
        found := {
            part
            for name, names, is_effective in mentions
            if is_effective or names & effective
            for part in name.split(".")
            if part != "__init__"
        }
        - effective
    ):
        effective |= found
    return effective


def mentioned_names(functions: Iterable[Function]) -> set[str]:
    """Returns the names that functions read and do not bind, and the attributes that they call."""
    read, bound, called = set[str](), set[str](), set[str]()
    for node in (node for function in functions for node in ast.walk(function)):
        if isinstance(node, ast.Name):
            (bound if _is_stored(node) else read).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called.add(node.func.attr)
    return (read - bound) | called


def _read_imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    imports = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                imports[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imports[alias.asname or alias.name] = f"{'' if node.level else node.module}.{alias.name}"
    return imports


def _dotted(node: ast.AST) -> list[str]:
    """Returns the parts of `a.b.c`; the first is "" if it is not a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *parts[::-1]]


def _is_stored(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _is_pure(name: str) -> bool:
    parts = name.split(".")
    prefixes = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return bool(prefixes & PURE) and not prefixes & IMPURE
