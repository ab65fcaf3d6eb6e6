"""A compiled step with tensors and state in host memory."""

import re

import pytest

from generator.language import requires
from generator.language.roles import PACKAGE, SMALL, run_python

requires("host_state", "compile_tpu")


def test_what_is_in_host_memory_takes_none_of_the_device():
    pytest.importorskip("libtpu", reason="needs libtpu: pip install '.[tpu]'")
    sizes = f"--layers {SMALL.layers} --batch-per-device 1 --mesh-data 1 --mesh-fsdp -1 --topology v5e:2x2"
    flags = "--remat full --offload input,optimizer,parameters"
    process = run_python("-m", f"{PACKAGE.name}.compile", *sizes.split(), *flags.split())
    assert process.returncode == 0, process.stderr
    [arguments] = re.findall(r"bytes per device: arguments ([\d,]+)", process.stdout)
    [host] = re.findall(r"bytes in host memory per device: state ([\d,]+), tensors ([\d,]+)", process.stdout)
    kept, sent = (int(x.replace(",", "")) for x in host)
    assert kept > 20 * int(arguments.replace(",", "")) and sent > 0  # what is left is the batch, and scalars
