"""Rewards of texts, chats and pairs by a reward model."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import rich.progress
import tyro

from generator.language import requires
from generator.language.roles import PAIR, Config, InputError, check_config, ending_with_messages, join_pieces

requires("reward_head", "chats/pairs")

ROWS_AT_A_TIME = 1000  # that are read before they are rewarded


def answers_of(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the tokens [n] of what is rewarded, by name: of a pair both answers, else the text or chat."""
    if tokens.dtype == PAIR and tokens["answer"][0] == 1:
        return {name: tokens["token"][tokens["answer"] == i] for i, name in enumerate(("chosen", "rejected"), 1)}
    return {"reward": tokens if tokens.dtype.names is None else tokens["token"]}


def batches_of(answers: Sequence[np.ndarray], config: Config) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches that hold answers, each of at most a sequence, in their order, with a weight on last tokens."""
    length, size = config.sequence_length, config.batch_size
    rows: list[list[dict[str, np.ndarray]]] = []
    used = length
    for answer in answers:
        if used + len(answer) > length:
            rows.append([])
            used = 0
        weights = np.zeros(len(answer), np.float32)
        weights[-1] = 1
        rows[-1].append({"tokens": answer, "targets": answer, "weights": weights})
        used += len(answer)
    for first in range(0, len(rows), size):
        joined = [join_pieces(row, length) for row in rows[first : first + size]]
        padding = [{name: np.zeros_like(x) for name, x in joined[0].items()}] * (size - len(joined))
        yield {name: np.stack([row[name] for row in joined + padding]) for name in joined[0]}


def write_scores(
    checkpoint_dir: str, data: str, out: str, batch_size: int = 8, sequence_length: int | None = None
) -> None:
    """Writes the rewards of rows: a line of JSON for each, {"reward": 0.5} or {"chosen": 1.5, "rejected": -0.5}.

    Args:
        checkpoint_dir: Directory of a reward model, whose newest checkpoint is taken.
        data: Texts, chats or pairs, in files as --data of train.
        out: File for them.
        batch_size: Sequences at a time; texts share one.
        sequence_length: Tokens in a sequence, by default as many as in training; a longer text has no reward: null.
    """
    import jax

    from generator.language.roles import (
        Chats,
        abstract_batch,
        batch_rewards,
        load_checkpoint,
        load_tokenizer,
        make_mesh,
        open_documents,
    )

    mesh = make_mesh(1, -1, 1)
    saved, model = load_checkpoint(checkpoint_dir, mesh)
    length = saved.sequence_length if sequence_length is None else sequence_length
    changed = {"batch_size": batch_size, "accumulation": 1, "sequence_length": length, "objective": "reward"}
    config = dataclasses.replace(saved, **changed)
    check_config(config)
    layout = {name: x.sharding for name, x in abstract_batch(config, mesh).items()}
    chats = Chats(load_tokenizer(config.tokenizer, config.special_tokens), config.tokenizer, config.loss_on)
    documents, _ = open_documents(data, config.text_field)
    path = Path(out).expanduser()
    if path.exists():
        raise InputError(f"--out {out}: already exists: give a new file")
    compute = jax.jit(batch_rewards)
    half = path.with_name(f"{path.name}.half")
    with jax.set_mesh(mesh), open(half, "w") as file:
        for first in rich.progress.track(range(0, len(documents), ROWS_AT_A_TIME), "rows"):
            last = min(first + ROWS_AT_A_TIME, len(documents))
            rows = [answers_of(chats(documents[i])) for i in range(first, last)]
            fitting = [answer for row in rows for answer in row.values() if len(answer) <= length]
            rewards = [
                reward
                for batch in batches_of(fitting, config)
                for reward in np.asarray(compute(model, jax.device_put(batch, layout)))[batch["weights"] > 0].tolist()
            ]
            in_order = iter(rewards)
            for row in rows:
                line = {name: next(in_order) if len(answer) <= length else None for name, answer in row.items()}
                file.write(json.dumps(line) + "\n")
    half.rename(path)
    print(f"{out}: rewards of {len(documents):,} rows")


@ending_with_messages()
def main() -> None:
    tyro.cli(write_scores, prog=f"python -m {__package__}.score")


if __name__ == "__main__":
    main()
