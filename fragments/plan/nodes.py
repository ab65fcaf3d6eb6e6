"""Nodes of GPUs that a plan is for."""

from generator.language.roles import CHIPS, HARDWARE, NODE, InputError

DEFAULT_MACHINE = "h100"


def machine(hardware: str, devices: int) -> tuple[str, float, list[tuple[int, ...]], list[str]]:
    """Returns the kind of GPU, the bytes of one, the places of all, and the flags of compile that say so."""
    if hardware in HARDWARE:
        devices = devices or HARDWARE[hardware].devices
        hardware = HARDWARE[hardware].topology
    count = devices or NODE
    if hardware not in CHIPS or not 1 <= count <= 100_000 or (count > NODE and count % NODE):
        choices = f"{', '.join([*HARDWARE, *CHIPS])}, and at most {NODE} devices or a multiple of {NODE} up to 100,000"
        raise InputError(f"--hardware {hardware} --devices {devices}: there is no such machine: give {choices}")
    memory = CHIPS[hardware].usable_gib * 2**30
    flags = ["--chip", hardware, "--devices", str(count)]
    return hardware, memory, [(number // NODE, number) for number in range(count)], flags
