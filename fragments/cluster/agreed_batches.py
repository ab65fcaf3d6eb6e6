"""Processes agree on what they read of the data."""

from generator.language import excludes, splice
from generator.language.roles import Batches, fingerprint, held_out_batches, on_all_processes, require_equal

excludes("sources")


@splice("train.data")
def _(config, batches, data, held_out):
    data = on_all_processes(lambda: Batches(config, batches["tokens"].sharding))
    require_equal("data", [fingerprint(config.data), fingerprint(config.eval_data or config.data)])
    held_out = on_all_processes(lambda: held_out_batches(config, data.rows))
