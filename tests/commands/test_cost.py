"""gen cost: the compiler's estimates and measured profiles by fragment, each sum held against an independent count."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# a loop of four rounds, fusions, a kernel, a collective, with the costs written in it
STEP = (Path(__file__).parent / "costs/step.hlo").read_text()
TIMELINE = (Path(__file__).parent / "costs/tpu.textproto").read_text()
ATTENTION = '"""Attention.\n\nSource: Vaswani et al., 2017.\n"""\n\n\ndef attend(query, key):\n    return query @ key\n'
ROPE = '''\
"""Rotary positions.

Source: Su et al., 2021.
"""
import jax.numpy as jnp


def rotate(x, angles):
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * jnp.cos(angles), second * jnp.sin(angles)], axis=-1)
'''
COMPILE = """
import os
import sys

os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from llama_cpu.model import attend, rotate

mesh = Mesh(np.array(topologies.get_topology_desc("v5e:2x2", "tpu").devices), ("x",))


def step(x, kernels):
    return jax.lax.scan(lambda x, kernel: (rotate(attend(x, kernel), x[:, :256]), None), x, kernels)[0]


def program(rounds):
    x = jax.ShapeDtypeStruct((512, 512), "bfloat16", sharding=NamedSharding(mesh, P("x", None)))
    kernels = jax.ShapeDtypeStruct((rounds, 512, 512), "bfloat16", sharding=NamedSharding(mesh, P(None, "x", None)))
    return jax.jit(step).lower(x, kernels).compile()


for rounds in (6, 12):
    with open(f"{sys.argv[1]}/{rounds}.hlo", "w") as file:
        file.write(program(rounds).as_text())
"""
PROFILE = """
import sys

import jax
import jax.numpy as jnp
from llama_cpu.model import attend, rotate


@jax.jit
def step(x, kernels):
    return jax.lax.scan(lambda x, kernel: (rotate(attend(x, kernel), x[:, :128]), None), x, kernels)[0]


x, kernels = jnp.ones((256, 256)), jnp.ones((3, 256, 256))
step(x, kernels).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    step(step(x, kernels), kernels).block_until_ready()
"""
EVENTS = """
import json
import sys

from jax.profiler import ProfileData

lines = [line for plane in ProfileData.from_file(sys.argv[1]).planes for line in plane.lines]
ran = [(dict(event.stats).get("hlo_op"), event.start_ns, event.duration_ns) for line in lines for event in line.events]
print(json.dumps([event for event in ran if event[0]]))
"""
WRITE = """
import sys

from jax.profiler import ProfileData

try:
    from jaxlib.xla_client import hlo
except ImportError:  # before jaxlib 0.10.2
    from jaxlib import _jax as hlo

_, text, timeline, path = sys.argv
module = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
size = bytes([len(module) & 127 | 128, len(module) >> 7])  # a message of this size, in field 1
program = "".join(f"\\\\{byte:03o}" for byte in b"\\x0a" + size + module)
with open(path, "wb") as file:
    file.write(ProfileData.text_proto_to_serialized_xspace(timeline.replace("PROGRAM", program)))
