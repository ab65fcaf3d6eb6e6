"""The Llama2-7B step of MaxText, compiled for the chips of benchmarks/programs.py with the same libraries and flags.

python benchmarks/peers/maxtext.py [KEY=VALUE ...] [--hlo FILE]        prints a row of that table

Needs maxtext[tpu] beside what a package needs. Its own recipe for v5p keeps what `remat_policy=minimal` names; here it
also has our packages' attention kernel with one backward kernel, blocks of 1,024, and our mesh. KEY=VALUE replaces
settings; LIBTPU_INIT_ARGS, its own flags.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

SETTINGS = {
    "model_name": "llama2-7b",
    "compile_topology": "v5p-512",
    "compile_topology_num_slices": 1,
    "per_device_batch_size": 4,
    "max_target_length": 4096,
    "remat_policy": "minimal_with_context",
    "ici_data_parallelism": 4,
    "ici_fsdp_parallelism": 64,
    "attention": "flash",
    "sa_use_fused_bwd_kernel": True,
    **{f"sa_block_{x}": 1024 for x in ("q", "kv", "q_dkv", "kv_dkv")},
    "use_iota_embed": True,
    "enable_checkpointing": False,
    "dataset_type": "synthetic",
    "run_name": "peer",
}


def main() -> None:
    sys.path[:1] = [str(Path(__file__).resolve().parents[1])]  # beside this file, maxtext would be this file
    os.environ.update(JAX_PLATFORMS="cpu", TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1")
    os.environ.setdefault("LIBTPU_INIT_ARGS", "--xla_tpu_scoped_vmem_limit_kib=65536")
    import maxtext
    from maxtext.trainers.pre_train import train_compile
    from programs import columns

    arguments = sys.argv[1:]
    hlo = Path(arguments.pop(arguments.index("--hlo") + 1)) if "--hlo" in arguments else None
    given = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    programs, compile_step = [], train_compile.jit_and_compile

    def kept(*args: object, **kwargs: object) -> object:
        programs.append(compile_step(*args, **kwargs))
        return programs[-1]

    train_compile.jit_and_compile = kept
    with tempfile.TemporaryDirectory() as scratch:
        settings = SETTINGS | {"base_output_directory": scratch} | given
        base = Path(maxtext.__file__).parent / "configs" / "base.yml"
        train_compile.main(["", str(base), *(f"{key}={value}" for key, value in settings.items())])
    memory, text = programs[0].memory_analysis(), programs[0].as_text()
    if hlo:
        hlo.write_text(text)
    total = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    total += memory.output_size_in_bytes - memory.alias_size_in_bytes
    cycles, *rest = columns(text)
    print(f"| maxtext {maxtext.__version__} | {total / 2**30:.1f} | {cycles} | | {' | '.join(rest)} |")


if __name__ == "__main__":
    main()
