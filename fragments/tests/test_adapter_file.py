"""LoRA adapters that peft loads, against the model that has them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from generator.language import requires
from generator.language.roles import PACKAGE, PRESETS, SMALL, Checkpoints, Decoder, run_python, save_hf

requires("huggingface/adapter_file")

peft = pytest.importorskip("peft", reason="adapters are compared with peft's: pip install peft")
torch = pytest.importorskip("torch", reason="parity needs torch and transformers: pip install '.[test]'")
transformers = pytest.importorskip("transformers", reason="parity needs torch and transformers: pip install '.[test]'")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, by what peft asks
@pytest.mark.parametrize("targets", ["all", "query,down"])
def test_logits_with_adapters_equal_those_of_peft(targets, tmp_path):
    config = dataclasses.replace(SMALL, width=PRESETS["tiny"].width)  # GPT-2's heads fill the width
    config = dataclasses.replace(config, lora_targets=targets, lora_rank=3, lora_alpha=5.0)
    plain = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()  # its adapters add nothing
    save_hf(config, plain, tmp_path / "base")
    rng, (graph, adapters, rest) = np.random.default_rng(0), nnx.split(plain, nnx.LoRAParam, ...)
    model = nnx.merge(graph, jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape)), adapters), rest)
    checkpoints = Checkpoints(str(tmp_path / "run"), config)
    checkpoints.save(1, {"model": model})
    checkpoints.close()
    folders = [str(tmp_path / name) for name in ("run", "adapters")]
    process = run_python("-m", f"{PACKAGE.name}.checkpoint", "export-adapters", *folders)
    assert process.returncode == 0, process.stderr
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="float32")
    tokens = rng.integers(2, config.vocab_size, (2, 17)).astype(np.int32)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapters").double()  # in fp32 it is 1e-4 off itself
    theirs = adapted(torch.from_numpy(tokens).long()).logits
    np.testing.assert_allclose(model(tokens), theirs.detach().numpy(), atol=1e-4, rtol=1e-4)
    assert jnp.abs(model(tokens) - plain(tokens)).max() > 0.1  # or it would show nothing