"""
# a reduce-scatter as libtpu writes it
SCATTER = """%all-reduce-scatter.1 (p.3: f32[8]) -> f32[2] {
  %p.3 = f32[8]{0} parameter(0)
  %all-reduce.1 = f32[8]{0} all-reduce(%p.3), channel_id=9, to_apply=%add, metadata={stack_frame_id=1}
  ROOT %d.1 = f32[2]{0} dynamic-slice(%all-reduce.1, %o), dynamic_slice_sizes={2}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %s.1 = f32[2]{0} fusion(%x.1), kind=kCustom, calls=%all-reduce-scatter.1, metadata={stack_frame_id=1}
"""
ENTRY = "ENTRY %main (x: f32[8]) -> f32[8] {\n"
ATTENTION_PATH, ROPE_PATH = "fragments/model/attention.py", "fragments/model/rope.py"


@pytest.fixture
def built(workshop):
    """A package whose model compiles; line 5 of model.py is of attention, line 9 of rope."""
    workshop.build("llama_cpu")
    return workshop


@pytest.fixture
def compiling(workshop):
    """A package whose model JAX compiles."""
    workshop.source(ATTENTION_PATH, ATTENTION)
    workshop.source(ROPE_PATH, ROPE)
    workshop.build("llama_cpu")
    return workshop


@pytest.fixture
def small(built):
    """Writes the small program with a change, and runs gen cost on it."""

    def costs(old: str = "", new: str = "", *words: str, code: int = 0):
        text = STEP.replace("PROJECT", str(built.root))
        assert old in text
        (built.root / "small.hlo").write_text(text.replace(old, new))
        return built.run("cost", "small.hlo", *words, code=code)

    return costs


@pytest.fixture
def numbers(small):
    """Returns the JSON of the small program with a change."""
    return lambda old="", new="": json.loads(small(old, new, "--json").stdout)


def python(workshop, *words: str, code: int = 0) -> str:
    """Runs Python beside the packages, and returns its output, or its errors for another exit code.

    It is a process of its own because JAX warns of every fork of a process that imported it.
    """
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=workshop.generated, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


class TestCompiled:
    """Programs that libtpu has compiled for four TPUs that are not here."""

    @pytest.fixture
    def costs(self, compiling):
        python(compiling, "-c", COMPILE, str(compiling.root))
        run = {n: json.loads(compiling.run("cost", f"{n}.hlo", "--json").stdout) for n in (6, 12)}
        return {n: (run[n], (compiling.root / f"{n}.hlo").read_text()) for n in run}

    def test_costs(self, costs):
        """The body of a loop counts as often as it runs, all else once; the sums of fragments have both."""
        for rounds, (found, text) in costs.items():
            (loop,) = re.findall(r" while\(.*body=%?([\w.-]+)", text)
            body = re.search(rf"^%?{re.escape(loop)} \(.*?^}}$", text, re.DOTALL | re.MULTILINE)[0]
            # no fusion of these programs is without an estimate, or has estimates inside
            inside, everywhere = (sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', t))) for t in (body, text))
            assert found["cycles"] == everywhere + (rounds - 1) * inside and inside
            assert sum(row["cycles"] for row in found["sources"].values()) == found["cycles"]
            assert all(sum(row["lines"].values()) == row["cycles"] for row in found["sources"].values())
        # the matrix product is attention's, the rotation is rope's, and both are in the loop
        six, twelve = costs[6][0]["sources"], costs[12][0]["sources"]
        for source in (ATTENTION_PATH, ROPE_PATH):
            assert six[source]["cycles"] + six[source]["cycles_in_fusions_of_others"] > 0
            assert twelve[source]["cycles"] > 1.5 * six[source]["cycles"]
        assert set(six[ATTENTION_PATH]["lines"]) == {"8"} and set(six[ROPE_PATH]["lines"]) <= {"9", "10"}
        # the kernels are gathered over the devices: a matrix of 512 x 512 of two bytes each round
        assert sum(row["bytes_between_devices"] for row in six.values()) == 6 * 512 * 512 * 2


class TestSmall:
    """The program in costs/step.hlo."""

    def test_table(self, small):
        rows = [line.split("  ") for line in small().stdout.splitlines()]
        rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
        # 4 x (own 100 + rooted 10, whose root is in no package) + untimed 1000, called from attention + copy 20000
        assert rows[2:7] == [
            ["elsewhere: copy of no source", "20,000", "93.28", "0", "0", "0"],
            ["model/attention", "1,400", "6.53", "40", "512", "0"],
            ["elsewhere: in no package", "40", "0.19", "0", "0", "0"],
            ["model/rope", "0", "0.00", "0", "0", "4"],
            ["total", "21,440", "100.00", "-", "512", "4"],
        ]
        assert ["k", f"{ROPE_PATH}:8", "4"] in rows

    def test_json(self, numbers):
        found = numbers()
        assert found["cycles"] == 21440
        assert found["sources"][ATTENTION_PATH] == {
            **{"cycles": 1400, "cycles_in_fusions_of_others": 40, "bytes_between_devices": 4 * 32 * 4},
            **{"kernel_calls": 0, "lines": {"8": 1400}},
        }
        assert found["kernels"] == [{"kernel": "k", "at": f"{ROPE_PATH}:8", "calls": 4}]

    def test_scatter_sends_its_result(self, numbers):
        before, after = (numbers(*edit)["sources"][ATTENTION_PATH] for edit in (("", ""), (ENTRY, SCATTER)))
        assert after["bytes_between_devices"] - before["bytes_between_devices"] == 2 * 4

    def test_known_trip_count(self, numbers):
        known = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
        assert numbers("body=%body", known)["cycles"] == 7 * 110 + 21000

    def test_loop_of_unknown_count(self, small):
        result = small("constant(4)", "parameter(1)", "--json")
        assert json.loads(result.stdout)["cycles"] == 110 + 21000
        assert "1 loops or branches do not say how often they run" in result.stderr

    def test_package_that_is_gone(self, small, built):
        result = small(f"{built.root}/generated", "/gone", "--json")
        assert json.loads(result.stdout)["sources"][ATTENTION_PATH]["cycles"] == 1400
        assert "the file is not there" in result.stderr

    def test_places_of_older_programs(self, numbers, built):
        place = f'metadata={{op_name="a" source_file="{built.generated}/llama_cpu/model.py" source_line=9}}'
        assert numbers("copy(%u.1), ", f"copy(%u.1), {place}, ")["sources"][ROPE_PATH]["cycles"] == 20000

    def test_program_without_estimates(self, small):
        assert "the program has no estimates of cycles" in small('"estimated_cycles"', '"others"').stderr

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("StackFrames\n", f"StackFrames\n9 {'A' * 2_000_000}\n"),
            ("%k.1 = (f32[8]", f"%k.1 = ({'a' * 2_000_000}f32[8]"),
        ],
        ids=["frame", "shape"],
    )
    def test_long_lines(self, numbers, old, new):
        """Quadratic time in the length of a line would take hours."""
        assert numbers(old, new)["cycles"] == 21440


class TestProfile:
    @staticmethod
    def costs(workshop, *words: str, code: int = 0) -> str:
        """Returns the output of gen cost, or its errors for another exit code."""
        return python(workshop, "-m", "generator", "cost", *words, code=code)

    def test_of_a_processor(self, compiling):
        """Matrix products, which XLA does not fuse here, are attention's; all else in the loop is not."""
        python(compiling, "-c", PROFILE, str(compiling.root / "profile"))
        (file,) = (compiling.root / "profile").rglob("*.xplane.pb")
        found = json.loads(self.costs(compiling, str(file), "--json"))
        ran = json.loads(python(compiling, "-c", EVENTS, str(file)))
        products = [length for name, _, length in ran if name.startswith(("dot", "ynn"))]
        assert len(products) == 2 * 3
        attention = found["sources"][ATTENTION_PATH]
        assert attention["nanoseconds"] == pytest.approx(sum(products), abs=len(products))
        spans = [span for span in ran if not any(x is not span and x[1] <= span[1] < x[1] + x[2] for x in ran)]
        assert found["nanoseconds"] == pytest.approx(sum(length for *_, length in spans), abs=len(ran))
        assert set(attention["lines"]) == {"8"}
        assert found["sources"][ROPE_PATH]["nanoseconds"] > 0

    @pytest.fixture
    def profile(self, built):
        """Writes a TPU's profile of the small program, with a change."""

        def write(old: str = "", new: str = "") -> None:
            text = STEP.replace("PROJECT", str(built.root)).replace("channel_id=5", "channel_id=5, dimensions={0}")
            assert old in TIMELINE
            timeline = TIMELINE.replace(old, new) if old else TIMELINE
            python(built, "-c", WRITE, text, timeline, str(built.generated / "tpu.xplane.pb"))

        return write

    def test_of_a_tpu(self, profile, built):
        """Of the loop's 800 ns, 640 are of its body; the other program's 50 are of no fragment."""
        profile()
        found = json.loads(self.costs(built, "tpu.xplane.pb", "--json"))
        sources = {source: row["nanoseconds"] for source, row in found["sources"].items()}
        assert sources == {
            ATTENTION_PATH: 600,
            "elsewhere: while of no source": 160,
            "elsewhere: of programs that the profile does not hold": 50,
            ROPE_PATH: 40,
            "elsewhere: copy of no source": 7,
        }
        assert found["nanoseconds"] == 857
        assert found["kernels"] == [{"kernel": "k", "at": f"{ROPE_PATH}:8", "calls": 2}]
        printed = self.costs(built, "tpu.xplane.pb")
        assert re.search(r"model/attention +600 +70\.01 ", printed)
        assert "in all of its steps and on all of its devices" in printed

    def test_collectives_that_ran(self, profile, built):
        profile("%k.1 = (f32[8]{0}, u32[]) custom-call", "%g.1 = x all-gather-start")
        found = json.loads(self.costs(built, "tpu.xplane.pb", "--json"))
        assert found["sources"][ATTENTION_PATH]["bytes_between_devices"] == 2 * 32 * 4

    def test_mistakes(self, profile, built, monkeypatch):
        profile('name: "XLA Ops"', 'name: "Steps"')
        error = self.costs(built, "tpu.xplane.pb", code=2)
        assert "tpu.xplane.pb: is a profile in which no instruction of a program ran" in error
        whole = (built.generated / "tpu.xplane.pb").read_bytes()
        for data in (
            b"\x0a\xff\x00",
            STEP.replace("HloModule", "Module").encode(),
            whole[: len(whole) // 2],
            whole[:-9],
        ):
            (built.generated / "other.pb").write_bytes(data)
            assert "nor a whole profile" in self.costs(built, "other.pb", code=2)
        monkeypatch.setitem(sys.modules, "jax", None)
        monkeypatch.setitem(sys.modules, "jax.profiler", None)
        error = built.run("cost", "generated/tpu.xplane.pb", code=2).stderr
        assert "JAX, which reads profiles, is not installed" in error


class TestMistakes:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("ENTRY %main", "%main", "it has no ENTRY computation"),
            ("calls=%untimed", "calls=%nothing", "it does not define nothing"),
            ("calls=%untimed", "calls=%main", "a computation runs itself"),
            ("condition=%condition, ", "", "has no body or no condition"),
            ("constant(4)", f"constant({'9' * 18})", ""),
            ("body=%body", 'body=%body, known_trip_count={"n":"' + "9" * 40 + '"}', "longer than any program"),
            ("  ROOT %r = ", "}\n  ROOT %r = ", "an instruction is outside of a computation"),
        ],
    )
    def test_program(self, small, old, new, message):
        assert message in small(old, new, code=2 if message else 0).stderr

    def test_cut_off(self, small, built):
        small()
        text = (built.root / "small.hlo").read_text()
        for end in range(10, len(text) - 3, 97):
            (built.root / "cut.hlo").write_text(text[:end])
            assert "cut.hlo: " in built.run("cost", "cut.hlo", code=2).stderr

    def test_files(self, built):
        (built.root / "a.hlo").write_bytes(b"HloModule \xff")
        assert "cannot be read as HLO" in built.run("cost", "a.hlo", code=2).stderr
        assert "nothing.hlo: No such file" in built.run("cost", "nothing.hlo", code=2).stderr
