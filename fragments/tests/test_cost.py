"""The seconds that the model of a step predicts: small programs against numbers by hand."""

import jax
import jax.numpy as jnp
import pytest

from generator.language import requires
from generator.language.roles import CHIPS, Chip, Program, array_bytes, first_group, grouped_flops, step_cost

requires("cost/program")

# a product of 64 x 64 matrices takes a microsecond: 2 * 64**3 FLOPs at the peak, or 1,000 cycles
NUMBERS = {
    "peak": 2e6 * 64**3,
    "bandwidth": 1e15,
    "clock": 1e9,
    "link": 1e9,
    "network": 1e8,
    "host": 1e9,
    "efficiency": 0.5,
}
CHIP = Chip(**{name: NUMBERS.get(name) for name in Chip._fields})  # the others describe it to a compiler

PROGRAM = """HloModule step, is_scheduled=true

%body (p: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %p = (s32[], f32[64,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[64,64]{1,0} get-tuple-element(%p), index=1
  %y = f32[64,64]{1,0} dot(%x, %x), lhs_contracting_dims={1}, backend_config={"estimated_cycles":"1000"}
  ROOT %t = (s32[], f32[64,64]{1,0}) tuple(%i, %y)
}

%condition (q: (s32[], f32[64,64])) -> pred[] {
  %q = (s32[], f32[64,64]{1,0}) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %bound = s32[] constant(7)
  ROOT %less = pred[] compare(%j, %bound), direction=LT
}

ENTRY %main (a: f32[1024], b: (s32[], f32[64,64])) -> f32[1024] {
  %a = f32[1024]{0} parameter(0)
  %b = (s32[], f32[64,64]{1,0}) parameter(1)
  %start = (f32[1024]{0}, f32[4096]{0}) all-gather-start(%a), replica_groups=[1,4]<=[4], dimensions={0}
  %loop = (s32[], f32[64,64]{1,0}) while(%b), condition=%condition, body=%body
  %done = f32[4096]{0} all-gather-done(%start)
  ROOT %sum = f32[1024]{0} all-reduce(%a), replica_groups={{0,1,2,3}}, to_apply=%add
}
"""


def test_a_collective_is_hidden_by_the_work_between_its_start_and_its_end():
    places = [(0, number, 0, 0) for number in range(4)]  # along one line of links
    cost = step_cost(PROGRAM, CHIP, places)
    assert cost.parts["products"] == pytest.approx(7 * 1e-6 / 0.5)  # a loop's body counts as often as it runs
    gathered, summed = 4096 * 4 * 3 / 4 / 1e9, 2 * 1024 * 4 * 3 / 4 / 1e9  # what three others have; there and back
    assert cost.parts["collectives"] == pytest.approx(gathered + summed)
    assert cost.parts["exposed"] == pytest.approx(summed)
    slower = step_cost(PROGRAM, CHIP._replace(link=1e8, network=1e8), places)
    assert slower.parts["exposed"] == pytest.approx(10 * (gathered + summed) - cost.parts["products"])
    assert slower.seconds == pytest.approx(10 * (gathered + summed))


