"""Structure is chosen while weaving: tied embeddings and query/key norms, against transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from generator.library import Library
from generator.weave import weave

ROOT = Path(__file__).resolve().parents[2]

TIED = """
base = "llama2"
title = "Llama 2 with tied embeddings"
without = ["model/untied_head"]
"""

PARITY = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, torch, transformers
from safetensors.numpy import load_file
from tied_cpu import load_hf
from tied_cpu.data import InputError
from tied_cpu.huggingface import hf_views, save_hf
from tied_cpu.parallel import named_arrays

folder = sys.argv[1]
sizes = dict(vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, intermediate_size=48, initializer_range=0.2, attn_implementation="eager")
torch.manual_seed(0)
llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=True)).float()
llama.save_pretrained(folder + "/tied")
config, model = load_hf(folder + "/tied")
tokens = np.random.default_rng(0).integers(0, 37, (2, 17), dtype=np.int32)
inputs, targets = tokens[:, :-1], tokens[:, 1:]
logits = llama(torch.tensor(inputs).long()).logits
np.testing.assert_allclose(model(inputs), logits.detach().numpy(), atol=1e-4)

def loss(model):
    rows = jax.nn.log_softmax(model(inputs))
    return -jnp.mean(jnp.take_along_axis(rows, targets[..., None], axis=-1))

torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).long().flatten()).backward()
ours = hf_views({name: np.asarray(x) for name, x in named_arrays(jax.grad(loss)(model)).items()})
theirs = {name: p.grad.numpy() for name, p in llama.named_parameters()}
assert ours.keys() == theirs.keys()
for name, gradient in theirs.items():
    assert np.linalg.norm(ours[name] - gradient) <= 1e-3 * np.linalg.norm(gradient), name

save_hf(config, model, folder + "/exported")
again = transformers.LlamaForCausalLM.from_pretrained(folder + "/exported")
for name, tensor in llama.state_dict().items():
    assert torch.equal(tensor, again.state_dict()[name]), name

transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=False)).save_pretrained(folder + "/untied")
try:
    load_hf(folder + "/untied")
except InputError as error:
    assert "tie_word_embeddings is false" in str(error) and "select model/untied_head" in str(error), error
else:
    raise AssertionError("an untied checkpoint was taken")
print("equal")
"""


@pytest.mark.slow
def test_tied_embeddings_are_equal_to_the_reference(tmp_path):
    pytest.importorskip("transformers", reason="parity needs torch and transformers")
    pytest.importorskip("torch", reason="parity needs torch and transformers")
    files = Library.read([ROOT]).files | {"templates/architectures/tied.toml": dedent(TIED)}
    package = weave("tied", "cpu", Library(files))
    for path, text in package.files.items():
        target = tmp_path / package.name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    assert "self.head" not in package.files["model.py"]
    settings = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", PARITY, str(tmp_path)], env=os.environ | settings, capture_output=True, text=True
    )
    assert process.returncode == 0 and process.stdout.splitlines()[-1] == "equal", process.stdout + process.stderr
