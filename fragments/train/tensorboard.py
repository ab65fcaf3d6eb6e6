"""TensorBoard events of a run, beside metrics.jsonl."""

from tensorboardX import SummaryWriter

from generator.language import splice
from generator.language.roles import may_fail


@splice("Monitor.parameters")
def _(self, step):
    self.events = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step + 1)


@splice("Monitor.logged")
def _(self, step, metrics):
    with may_fail("TensorBoard events", self.failed):
        for name, value in metrics.items():
            self.events.add_scalar(name, value, step)


@splice("Monitor.restart_clock")
def _(self):
    with may_fail("TensorBoard events", self.failed):
        self.events.flush()


@splice("Monitor.close")
def _(self):
    with may_fail("TensorBoard events", self.failed):
        self.events.close()
