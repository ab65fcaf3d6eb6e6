"""Checkpoints of reward models, as those of transformers for sequence classification with one label."""

import re

import numpy as np

from generator.language import requires, splice
from generator.language.roles import hf_tensors

requires("reward_head")


class NewHead:
    """The tensor [1, D] of a head that rewards nothing yet, for a checkpoint of a language model."""

    def __init__(self, width: int):
        self.width = width

    def get_dtype(self) -> str:
        return "F32"

    def get_shape(self) -> list[int]:
        return [1, self.width]

    def __getitem__(self, everything) -> np.ndarray:
        return np.zeros((1, self.width), np.float32)


@splice("hf.tensors")
def _():
    yield "score", "score.weight", "d r -> r d"


@splice("load_hf.tensors", before="embedding")
def _(config, tensors):
    head = {path: name for path, name, _ in hf_tensors()}.get("embedding.head", "lm_head.weight")
    tensors.pop(head, None)
    tensors.setdefault("score.weight", NewHead(config.width))


@splice("hf.export")
def _(hf):
    ends = "For(CausalLM|ConditionalGeneration)$|LMHeadModel$"
    classifier = re.sub(ends, "ForSequenceClassification", *hf["architectures"])
    hf |= {"architectures": [classifier], "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
