"""Programs that use this package, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def run_python(*arguments: str, devices: int = 1) -> subprocess.CompletedProcess:
    """Python with these arguments, beside the package, where the host's processor is this many devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PACKAGE.parent,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
