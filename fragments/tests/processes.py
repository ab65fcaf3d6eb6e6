"""Programs that use this package, in separate processes."""

import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def run_python(*arguments: str, devices: int = 1) -> subprocess.CompletedProcess:
    """Runs Python with these arguments, in the package's parent folder, with this many CPU devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PACKAGE.parent,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
