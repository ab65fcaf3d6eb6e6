"""What Neuron's compiler is documented not to take, as operations of StableHLO.

Source: AWS Neuron 2.33, release notes and known issues of JAX NeuronX, and error codes NCC_* of neuronx-cc.
"""

import collections
import re
from collections.abc import Iterator

import jax
from jax.extend.mlir import ir

# constraints on a layout, which the partitioner takes out; any other custom call is one that a compiler must know
LAYOUTS = "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"
DYNAMIC = re.compile(r"stablehlo\.(real_)?dynamic_(?!slice|update_slice)")


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yields an operation and all those in it."""
    yield op
    for inner in (inner for region in op.regions for block in region for inner in block):
        yield from walk(inner.operation)


def is_op(owner: ir.Operation | ir.Block, name: str) -> bool:
    return not isinstance(owner, ir.Block) and owner.name == f"stablehlo.{name}"


def has_static_bound(loop: ir.Operation) -> bool:
    """Returns whether a loop counts up to a constant, as those of scans and of lax.map do."""
    *_, end = loop.regions[0].blocks[0]
    test = end.operands[0].owner
    if not is_op(test, "compare"):
        return False
    counter, bound = test.operands
    return isinstance(counter.owner, ir.Block) and is_op(bound.owner, "constant")


def problem(op: ir.Operation) -> str | None:
    """Names what the compiler would not take of an operation, and where that is documented."""
    name = op.name.removeprefix("stablehlo.")
    inner = [x for x in walk(op) if x != op and not x.name.endswith("return")]  # of a reduction, a scatter or a sort
    types = [str(x.type) for x in (*op.operands, *op.results)]
    first = re.sub(r"tensor<(.*x)?|>.*", "", types[0]) if types else ""  # such as f32
    is_integer = re.fullmatch(r"u?i\d+", first) is not None
    if name in ("case", "if"):
        return "a branch: known issues, lax.cond"
    if name == "while" and not has_static_bound(op):
        return "a loop bound by data: known issues, lax.while_loop"
    if name == "func.func" and "threefry" in str(op.attributes["sym_name"]):
        return "threefry: known issues, random numbers"
    if name == "rng_bit_generator" and "DEFAULT" not in str(op.attributes["rng_algorithm"]):
        return "a random algorithm: NCC_EVRF006"
    if name == "custom_call" and str(op.attributes["call_target_name"]).strip('"') not in LAYOUTS:
        return f"a custom call of {op.attributes['call_target_name']}: NCC_EHCA005, and known issues, callbacks"
    compared = [str(x.attributes["comparison_direction"]) for x in inner if is_op(x, "compare")]
    if name == "sort" and re.search("EQ|NE", "".join(compared)):
        return "a sort by EQ or NE: release notes, lax.sort"
    if name in ("reduce", "reduce_window") and len(op.results) > 1:
        return "a reduction of several arrays: NCC_EVRF019"
    if name == "chlo.top_k" and is_integer:
        return "TopK of integers: NCC_EVRF013"
    if name == "dot_general" and is_integer:
        return "a product of integers: NCC_EVRF035"
    if name == "scatter" and is_integer and inner:
        return "a scatter that combines integers: NCC_EVRF016, NCC_EVRF060"
    if name in ("all_reduce", "reduce_scatter") and is_integer:
        return "a sum of integers over devices: NCC_EVRF061, NCC_EVRF063"
    if any(re.search(r"f8E4M3FN|complex|f64", x) for x in types):
        return "a type: NCC_EVRF051, known issues"
    if DYNAMIC.match(op.name) or any("?" in x for x in types):
        return "a shape that is not static: NCC_EMOD025"
    return None


def refused(program: jax.stages.Traced) -> dict[str, int]:
    """Lowers a program by JAX's rules for a platform that it does not know, and counts what would be refused."""
    module = program.lower(lowering_platforms=("neuron",)).compiler_ir("stablehlo")
    return dict(collections.Counter(filter(None, map(problem, walk(module.operation)))))
