"""Processes agree on what they read of the data, whatever the objective."""

from generator.language import requires, splice
from generator.language.roles import fingerprint, on_all_processes, require_equal

requires("sources")


@splice("open_data.open")
def _(source, config, sharding, data, held_out):
    data = on_all_processes(lambda: source(config, sharding))
    require_equal("data", [fingerprint(config.data), fingerprint(config.eval_data or config.data)])
    held_out = on_all_processes(data.held_out)
