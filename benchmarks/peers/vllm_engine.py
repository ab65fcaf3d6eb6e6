"""vLLM's engine on the requests of benchmarks/serving.py, which runs this with --vllm PYTHON: no HTTP, as there.

python benchmarks/peers/vllm_engine.py FOLDER REQUESTS [--eager]        prints JSON

Needs vLLM; on CPUs a build for them, with as many GiB for pages as VLLM_CPU_KVCACHE_SPACE says. FOLDER is a checkpoint
of Hugging Face, REQUESTS a file of JSON: "at_once" and "later", lists of prompts and how many tokens to add, and
"gaps", the seconds between arrivals of the latter. Without --eager it compiles its model first, which is not timed.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # steps are taken here


def run(engine: Any, requests: list[tuple[list[int], int]], gaps: list[float], round: int) -> tuple[float, list[Any]]:
    """Seconds until all have ended, and the time of each token of each request since it came."""
    from vllm import SamplingParams

    came, added = list(itertools.accumulate(gaps)), 0
    times: list[list[float]] = [[] for _ in requests]
    begin = time.perf_counter()
    while added < len(requests) or engine.has_unfinished_requests():
        while added < len(requests) and came[added] <= time.perf_counter() - begin:
            prompt, most = requests[added]
            sampling = SamplingParams(temperature=0, max_tokens=most, ignore_eos=True, detokenize=False)
            engine.add_request(f"{round}-{added}", {"prompt_token_ids": prompt}, sampling)
            added += 1
        for output in engine.step():
            number = int(output.request_id.split("-")[1])
            new = len(output.outputs[0].token_ids) - len(times[number])
            times[number] += [time.perf_counter() - begin - came[number]] * new
    return time.perf_counter() - begin, times


def main() -> None:
    from vllm import EngineArgs, LLMEngine

    folder, file, *flags = sys.argv[1:]
    asked = json.loads(Path(file).read_text())
    settings = dict(dtype="float32", max_model_len=1200, max_num_seqs=32, skip_tokenizer_init=True, seed=0)
    engine = LLMEngine.from_engine_args(EngineArgs(model=folder, enforce_eager="--eager" in flags, **settings))
    warm = [([7] * len(prompt), 8) for prompt, _ in asked["at_once"][:8]]
    run(engine, warm, [0.0] * len(warm), 0)
    seconds, made = run(engine, asked["at_once"], [0.0] * len(asked["at_once"]), 1)
    _, times = run(engine, asked["later"], asked["gaps"], 2)
    assert [len(x) for x in made] == [most for _, most in asked["at_once"]]
    print(json.dumps({"seconds": seconds, "times": times}))


if __name__ == "__main__":
    main()
