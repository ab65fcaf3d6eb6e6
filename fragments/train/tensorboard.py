"""TensorBoard events of a run, beside metrics.jsonl."""

import jax
from tensorboardX import SummaryWriter

from generator.language import splice
from generator.language.roles import may_fail


def log_metrics(events: SummaryWriter, step: int, values: dict[str, float]) -> None:
    """Logs all metrics of a run, in process 0: the place to send them elsewhere.

    Weights & Biases: `wandb.run or wandb.init(project="mine")`, and `wandb.log(values, step)`.
    """
    for name, value in values.items():
        events.add_scalar(name, value, step)


@splice("Monitor.parameters")
def _(self, step):
    self.events = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step + 1)


@splice("Monitor.recorded")
def _(self, step, values):
    if jax.process_index() == 0:
        with may_fail("log_metrics", self.failed):
            log_metrics(self.events, step, values)


@splice("Monitor.restart_clock")
def _(self):
    with may_fail("TensorBoard events", self.failed):
        self.events.flush()


@splice("Monitor.close")
def _(self):
    with may_fail("TensorBoard events", self.failed):
        self.events.close()