# as libtpu writes a collective beside a product, and copies to and from host memory
FUSED = """HloModule step, is_scheduled=true

%begin (a1: f32[1024]) -> (f32[4096], u32[]) {
  %a1 = f32[1024]{0} parameter(0)
  %gather1 = f32[4096]{0} all-gather(%a1), channel_id=5, replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %begun = (f32[4096]{0}, u32[]) custom-call(%gather1), custom_call_target="AsyncCollectiveStart"
}

%beside (a2: f32[1024], x2: f32[64,64]) -> f32[64,64] {
  %a2 = f32[1024]{0} parameter(0)
  %x2 = f32[64,64]{1,0} parameter(1)
  %gather2 = f32[4096]{0} all-gather(%a2), channel_id=5, replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %y2 = f32[64,64]{1,0} dot(%x2, %x2), lhs_contracting_dims={1}
}

%finish (a3: f32[1024]) -> f32[4096] {
  %a3 = f32[1024]{0} parameter(0)
  %gather3 = f32[4096]{0} all-gather(%a3), channel_id=5, replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %finished = f32[4096]{0} custom-call(%gather3), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (a: f32[1024], x: f32[64,64]) -> f32[4096] {
  %a = f32[1024]{0} parameter(0)
  %x = f32[64,64]{1,0} parameter(1)
  %b = f32[7,1024]{1,0:S(5)} parameter(2)
  %i = s32[] constant(3)
  %sent = ((f32[7,1024]{1,0:S(5)}, f32[1,1024]), f32[7,1024]{1,0:S(5)}, u32[]) dynamic-update-slice-start(%b, %a, %i)
  %start = (f32[4096]{0}, u32[]) fusion(%a), kind=kCustom, calls=%begin
  %y = f32[64,64]{1,0} fusion(%a, %x), kind=kOutput, calls=%beside, backend_config={"estimated_cycles":"1000"}
  %kept = f32[7,1024]{1,0:S(5)} dynamic-update-slice-done(%sent)
  %fetch = (f32[1024]{0}, f32[1024]{0:S(5)}, u32[]) copy-start(%kept)
  %done = f32[4096]{0} fusion(%start), kind=kCustom, calls=%finish
  ROOT %fetched = f32[1024]{0} copy-done(%fetch)
}
"""


def test_a_collective_is_hidden_by_the_fusions_that_it_is_spread_over_and_a_copy_to_the_host_by_what_follows():
    cost = step_cost(FUSED, CHIP, [(0, number, 0, 0) for number in range(4)])
    product, gathered, copied = 1e-6 / 0.5, 4096 * 4 * 3 / 4 / 1e9, 1024 * 4 / 1e9
    assert cost.parts["products"] == pytest.approx(product)
    assert cost.parts["collectives"] == pytest.approx(gathered)
    assert cost.parts["host"] == pytest.approx(2 * copied)
    assert cost.seconds == pytest.approx(max(gathered, 2 * copied))  # the second copy starts when the first has ended
    hidden = step_cost(FUSED, CHIP._replace(link=1e15, host=1e15), [(0, number, 0, 0) for number in range(4)])
    assert hidden.seconds == pytest.approx(product, rel=1e-3)


def test_flops_and_bytes_of_what_xla_writes():
    x, kernel = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 64), (64, 128)))
    program = Program(jax.jit(lambda x, kernel: x @ kernel).lower(x, kernel).compile().as_text())
    instructions = [x for body in program.computations.values() for x in body]
    (product,) = (x for x in instructions if x.kind == "dot")
    assert program.flops(product) == 2 * 32 * 64 * 128
    assert program.traffic(product) == 4 * (32 * 64 + 64 * 128 + 32 * 128)
    assert array_bytes("(bf16[3,4]{1,0:T(8,128)(2,1)}, /*index=1*/f32[], pred[7], f8e4m3fn[5])") == 24 + 4 + 7 + 5


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("replica_groups={{0,4},{1,5}}", [0, 4]),
        ("replica_groups=[2,4]<=[8], x", [0, 1, 2, 3]),
        ("replica_groups=[2,4]<=[4,2]T(1,0), x", [0, 2, 4, 6]),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, x", [0, 2, 4, 6]),
        ("replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}, x", [*range(8)]),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4], device_ids=([4,2]T(1,0)) {'axis_1'}, x", [0, 2, 4, 6]),
        ("source_target_pairs={{0,3},{3,0}}", [0, 3]),
        ("channel_id=1", [*range(8)]),
    ],
)
def test_groups_in_all_their_forms(text, group):
    assert first_group(text, 8) == group


def test_flops_of_grouped_products():
    rows, kernels, products = ("bf16", (64, 8)), ("bf16", (4, 8, 16)), ("bf16", (64, 16))
    for operands in ([rows, kernels, products], [products, kernels, rows], [rows, products, kernels]):
        assert grouped_flops([("s32", (4,)), *operands]) == 2 * 64 * 8 * 16  # forward, and for both gradients


def test_an_efficiency_is_a_share():
    assert all(0.3 < chip.efficiency <= 1 for chip in CHIPS.values())
