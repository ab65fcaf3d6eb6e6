"""vLLM's engine for benchmarks/serving_vllm.py, which starts this with an interpreter that has vLLM: no HTTP, as there.

python benchmarks/peers/vllm_engine.py FOLDER DTYPE [--eager]

FOLDER is a checkpoint of Hugging Face. Reads lines of JSON from standard input: {"requests": [[prompt, tokens to add]],
"gaps": seconds between their arrivals, "temperature": of all}. Answers each with a line "RESULT " and JSON: {"seconds":
until all have ended, "times": of each token of each request since its arrival}. On CPUs it needs a build of vLLM for
them, with as many GiB for its KV cache as VLLM_CPU_KVCACHE_SPACE says.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # steps are taken here


def run(engine: Any, requests: list[tuple[list[int], int]], gaps: list[float], temperature: float) -> dict[str, Any]:
    """Runs requests, and returns what the line answers."""
    from vllm import SamplingParams

    arrivals, added = list(itertools.accumulate(gaps)), 0
    times: list[list[float]] = [[] for _ in requests]
    begin = time.perf_counter()
    while added < len(requests) or engine.has_unfinished_requests():
        while added < len(requests) and arrivals[added] <= time.perf_counter() - begin:
            prompt, most = requests[added]
            sampling = SamplingParams(temperature=temperature, max_tokens=most, ignore_eos=True, detokenize=False)
            engine.add_request(str(added), {"prompt_token_ids": prompt}, sampling)
            added += 1
        for output in engine.step():
            place = int(output.request_id)
            new = len(output.outputs[0].token_ids) - len(times[place])
            times[place] += [time.perf_counter() - begin - arrivals[place]] * new
    return {"seconds": time.perf_counter() - begin, "times": times}


def main() -> None:
    from vllm import EngineArgs, LLMEngine

    folder, dtype, *flags = sys.argv[1:]
    settings = dict(max_model_len=1200, max_num_seqs=32, skip_tokenizer_init=True, seed=0)
    arguments = EngineArgs(model=folder, dtype=dtype, enforce_eager="--eager" in flags, **settings)
    engine = LLMEngine.from_engine_args(arguments)
    for line in sys.stdin:
        print("RESULT", json.dumps(run(engine, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
