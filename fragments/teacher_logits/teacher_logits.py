"""The likeliest tokens of a teacher at each place of prepared data, computed once, before training.

Source: Hinton et al. 2015, arXiv 1503.02531, section 2.
"""

import contextlib
import dataclasses
import math
import zlib
from collections.abc import Iterator
from typing import Literal

import numpy as np
import rich.progress
import tyro
from array_record.python.array_record_module import ArrayRecordWriter

from generator.language import requires
from generator.language.roles import HALF, InputError, check_config, ending_with_messages, finish_folder, new_folder

requires("distill/taught", "computed_folder")


def taught_records(row: dict[str, np.ndarray], dtype: np.dtype) -> Iterator[bytes]:
    """Yields the record of each document in a row of a batch."""
    for segment in range(1, row["segment_ids"].max() + 1):
        within = row["segment_ids"] == segment
        record = np.zeros(np.sum(within) + 1, dtype)
        record["token"] = [row["tokens"][within][0], *row["targets"][within]]
        for field, name in ("weight", "weights"), ("top", "top_tokens"), ("logprob", "top_logprobs"):
            record[field][1:] = row[name][within]
        yield record.tobytes()


def write_teacher(
    checkpoint_dir: str,
    data: str,
    out: str,
    top_k: int = 64,
    temperature: float = 1.0,
    batch_size: int = 8,
    sequence_length: int | None = None,
    long_chats: Literal["truncate", "drop", "refuse"] = "truncate",
    tokenizer: str | None = None,
) -> None:
    """Writes documents with the likeliest tokens at each place under the newest checkpoint of a directory.

    A text longer than a sequence becomes several documents, as it does in training.

    Args:
        checkpoint_dir: Directory of the teacher.
        data: Documents, as `data prepare` writes them.
        out: Folder for them, for --data of train.
        top_k: Tokens at each place; each takes 6 bytes, or 8 if the vocabulary has over 65,536.
        temperature: Divides the teacher's logits; train needs the same as --distill-temperature.
        batch_size: Sequences at a time.
        sequence_length: Tokens in a sequence, as in training; by default as many as the teacher was trained on.
        long_chats: What becomes of chats longer than a sequence, as --long-chats of train.
        tokenizer: Path of a tokenizer.json; by default the one of the teacher's training.
    """
    import jax

    from generator.language.roles import (
        abstract_batch,
        evaluation_batches,
        load_checkpoint,
        load_tokenizer,
        make_mesh,
        read_description,
        taught_type,
        token_type,
        top_logprobs,
    )

    description = read_description(data)
    if not description or {"pairs", "top_k"} & description.keys():
        raise InputError(f"--data {data}: must be texts or chats that `data prepare` wrote")
    folder = new_folder(out)
    mesh = make_mesh(1, -1, 1)
    saved, model = load_checkpoint(checkpoint_dir, mesh)
    changed = {"eval_data": data, "batch_size": batch_size, "accumulation": 1, "long_chats": long_chats}
    changed |= {"sequence_length": saved.sequence_length if sequence_length is None else sequence_length}
    changed |= {"tokenizer": tokenizer or saved.tokenizer}
    changed |= {"loss_on": description["chat"]["loss_on"]} if "chat" in description else {}
    parses_special = description["tokenizer"]["parses_special"]
    config = dataclasses.replace(saved, **changed, special_tokens=parses_special, objective="next_token")
    check_config(config)
    layout = {name: x.sharding for name, x in abstract_batch(config, mesh).items()}
    loaded = load_tokenizer(config.tokenizer, config.special_tokens)
    known = min(loaded.vocab_size, config.vocab_size)  # further rows of a vocabulary are padding, in each model another
    if not (0 < top_k <= known and 0 < temperature < math.inf):
        limits = f"must be from 1 to the tokenizer's {known:,} tokens, and a number above 0"
        raise InputError(f"--top-k {top_k} --temperature {temperature}: {limits}")
    dtype = taught_type(token_type(loaded), top_k)
    count = 0
    digest = 0
    with contextlib.closing(ArrayRecordWriter(str(folder / HALF), "group_size:1")) as writer, jax.set_mesh(mesh):
        find_top = jax.jit(lambda model, batch: top_logprobs(model, batch, top_k, known, temperature, config))
        for batch in rich.progress.track(evaluation_batches(config), "batches"):
            top = find_top(model, jax.device_put(batch, layout))
            batch["top_tokens"], batch["top_logprobs"] = map(np.asarray, top)
            for i in range(batch_size):
                for record in taught_records({name: rows[i] for name, rows in batch.items()}, dtype):
                    writer.write(record)
                    count += 1
                    digest = zlib.crc32(record, digest)
    description |= {"teacher": checkpoint_dir, "top_k": top_k, "temperature": temperature}
    finish_folder(folder, f"tokens-{digest:08x}", count, description)
    print(f"{count:,} documents: train with --data {out} --objective distill --distill-temperature {temperature}")


@ending_with_messages()
def main() -> None:
    tyro.cli(write_teacher, prog=f"python -m {__package__}.teacher_logits")


if __name__ == "__main__":
    main()
