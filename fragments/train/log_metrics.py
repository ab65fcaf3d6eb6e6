"""Where the metrics of a run go."""

from tensorboardX import SummaryWriter


def log_metrics(events: SummaryWriter, step: int, values: dict[str, float]) -> None:
    """Takes all metrics of a run, in process 0, beside metrics.jsonl: the place to send them elsewhere.

    Weights & Biases: `wandb.run or wandb.init(project="mine")`, and `wandb.log(values, step)`.
    """
    for name, value in values.items():
        events.add_scalar(name, value, step)
