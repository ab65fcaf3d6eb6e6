"""Two and four processes over all kinds of mesh, against one process that has one device."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from selected import mostly_slow

from distributed.jobs import finish, start

# processes -> data, fsdp (experts lie over it as well), tensor, accumulation, stage; of each the first are tried, in `make test` that of 4
CASES = {
    2: ["1,4,1,2", "1,1,4,2", "4,1,1,1", "1,1,4,1", "2,2,1,2", "2,1,2,1", "1,2,2,2"],
    4: ["2,2,2,2", "2,1,2,1,2", "8,1,1,1", "1,8,1,1", "1,2,4,1"],
}
if "ALL_MESHES" not in os.environ:
    CASES = {processes: cases[:2] for processes, cases in CASES.items()}
DOCUMENTS = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("data") / "texts.jsonl"
    texts = [f"document {i}: " + "xyz " * (i % 5) for i in range(DOCUMENTS)]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return str(path)


@pytest.fixture(scope="module", params=mostly_slow(["llama2_cpu", "qwen3_moe_cpu"], "llama2_cpu"))
def expected(request, cache, data, tmp_path_factory):
    """The package, and what one device makes of it; the same with and without accumulation."""
    folder = tmp_path_factory.mktemp("one")
    finish(start(["-m", "distributed.meshes", request.param, str(folder), data, "1,1,1,1"], cache, 1, 1))
    return request.param, np.load(folder / "1,1,1,1.npz"), json.loads((folder / "1,1,1,1-0.json").read_text())


@pytest.mark.parametrize("processes", mostly_slow(CASES, 4))
def test_processes_compute_what_one_device_computes(expected, cache, data, tmp_path, processes):
    package, arrays, rows = expected
    finish(start(["-m", "distributed.meshes", package, str(tmp_path), data, *CASES[processes]], cache, processes))
    for case in CASES[processes]:
        found = np.load(tmp_path / f"{case}.npz")
        assert set(found) == set(arrays)
        for name in found:
            scale = np.abs(arrays[name]).max()
            np.testing.assert_allclose(found[name], arrays[name], rtol=0, atol=1e-6 * scale, err_msg=f"{case} {name}")
        fed = {}
        for index in range(processes):
            for row, documents in json.loads((tmp_path / f"{case}-{index}.json").read_text()).items():
                assert fed.setdefault(row, documents) == documents  # processes that share a row feed the same
        assert fed == rows
    assert np.ptp(arrays["loss"]) > 1e-3
