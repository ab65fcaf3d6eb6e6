"""What tests cost in CPU seconds, their processes' children counted, which a busy machine hardly changes.

A plugin of pytest, which adds a line for each test to the file COSTS, and a command that sums them:

    COSTS=/tmp/costs PYTHONPATH=benchmarks python -m pytest -p costs tests/weave
    python benchmarks/costs.py /tmp/costs          # by file and by phase; a second argument: that many tests

Phases: `import` is what a process did before its first test; `weave` is within `generator.weaver.weave`; `trace` and
`compile` are JAX's; `children` are processes that a test waited for; `run` is the rest.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

PHASES = ("import", "weave", "trace", "compile", "children", "run")
spent: dict[str, float] = defaultdict(float)  # wall seconds of phases within the running test
started: list = []  # wall and CPU seconds and `spent` at its beginning


def cpu() -> tuple[float, float]:
    """CPU seconds of this process, and of its children that ended."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def watch() -> None:
    """Times weaving and JAX's compiler, where they have been imported."""
    weaver, jax = sys.modules.get("generator.weaver"), sys.modules.get("jax")
    if weaver and not spent["watched weaver"]:
        spent["watched weaver"], weave = 1, weaver.weave

        @functools.wraps(weave)
        def timed(*arguments, **named):
            start = time.perf_counter()
            try:
                return weave(*arguments, **named)
            finally:
                spent["weave"] += time.perf_counter() - start

        for module in list(sys.modules.values()):  # whoever imported it by name
            if vars(module).get("weave") is weave:
                module.weave = timed
    if jax and hasattr(jax, "monitoring") and not spent["watched jax"]:
        spent["watched jax"] = 1

        def heard(event: str, seconds: float, **_) -> None:
            if "jaxpr_trace" in event or "jaxpr_to_mlir" in event:
                spent["trace"] += seconds
            elif "backend_compile" in event:
                spent["compile"] += seconds

        jax.monitoring.register_event_duration_secs_listener(heard)


def pytest_runtest_protocol(item, nextitem) -> None:
    watch()
    if not started:
        write("import", item, dict.fromkeys(PHASES, 0.0) | {"import": cpu()[0]})
    started[:] = [time.perf_counter(), *cpu(), dict(spent)]


def pytest_runtest_teardown(item, nextitem) -> None:
    """The last that is known of a test; what its module's fixtures do afterwards counts for the next one."""
    wall, own, children, before = started
    wall, own, children = time.perf_counter() - wall, cpu()[0] - own, cpu()[1] - children
    phases = {name: (spent[name] - before.get(name, 0)) * min(own / wall, 1) for name in ("weave", "trace", "compile")}
    rest = max(own - sum(phases.values()), 0)
    write(item.nodeid, item, {"import": 0.0, **phases, "children": children, "run": rest})


def write(name: str, item, phases: dict[str, float]) -> None:
    with open(os.environ["COSTS"], "a") as file:
        file.write(json.dumps({"file": item.nodeid.split("::")[0], "test": name, **phases}) + "\n")


def main(path: str, tests: str = "0") -> None:
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]

    def table(key: str, most: int) -> None:
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(PHASES))
        for row in rows:
            sums[row[key]] = [a + row[phase] for a, phase in zip(sums[row[key]], PHASES, strict=True)]
        ordered = sorted(sums.items(), key=lambda item: -sum(item[1]))[:most]
        total = [sum(row[phase] for row in rows) for phase in PHASES]
        print("".join(f"{name:>9}" for name in ("total", *PHASES)))
        for name, values in [("all", total), *ordered]:
            print("".join(f"{value:9.1f}" for value in (sum(values), *values)), name)

    table("file", 10**9)
    if int(tests):
        table("test", int(tests))


if __name__ == "__main__":
    main(*sys.argv[1:])
