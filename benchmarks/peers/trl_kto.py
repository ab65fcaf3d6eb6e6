"""The loss and the KL of rows with a label by TRL's KTOTrainer, to compare with those of a package.

python benchmarks/peers/trl_kto.py POLICY REFERENCE ROWS.jsonl [BETA] [DESIRABLE_WEIGHT] [UNDESIRABLE_WEIGHT]

Needs trl. POLICY and REFERENCE are folders of transformers, ROWS rows as docs/preferences.md has them. They are one
batch, as they are for a package whose --batch-size and --sequence-length hold all of them without --accumulation.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import transformers
import trl
from datasets import load_dataset


def main() -> None:
    policy, reference, rows, *numbers = sys.argv[1:]
    models = [transformers.AutoModelForCausalLM.from_pretrained(x, dtype=torch.float32) for x in (policy, reference)]
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(policy)
    tokenizer.pad_token = tokenizer.eos_token
    data = load_dataset("json", data_files=rows, split="train")
    names = "beta", "desirable_weight", "undesirable_weight"
    with tempfile.TemporaryDirectory() as folder:
        shared = dict(zip(names, map(float, numbers), strict=False)) | dict(output_dir=folder, max_length=None)
        shared |= dict(per_device_train_batch_size=len(data), per_device_eval_batch_size=len(data))
        config = trl.KTOConfig(**shared, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True)
        datasets = dict(train_dataset=data, eval_dataset=data, processing_class=tokenizer)
        found = trl.KTOTrainer(*models, config, **datasets).evaluate()
    print(*(f"{name} {found[f'eval_{name}']:.6f}" for name in ("loss", "kl")))


if __name__ == "__main__":
    main()
