"""The seconds that a compiled step is predicted to take, and all that was found as JSON."""

import json
import sys

from generator.language import requires, splice
from generator.language.roles import CHIPS, PARTS, places, step_cost

requires("compile/compile")


@splice("CompileCommand.fields")
def _():
    json: bool = False  # prints one line of JSON alone; what people read goes to the standard error


@splice("compile.start")
def _(command):
    output = sys.stdout
    if command.json:
        sys.stdout = sys.stderr


@splice("compile.report")
def _(command, config, mesh, chip, compiled, total, full, causal, output):
    cost = step_cost(compiled.as_text(), CHIPS[chip], places(mesh))
    print(cost.text())
    if command.json:
        prediction = {"preset": command.preset, "chip": chip, "devices": mesh.size, "mesh": dict(mesh.shape)}
        prediction |= {"batch_size": config.batch_size, "remat": config.remat, "bytes": total}
        prediction |= {"flops": full, "causal_flops": causal, "mfu": causal / cost.seconds / CHIPS[chip].peak}
        prediction |= {"seconds": cost.seconds, **dict.fromkeys((*PARTS, "collectives"), 0.0), **cost.parts}
        prediction |= {"left_out": cost.unknown}
        print(json.dumps(prediction), file=output, flush=True)
