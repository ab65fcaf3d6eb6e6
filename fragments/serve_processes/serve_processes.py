"""An engine over several processes: process 0 answers and schedules, the others run the steps that it tells them.

Source: Barham et al. 2022, arXiv 2203.12533, section 2 (multi-controller: each process starts the same programs).
"""

import atexit
import contextlib
import hmac
import os
import pickle
import secrets
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AxisType, Mesh, Sharding

from generator.language import proceed, requires, splice
from generator.language.roles import InputError, agree, join_job, make_mesh, require_equal, shard

requires("serve/serve", "generate/generate", "cluster/agreement")

WAIT = 60  # seconds for all processes to connect, once each has its part of the model


def mesh_over_processes(tensor: int, devices: list[jax.Device]) -> Mesh:
    """Returns the mesh of all devices for tensor parallelism. It may cross GPU nodes: the model may fit none."""
    if tensor != len(devices):
        raise InputError(
            f"--mesh-tensor {tensor}: "
            f"{jax.process_count()} processes have {len(devices)} devices, and each takes part: give {len(devices)}"
        )
    axes = make_mesh(1, 1, 1, devices[:1]).axis_names
    sizes = [tensor if axis == "tensor" else 1 for axis in axes]
    try:
        grid = create_device_mesh(sizes, devices=devices, allow_split_physical_axes=True)
    except (NotImplementedError, ValueError, AssertionError) as error:
        raise InputError(
            f"--mesh-tensor {tensor}: "
            f"devices of {jax.process_count()} processes are no line of a network: start fewer: {error}"
        ) from None
    return Mesh(grid, axes, axis_types=(AxisType.Auto,) * len(axes))


def place(value: Any, sharding: Sharding) -> Any:
    """Copies to each device of this process its part: `device_put` would send all of it to each, and compare."""
    return jax.tree.map(lambda x: jax.make_array_from_callback(x.shape, sharding, x.__getitem__), value)


def on_each_device(tree: Any) -> Any:
    def gathered(x: Array) -> Array:
        return shard(x, *[None] * x.ndim)

    return jax.tree.map(gathered, tree)


def own_address() -> str:
    """Returns an address of process 0 for the others: that of the job, else of the interface to other networks."""
    if address := os.environ.get("JAX_COORDINATOR_ADDRESS"):
        return address.rpartition(":")[0].strip("[]")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return probe.getsockname()[0]


def connect() -> list[socket.socket]:
    """Connects process 0 with all others; returns its connections to them, or in each of them the one to it.

    Process 0 reads nothing from them but a secret that only processes of the job know.
    """
    is_first = jax.process_index() == 0
    line = ""
    if is_first:
        address = own_address()
        server = socket.create_server(("", 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        server.settimeout(WAIT)
        line = f"{address} {server.getsockname()[1]} {secrets.token_hex(16)}"
    agreed = multihost_utils.broadcast_one_to_all(np.frombuffer(line.ljust(512).encode(), np.uint8))
    address, port, secret = bytes(agreed).decode().split()
    if not is_first:
        leader = socket.create_connection((address, int(port)), WAIT)
        leader.settimeout(None)
        leader.sendall(secret.encode())
        return [leader]
    followers = list[socket.socket]()
    while len(followers) < jax.process_count() - 1:
        follower, _ = server.accept()
        follower.settimeout(5)
        with contextlib.suppress(OSError):  # whoever else connects may say nothing
            if hmac.compare_digest(follower.recv(len(secret), socket.MSG_WAITALL), secret.encode()):
                follower.settimeout(None)
                follower.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # steps are small, and cannot wait
                followers.append(follower)
    server.close()
    return followers


def send_call(followers: list[socket.socket], *call: Any) -> None:
    """Tells the others to call a method of their Device with these arguments; without any, to end."""
    message = pickle.dumps(call) if followers else b""
    for follower in followers:
        follower.sendall(message)


def end(followers: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):  # those that are not told see that process 0 is gone
        send_call(followers)


def any_gone(followers: list[socket.socket]) -> bool:
    """Returns whether one of the others has ended; they say nothing while they live."""
    return bool(select.select(followers, [], [], 0)[0])


def follow(leader: socket.socket, run: Callable[..., object], write: Callable[..., object]) -> NoReturn:
    """Calls the methods of a Device as process 0 does, until it says to end: then the program ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # often sent to all processes: process 0 finishes its answers
        signal.signal(number, signal.SIG_IGN)
    try:
        calls = leader.makefile("rb")
        while call := pickle.load(calls):
            name, *arguments = call
            if name == "run":
                run(*arguments)
            else:
                write(*arguments)
    except Exception as error:
        why = "it is gone" if isinstance(error, (EOFError, ConnectionError)) else error
        print(f"error: process {jax.process_index()} cannot follow process 0: {why}", file=sys.stderr, flush=True)
        os._exit(1)  # at once, as process 0 waits for this one; JAX would wait for it
    sys.exit(0)


def lead_or_follow(mesh: Mesh | None, run: Callable[..., object], write: Callable[..., object]) -> list[socket.socket]:
    """Returns the connections of process 0 to the others, for `send_call`; does not return in these."""
    if mesh is None or not mesh.is_multi_process:  # each process may have an engine of its own
        return []
    connections = connect()
    if jax.process_index() > 0:
        follow(*connections, run, write)
    atexit.register(end, connections)
    return connections


@splice("serve.start")
def _(settings):
    join_job()
    require_equal("settings", settings)


@splice("generate.start")
def _(settings):
    from generator.language.roles import join_job, require_equal

    join_job()
    require_equal("settings", settings)


@splice("load_to_serve.mesh")
def _(devices, tensor, mesh):
    if jax.process_count() == 1:
        proceed()
    else:
        mesh = mesh_over_processes(tensor, devices)


@splice("load_to_serve.place")
def _(p, value):
    if jax.process_count() > 1:
        value = place(value, p.get_value().sharding)


@splice("Engine.pages")
def _(pages):
    pages = -agree(-pages)  # the fewest that fit anywhere


@splice("run.output")
def _(scores, following, top):
    scores, following, top = on_each_device((scores, following, top))  # for process 0 to read


@splice("Device.made")
def _(self):
    self.followers: list[socket.socket] = []  # in process 0: the others, which run its steps too


@splice("Device.write")
def _(self, slot, sequence, biases):
    send_call(self.followers, "write", slot, sequence, biases)


@splice("Device.run")
def _(self, step, length, score_all):
    send_call(self.followers, "run", step, length, score_all)


@splice("begin_with_few.few", optional=True)
def _(device, steps):
    if device.followers:
        steps = []  # all compile the same, by running it
    else:
        proceed()


@splice("Engine.made")
def _(self):
    self.device.followers = lead_or_follow(self.device.mesh, self.device.run, self.device.write)


@splice("serve.listen")
def _(listener):
    if jax.process_index() == 0:
        proceed()


@splice("EngineThread.watch")
def _(self):
    if not self.failed and any_gone(self.engine.device.followers):
        print("error: a process of the job has ended: start all of them again", file=sys.stderr)
        self.fail()


@splice("serve.ended")
def _(engine, thread):
    if thread.failed and any_gone(engine.device.followers):
        sys.stdout.flush()
        os._exit(1)  # JAX would wait for the process that is gone
