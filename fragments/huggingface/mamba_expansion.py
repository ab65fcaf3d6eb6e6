"""The width of a state space in config.json: a multiple of the model's."""

from generator.language import splice


@splice("check_config.together")
def _(config, problems):
    width = config.mamba_heads * config.mamba_head_size
    if width % config.width:
        problems.append(
            f"--mamba-heads {config.mamba_heads}: times --mamba-head-size, {width} in all, must be a multiple of "
            f"--width, {config.width}"
        )
