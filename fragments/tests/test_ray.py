"""Preparation on a Ray cluster of one node and of three, against that of processes here; not where Ray is missing."""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, write_jsonl

requires("ray_tasks")

cluster_utils = pytest.importorskip("ray.cluster_utils")

KILLS = int(os.environ.get("KILLS", "2"))


def start(data: str, out: Path, *flags: str, **variables: str) -> subprocess.Popen:
    """Starts it in the folder of the texts, with relative paths."""
    command = [sys.executable, "-m", f"{PACKAGE.name}.data", "prepare", Path(data).name, out.name]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)} | variables
    return subprocess.Popen(
        [*command, "--tokenizer=bytes", *flags],
        cwd=out.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> tuple[str, dict[str, str]]:
    """Returns a file of texts, and what processes here make of it."""
    folder = tmp_path_factory.mktemp("ray")
    data = write_jsonl(folder, [f"{i} " + "word " * 2000 for i in range(1200)])  # 12 MB, about a file for each
    _, told = (process := start(data, folder / "whole", "--workers=2")).communicate()
    assert process.returncode == 0, told
    return data, digests(folder / "whole")


@pytest.fixture(params=[1, 3])
def cluster(request):
    """Starts the processes of this many nodes, which have one worker each."""
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(request.param - 1):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


def busy_workers(cluster) -> list[int]:
    """Returns the processes on all nodes that run a task now."""
    found = []
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent in raylets and (folder / "cmdline").read_bytes().startswith(b"ray::run_task"):
                found.append(int(folder.name))
    return found


def test_killed_workers_change_nothing(texts, cluster):
    data, wanted = texts
    out = Path(data).parent / f"on_{len(cluster.list_all_nodes())}"
    process = start(data, out, "--on=ray", RAY_ADDRESS=cluster.address)
    killed = 0
    deadline = time.monotonic() + 300
    chance = random.Random(0)
    while process.poll() is None and time.monotonic() < deadline:
        workers = busy_workers(cluster)
        if workers and killed < KILLS:
            os.kill(chance.choice(workers), signal.SIGKILL)
            killed += 1
        time.sleep(chance.uniform(0.05, 1))
    said, told = process.communicate(timeout=10)
    assert process.returncode == 0 and f"1,200 documents in {len(wanted) - 1} files" in said, told
    assert killed == KILLS and digests(out) == wanted


def test_a_mistake_in_the_texts_is_told_as_without_ray(texts, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"')
    _, told = (process := start("bad.jsonl", tmp_path / "out", "--on=ray", RAY_ADDRESS="local")).communicate()
    assert process.returncode == 2 and "bad.jsonl:2: must be JSON with a field text" in told.splitlines()[-1]
    assert [path.name for path in tmp_path.glob("out/*")] == ["prepared.json"]
    _, told = (process := start("bad.jsonl", tmp_path / "out", "--on=ray", RAY_ADDRESS="no-address")).communicate()
    assert process.returncode == 2 and told.startswith("error: --on ray: ") and told.count("\n") == 1, told
