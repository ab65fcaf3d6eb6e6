"""A progress bar, if the run has a terminal."""

import sys

from rich.progress import BarColumn, Progress, TimeRemainingColumn

from generator.language import proceed, splice
from generator.language.roles import may_fail


@splice("Monitor.parameters")
def _(self, step, config):
    columns = "{task.completed}/{task.total}", BarColumn(None), "{task.description}", "ETA", TimeRemainingColumn()
    self.progress = Progress(*columns, expand=True, disable=not sys.stdout.isatty())
    self.task = self.progress.add_task("", completed=step, total=config.steps)
    self.progress.start()


@splice("Monitor.show")
def _(self, step, text):
    self.progress.update(self.task, completed=step, description=text)
    if self.progress.disable:
        proceed()


@splice("Monitor.close")
def _(self):
    with may_fail("progress", self.failed):
        self.progress.stop()
