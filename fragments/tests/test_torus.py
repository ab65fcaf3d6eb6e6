"""The FLOPs of attention kernels, by the shapes in a program's text."""

import pytest

from generator.language import requires
from generator.language.roles import Program, kernel_flops

requires("cost/torus")


@pytest.mark.parametrize("batch", ["", "1,", "3,"])  # XLA leaves out the axis of one sequence
def test_flops_of_splash_attention(batch):
    shape = f"bf16[{batch}4,256,64]"
    program = Program(f"""HloModule step

ENTRY %main (blocks: s8[1,2,2], q: {shape}, k: {shape}, v: {shape}, sums: f32[{batch}4,256]) -> {shape} {{
  %blocks = s8[1,2,2]{{2,1,0}} parameter(0)
  %q = {shape}{{2,1,0}} parameter(1)
  %k = {shape}{{2,1,0}} parameter(2)
  %v = {shape}{{2,1,0}} parameter(3)
  %sums = f32[{batch}4,256]{{1,0}} parameter(4)
  ROOT %splash_mha_dkv.1 = {shape}{{2,1,0}} custom-call(%blocks, %q, %k, %v, %sums), custom_call_target="tpu"
}}
""")
    (kernel,) = (x for body in program.computations.values() for x in body if x.kind == "custom-call")
    sequences = int(batch.strip(",") or 1)
    computed = 3 / 4  # of the blocks of 128 x 128
    assert kernel_flops(program, kernel) == 5 * 2 * sequences * 4 * 256 * 256 * 64 * computed
