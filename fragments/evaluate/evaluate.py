"""Evaluation of a checkpoint on documents."""

import dataclasses
import itertools
import math

import tyro

from generator.language import point
from generator.language.roles import InputError, check_config, ending_with_messages


def evaluate(
    checkpoint_dir: str, data: str, batch_size: int = 8, batches: int | None = None, tokenizer: str | None = None
) -> dict[str, float]:
    """Evaluates the newest checkpoint of a directory on all documents of a source, packed as in training.

    Returns the mean loss per token (nats), its perplexity, bits per byte of text, and the number of tokens, of which
    some end a text: programs that leave these out, as that of transformers' perplexity does, have other numbers.

    Args:
        data: Documents, as --data of train.
        batch_size: Sequences at a time, each as long as in training.
        batches: At most this many batches; by default all.
        tokenizer: Path of a tokenizer.json; by default the one of training.
    """
    import jax
    import numpy as np

    from generator.language.roles import (
        abstract_batch,
        evaluation_batches,
        has_text,
        load_checkpoint,
        load_tokenizer,
        loss,
        make_mesh,
        token_bytes,
    )

    if batches is not None and batches < 1:
        raise InputError(f"--batches {batches}: must be at least 1")
    mesh = make_mesh(1, -1, 1)
    saved, model = load_checkpoint(checkpoint_dir, mesh)
    changed = {"eval_data": data, "batch_size": batch_size, "accumulation": 1}
    point("evaluate.changed", changed)
    config = dataclasses.replace(saved, **changed, tokenizer=tokenizer or saved.tokenizer)
    check_config(config)
    layout = {name: x.sharding for name, x in abstract_batch(config, mesh).items()}
    reader = load_tokenizer(config.tokenizer)
    lengths = np.array([has_text(reader, i) and len(token_bytes(reader, i)) for i in range(config.vocab_size)])
    nats = tokens = ends = text_bytes = 0.0
    with jax.set_mesh(mesh):
        sum_batch = jax.jit(lambda model, batch: loss(model, batch, config)[1])
        for batch in itertools.islice(evaluation_batches(config), batches):
            sums = sum_batch(model, jax.device_put(batch, layout))
            nats, tokens = nats + float(sums["cross_entropy"]), tokens + float(sums["targets"])
            ends += float(np.sum((batch["targets"] == reader.eos) * batch["weights"]))
            text_bytes += float(np.sum(lengths[batch["targets"]] * batch["weights"]))
    if not text_bytes:
        raise InputError(f"--data {data}: there is no text to evaluate on: give more, or more --batches")
    mean = nats / tokens
    bits = nats / math.log(2) / text_bytes
    losses = {"loss": mean, "perplexity": math.exp(min(mean, 700)), "bits_per_byte": bits}
    return losses | {"tokens": tokens, "of_which_end_a_text": ends}


@ending_with_messages()
def main() -> None:
    for name, value in tyro.cli(evaluate, prog=f"python -m {__package__}.evaluate").items():
        print(f"{name}: {value:.6g}")


if __name__ == "__main__":
    main()
