"""Log-likelihoods of pairs under a reference, computed once, before training.

Source: Rafailov et al. 2023, arXiv 2305.18290, section 4.
"""

import contextlib
import dataclasses
import zlib
from collections.abc import Iterator
from typing import Literal

import numpy as np
import rich.progress
import tyro
from array_record.python.array_record_module import ArrayRecordWriter

from generator.language import requires
from generator.language.roles import HALF, InputError, check_config, ending_with_messages, finish_folder, new_folder

requires("data/pairs", "computed_folder")


def pair_records(row: dict[str, np.ndarray], dtype: np.dtype) -> Iterator[bytes]:
    """Yields the records of the pairs in a row of a batch."""
    for first in range(1, row["segment_ids"].max() + 1, 2):
        parts = []
        for segment in first, first + 1:
            within = row["segment_ids"] == segment
            part = np.zeros(np.sum(within) + 1, dtype)
            part["token"] = [row["tokens"][within][0], *row["targets"][within]]
            part["answer"] = row["answers"][within][0]
            part["weight"][1:], part["reference"][1:] = row["weights"][within], row["reference"][within]
            parts.append(part)
        yield np.concatenate(parts).tobytes()


def write_reference(
    checkpoint_dir: str,
    data: str,
    out: str,
    batch_size: int = 8,
    sequence_length: int | None = None,
    long_chats: Literal["truncate", "drop", "refuse"] = "truncate",
    tokenizer: str | None = None,
) -> None:
    """Writes pairs with the log-likelihood of each token under the newest checkpoint of a directory.

    Args:
        checkpoint_dir: Directory of the reference, most often of the weights that training starts from.
        data: Pairs, as `data prepare` writes them.
        out: Folder for them, for --data of train.
        batch_size: Sequences at a time.
        sequence_length: Tokens in a sequence; by default as many as the reference was trained on.
        long_chats: What becomes of pairs longer than a sequence, as --long-chats of train.
        tokenizer: Path of a tokenizer.json; by default the one of training.
    """
    import jax

    from generator.language.roles import (
        PAIR,
        abstract_batch,
        evaluation_batches,
        load_checkpoint,
        load_tokenizer,
        make_mesh,
        read_description,
        target_log_likelihoods,
        token_type,
    )

    description = read_description(data)
    if not description or "pairs" not in description:
        raise InputError(f"--data {data}: must be pairs, or completions with a label, that `data prepare` wrote")
    folder = new_folder(out)
    mesh = make_mesh(1, -1, 1)
    saved, model = load_checkpoint(checkpoint_dir, mesh)
    changed = {"eval_data": data, "batch_size": batch_size, "accumulation": 1, "long_chats": long_chats}
    changed |= {"sequence_length": saved.sequence_length if sequence_length is None else sequence_length}
    changed |= {"tokenizer": tokenizer or saved.tokenizer}
    changed |= {"loss_on": description["chat"]["loss_on"], "special_tokens": description["tokenizer"]["parses_special"]}
    config = dataclasses.replace(saved, **changed, objective="reference")
    check_config(config)
    layout = {name: x.sharding for name, x in abstract_batch(config, mesh).items()}
    token = token_type(load_tokenizer(config.tokenizer, config.special_tokens))
    dtype = np.dtype([("token", token), *PAIR.descr[1:]])
    count = 0
    digest = 0
    with contextlib.closing(ArrayRecordWriter(str(folder / HALF), "group_size:1")) as writer, jax.set_mesh(mesh):
        score_batch = jax.jit(lambda model, batch: target_log_likelihoods(model, batch, config))
        for batch in rich.progress.track(evaluation_batches(config), "batches"):
            batch["reference"] = np.asarray(score_batch(model, jax.device_put(batch, layout)))
            for i in range(batch_size):
                for record in pair_records({name: rows[i] for name, rows in batch.items()}, dtype):
                    writer.write(record)
                    count += 1
                    digest = zlib.crc32(record, digest)
    if not count:
        raise InputError(f"--data {data}: no pair is left: give a longer --sequence-length, or other --long-chats")
    finish_folder(folder, f"tokens-{digest:08x}", count, description | {"reference": checkpoint_dir})
    objectives = "kto" if "labels" in description else "dpo, dpo_norm or ipo"
    print(
        f"{count:,} {'rows' if 'labels' in description else 'pairs'}: train with --data {out} --objective {objectives}"
    )


@ending_with_messages()
def main() -> None:
    tyro.cli(write_reference, prog=f"python -m {__package__}.reference")


if __name__ == "__main__":
    main()
