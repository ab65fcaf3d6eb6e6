"""Files that launch jobs: valid for the interfaces that read them, true to the package, and what they do when a job ends."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from whole import NAMES, whole_packages

models = pytest.importorskip("kubeflow_trainer_api.models")  # made from the OpenAPI of Kubernetes and of JobSet

PACKAGES = [whole_packages() / name for name in NAMES]
JOBSETS = [path for package in PACKAGES for path in package.glob("launch/jobset.yaml")]
SERVERS = [path for package in PACKAGES for path in package.glob("launch/serve.yaml")]
SCRIPTS = [path for package in PACKAGES for path in package.glob("launch/*.slurm")]
each_jobset = pytest.mark.parametrize("path", JOBSETS, ids=lambda path: path.parents[1].name)
each_server = pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.parents[1].name)
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.parents[1].name)


def read(path: Path) -> SimpleNamespace:
    """A JobSet, its one replicated job, this one's Job, and its container."""
    jobset = yaml.safe_load(path.read_text())
    (replicated,) = jobset["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    return SimpleNamespace(jobset=jobset, replicated=replicated, job=job, container=container)


def exit_codes(package: Path) -> dict[str, int]:
    """Name -> number of ExitCode, except DOES_NOT_FIT, with which only compilation ends."""
    tree = ast.parse((package / "errors.py").read_text())
    (codes,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ExitCode")
    found = {n.targets[0].id: n.value.value for n in codes.body if isinstance(n, ast.Assign)}
    return {name: code for name, code in found.items() if name != "DOES_NOT_FIT"}


def preset(package: Path, name: str, hardware: str | None) -> dict[str, object]:
    """The fields of a preset on some hardware, and the defaults of the rest."""
    tree = ast.parse((package / "config.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]  # Config and those of its concerns
    settings = [n for node in classes for n in node.body if isinstance(n, ast.AnnAssign) and n.value]
    fields = {n.target.id: ast.literal_eval(n.value) for n in settings}
    (presets,) = (n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "PRESETS")
    chosen = next(value for key, value in zip(presets.keys, presets.values, strict=True) if key.value == name)
    recipe = {}
    if hardware:
        (recipes,) = (n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "RECIPES")
        rows = {ast.literal_eval(key): row for key, row in zip(recipes.keys, recipes.values, strict=True)}
        recipe = ast.literal_eval(rows[name, hardware].args[0])
    return fields | {keyword.arg: ast.literal_eval(keyword.value) for keyword in chosen.keywords} | recipe


def flags(words: list[str]) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=") for word in words if word.startswith("--"))


@each_jobset
def test_a_jobset_is_valid(path):
    """All of it is known to the API: what was read is what was written."""
    found = read(path)
    jobset = models.JobsetV1alpha2JobSet.from_dict(found.jobset)
    assert jobset.to_dict() == found.jobset
    assert (jobset.api_version, jobset.kind) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    # what the API server checks beyond types
    for rule in jobset.spec.failure_policy.rules:
        assert rule.action in ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts")
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule.name)
        assert set(rule.on_job_failure_reasons) <= {"PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded"}
    # names of pods, JOBSET-JOB-INDEX-INDEX, are labels of DNS
    name = f"{found.jobset['metadata']['name']}-{found.replicated['name']}-0-{found.job['completions']}"
    assert re.fullmatch("[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)
    volumes = {volume["name"] for volume in found.job["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in found.container["volumeMounts"]} == volumes
    assert found.job["parallelism"] == found.job["completions"]


def check_hardened(pod: dict) -> None:
    """Nothing gains rights, nothing on disk or in memory grows without bound, and the scheduler knows what it takes."""
    (container,) = pod["containers"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    wanted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    assert container["securityContext"] == wanted
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    assert {"cpu", "memory"} <= requests.keys() and "memory" in limits
    if "google.com/tpu" not in limits:
        assert pod["securityContext"]["runAsNonRoot"]
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume)
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/tmp"}


@each_jobset
def test_a_jobset_gives_no_rights_away(path):
    pod = read(path).job["template"]["spec"]
    check_hardened(pod)
    assert pod["terminationGracePeriodSeconds"] >= 120


@each_server
def test_a_server_is_valid_probed_and_closed(path):
    """Its container is one that the API knows; its flags and paths are those of serve.py."""
    package = path.parents[1]
    deployment, service = yaml.safe_load_all(path.read_text())
    template = deployment["spec"]["template"]
    assert models.IoK8sApiCoreV1PodTemplateSpec.from_dict(template).to_dict() == template
    assert models.IoK8sApiCoreV1Service.from_dict(service).to_dict() == service
    pod, labels = template["spec"], template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    check_hardened(pod)
    (container,) = pod["containers"]
    given = flags(container["command"])
    source = "".join((package / name).read_text() for name in ("serve.py", "server.py", "settings.py"))  # ModelSettings
    assert container["command"][:3] == ["python", "-m", f"{package.name}.serve"]
    assert all(f"    {name.replace('-', '_')}: " in source for name in given)
    assert container["ports"] == [{"name": "http", "containerPort": int(given["port"]), "protocol": "TCP"}]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    for probe, place in {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/health"}.items():
        assert container[probe]["httpGet"] == {"path": place, "port": "http"} and f'"{place}"' in source
    assert [entry["name"] for entry in container["env"]] == ["SERVE_API_KEY"]
    assert int(given["drain-seconds"]) < pod["terminationGracePeriodSeconds"]


def end_of_jobset(found: SimpleNamespace, exit_code: int | None = None, condition: str | None = None) -> str:
    """What Kubernetes does when a pod fails: the first rule of the Job that holds, then the first one of the JobSet."""
    assert found.job["template"]["spec"]["restartPolicy"] == "Never"  # a Job needs it for a podFailurePolicy
    assert found.job["backoffLimit"] == 0
    reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    for index, rule in enumerate(found.job["podFailurePolicy"]["rules"]):
        codes = rule.get("onExitCodes", {"values": [], "operator": "In", "containerName": found.container["name"]})
        assert (codes["operator"], codes["containerName"], rule["action"]) == ("In", found.container["name"], "FailJob")
        conditions = [(pattern["type"], pattern["status"]) for pattern in rule.get("onPodConditions", [])]
        if exit_code in codes["values"] or (condition, "True") in conditions:
            reason, message = "PodFailurePolicy", f"... matching FailJob rule at index {index}"
            break
    for rule in found.jobset["spec"]["failurePolicy"]["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
            return rule["action"]
    return "RestartJobSet"


@each_jobset
def test_a_jobset_tells_exit_codes_apart(path):
    found, codes = read(path), exit_codes(path.parents[1])
    assert found.jobset["spec"]["failurePolicy"]["maxRestarts"] > 0
    ends = {name: end_of_jobset(found, code) for name, code in codes.items()}
    assert ends == {
        "MISTAKE": "FailJobSet",
        "STORAGE": "RestartJobSet",
        "PREEMPTED": "RestartJobSetAndIgnoreMaxRestarts",
        "HUNG": "RestartJobSet",
        "CORRUPT": "FailJobSet",
    }
    assert end_of_jobset(found, condition="DisruptionTarget") == "RestartJobSetAndIgnoreMaxRestarts"
    assert end_of_jobset(found, 1) == end_of_jobset(found, 134) == "RestartJobSet"  # a crash


@each_jobset
def test_a_jobset_asks_for_what_its_mesh_needs(path):
    """Slices are data parallel, and the batch divides over them and what shards it within one."""
    package, found = path.parents[1], read(path)
    given = flags(found.container["command"])
    config = preset(package, given["preset"], given.get("hardware")) | {
        k.replace("-", "_"): v for k, v in given.items()
    }
    nodes, slices = found.job["parallelism"], found.replicated["replicas"]
    if "google.com/tpu" in found.container["resources"]["limits"]:
        chips = math.prod(
            int(size)
            for size in found.job["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")
        )
        assert chips == nodes * found.container["resources"]["limits"]["google.com/tpu"]
        domain = found.jobset["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"]
        assert domain == "cloud.google.com/gke-nodepool"
    else:
        limits = found.container["resources"]["limits"]
        # at two cores a device, a Trainium2 chip has four
        chips = nodes * (limits.get("nvidia.com/gpu") or 4 * limits["aws.amazon.com/neuron"])
        environment = {entry["name"]: entry for entry in found.container["env"]}
        name = found.jobset["metadata"]["name"]
        host, _ = environment["JAX_COORDINATOR_ADDRESS"]["value"].split(":")
        assert host == f"{name}-{found.replicated['name']}-0-0.{name}" and found.jobset["spec"]["network"]
        assert environment["JAX_NUM_PROCESSES"]["value"] == str(nodes) and slices == 1
        index = environment["JAX_PROCESS_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        assert found.job["completionMode"] == "Indexed"  # without it no pod has the annotation
    devices = chips * slices
    axes = ("data", "fsdp", "expert", "tensor")
    sizes = [int(config[f"mesh_{axis}"]) for axis in axes if f"mesh_{axis}" in config]
    sizes = [devices // -math.prod(sizes) if size == -1 else size for size in sizes]
    assert math.prod(sizes) == devices and sizes[0] % slices == 0
    assert int(config["batch_size"]) % (int(config["accumulation"]) * math.prod(sizes[:-1])) == 0


OPTIONS = {  # of sbatch, from its manual page
    "job-name": r"\w+",
    "nodes": r"\d+",
    "ntasks-per-node": "1",  # one process a node
    "gpus-per-node": r"\d+",  # of the GPUs' alone: an instance with Trainium is taken whole
    "cpus-per-task": r"\d+",
    "exclusive": "",
    "signal": r"TERM@\d+",  # to the steps of the job, not to its script, which is B:TERM
    "requeue": "",
    "open-mode": "append",
}


@each_script
def test_options_of_sbatch_are_known(path):
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    options = [line.removeprefix("#SBATCH --").split("  #")[0] for line in lines if line.startswith("#SBATCH")]
    assert not any(line.startswith("#SBATCH") for line in lines[first:])  # sbatch reads none after a command
    for option in options:
        name, _, value = option.partition("=")
        assert re.fullmatch(OPTIONS[name], value), option
    assert len(options) == len(OPTIONS) - ("trainium" in path.parents[1].name)


def run_script(path: Path, folder: Path, code: int, restarts: int) -> tuple[int, list[str]]:
    """The exit code of a script whose srun ends with `code`, and what it called."""
    for name, end in ("srun", code), ("scontrol", 0):
        (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {folder}/calls\nexit {end}\n')
        (folder / name).chmod(0o755)
    (folder / "calls").unlink(missing_ok=True)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-4]"}
    environment |= {"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}
    ended = subprocess.run(["bash", str(path), "--preset", "tiny"], env=environment, capture_output=True, text=True)
    assert not ended.stderr
    return ended.returncode, (folder / "calls").read_text().splitlines()


@each_script
def test_a_script_is_queued_again_where_another_try_is_worth_it(path, tmp_path):
    codes, package = exit_codes(path.parents[1]), path.parents[1].name
    for name, code in {"DONE": 0, **codes, "CRASH": 134}.items():
        for restarts in (0, 10):
            ended, calls = run_script(path, tmp_path, code, restarts)
            calls = [call for call in calls if not call.startswith("scontrol show")]
            assert calls[0].startswith("srun --kill-on-bad-exit=0 --wait=0 "), calls
            assert calls[0].endswith(f"python -m {package}.train --restarts 10 --preset tiny"), calls
            if name == "PREEMPTED" or (name in ("STORAGE", "HUNG", "CRASH") and restarts == 0):
                assert calls[1:] == ["scontrol requeue 7"] and ended == 0, name
            else:
                assert calls[1:] == [] and ended == code, name
