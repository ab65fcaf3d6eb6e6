"""Which model to serve."""

import dataclasses
from typing import Literal

from generator.language import point


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which model to serve, and how."""

    checkpoint_dir: str = ""  # of the training run
    hf: str = ""  # the Hugging Face directory
    tokenizer: str = ""  # path of a tokenizer.json, or bytes; "": the model's own
    dtype: Literal["float32", "bfloat16"] | None = None  # of the computation; default: that of training
    mesh_tensor: int = 1  # tensor parallelism: devices that split heads and feed-forwards
    point("ModelSettings.fields")
