"""Comparisons with a model of transformers, by the names and layouts of its checkpoints."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from generator.language.roles import Config, Decoder, hf_views, named_arrays


def read_tensors(directory: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of all files of a Hugging Face directory."""
    tensors: dict[str, np.ndarray] = {}
    for file in directory.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def gradients_of(reference: Any, directory: Path) -> dict[str, np.ndarray]:
    """Returns trained parameters' gradients as save_pretrained writes parameters, which they overwrite."""
    for parameter in reference.parameters():
        parameter.data = parameter.data.zero_() if parameter.grad is None else parameter.grad
    reference.save_pretrained(directory)
    untrained = {name for name, _ in reference.named_buffers()}
    return {name: x for name, x in read_tensors(directory).items() if name not in untrained}


def check_logits_and_gradients(config: Config, model: Decoder, reference: Any, ids: Any, directory: Path) -> None:
    """Compares both with the reference, whose parameters are lost. Gradients are of the mean cross-entropy.

    Args:
        ids: tokens, as a tensor of torch.
        directory: a new one, for the gradients.
    """
    tokens = np.asarray(ids, np.int32)

    def mean_loss(model):
        logits = model(tokens)
        log_probabilities = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1).mean(), logits

    gradients, logits = jax.jit(jax.grad(mean_loss, has_aux=True))(model)
    expected = reference(ids, labels=ids, use_cache=False)
    expected.loss.backward()
    np.testing.assert_allclose(logits, expected.logits.detach().numpy(), atol=1e-4, rtol=0)
    assert jnp.abs(logits).max() > 1  # otherwise the tolerance would be too loose

    ours = hf_views({name: np.asarray(x) for name, x in named_arrays(gradients).items()}, config)
    theirs = gradients_of(reference, directory)
    for name in theirs:
        error = np.linalg.norm(np.asarray(ours[name]) - theirs[name]) / max(np.linalg.norm(theirs[name]), 1e-6)
        assert error < 1e-3, f"{name}: relative error {error}"
    assert all(not np.any(ours[name]) for name in ours.keys() - theirs.keys())
