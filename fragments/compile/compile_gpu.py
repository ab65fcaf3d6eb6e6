"""GPUs that are not here, for compilation."""

import dataclasses

import jax
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax.experimental import topologies

from generator.language import requires, splice
from generator.language.roles import CHIPS, HARDWARE, Config, InputError, make_mesh

requires("compile", "flags_gpu")

NODE = 8  # GPUs that NVLink joins

DESCRIPTION = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: {shared} shared_memory_per_block_optin: {optin}
  core_count: {cores} fpus_per_core: {fpus} clock_rate_ghz: {clock_ghz} l2_cache_size: {cache}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: {bandwidth} device_memory_size: {memory} cuda_compute_capability {{ major: {capability} }}
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 8 }} device_description_str: "{kind}"
"""


def topology_mesh(config: Config, chip: str, devices: int) -> jax.sharding.Mesh:
    """Returns the mesh of so many GPUs, in nodes of 8: of descriptions that only a compiler can use."""
    if chip not in CHIPS or devices < 1 or (devices > NODE and devices % NODE):
        choices = f"{', '.join(CHIPS)}, and at most {NODE} devices or a multiple of {NODE}"
        raise InputError(f"--chip {chip} --devices {devices}: there is no such machine: give {choices}")
    values = CHIPS[chip]
    text = DESCRIPTION.format(
        kind=values.kinds[0],
        capability=values.capability,
        cores=values.cores,
        fpus=values.fpus,
        clock_ghz=values.clock_ghz,
        shared=values.shared_kib * 1024,
        optin=(values.shared_kib - 1) * 1024,
        cache=values.l2_mib * 2**20,
        memory=values.memory_gib * 2**30,
        bandwidth=int(values.bandwidth),
    )
    shape = f"1x{max(devices // NODE, 1)}x{min(devices, NODE)}"  # slices, nodes, devices of a node
    try:
        described = topologies.get_topology_desc(shape, "cuda", target_config=text, topology=shape)
    except Exception as error:  # from the plugin, or because it is not installed
        raise InputError(f"--chip {chip}: pip install 'jax[cuda12]', which needs no GPU: {error}") from None
    # JAX asks the GPU that is here for these
    jax.devices = lambda *_: described.devices  # of which a kernel for Hopper asks how many cores they have
    cudnn.check_cudnn_version = lambda: 90_800
    cudnn.check_compute_capability = lambda choices: values.capability >= float(choices)
    cudnn.is_cuda_compute_capability_equal = lambda choices: values.capability == float(choices)
    return make_mesh(config.mesh_data, config.mesh_fsdp, config.mesh_tensor, list(described.devices))


@splice("Chip.fields")
def _():
    bandwidth: float  # of its memory, bytes a second
    memory_gib: int
    capability: int  # CUDA's, its major number
    cores: int  # streaming multiprocessors
    shared_kib: int  # shared memory of a core
    l2_mib: int
    clock_ghz: float
    fpus: int  # of a core


@splice("CompileCommand.devices")
def _():
    chip: str = "h100"  # kind of GPU
    devices: int = NODE  # GPUs


@splice("compile.main")
def _(jax):
    jax.config.update("jax_platforms", "cpu")  # a GPU that is here has no part in it


@splice("compile.hardware")
def _(first_pass, default):
    machine = HARDWARE[first_pass.hardware]
    default = dataclasses.replace(default, chip=machine.topology, devices=machine.devices)


@splice("compile.mesh")
def _(command, config, chip, mesh):
    chip = command.chip
    mesh = topology_mesh(config, chip, command.devices)
