"""Losses, margins and accuracies of pairs by TRL's DPOTrainer, to compare with those of a package.

python benchmarks/peers/trl_dpo.py POLICY REFERENCE PAIRS.jsonl [BETA]

Needs trl. POLICY and REFERENCE are folders of transformers, PAIRS rows as docs/preferences.md has them. Its loss types
sigmoid, sigmoid_norm and ipo are our objectives dpo, dpo_norm and ipo. A package prints its own figures by
`python -m PACKAGE.train --data OUT --eval-data OUT --eval-first`, as eval/loss and so on in metrics.jsonl, at step 0.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import transformers
import trl
from datasets import load_dataset


def main() -> None:
    policy, reference, pairs, *beta = sys.argv[1:]
    models = [transformers.AutoModelForCausalLM.from_pretrained(x, dtype=torch.float32) for x in (policy, reference)]
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(policy)
    data = load_dataset("json", data_files=pairs, split="train")
    for loss in "sigmoid", "sigmoid_norm", "ipo":
        with tempfile.TemporaryDirectory() as folder:
            shared = dict(output_dir=folder, loss_type=loss, beta=float(*beta or ["0.1"]), max_length=None)
            shared |= dict(per_device_eval_batch_size=1)  # of which its means are means over pairs
            config = trl.DPOConfig(**shared, use_cpu=True, bf16=False, report_to="none", disable_tqdm=True)
            datasets = dict(train_dataset=data, eval_dataset=data, processing_class=tokenizer)
            found = trl.DPOTrainer(*models, config, **datasets).evaluate()
        names = "loss", "rewards/accuracies", "rewards/margins"
        print(loss, *(f"{name} {found[f'eval_{name}']:.6f}" for name in names))


if __name__ == "__main__":
    main()
