"""LoRA adapters that peft loads, against the model that has them."""

import dataclasses
import email
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from generator.language import point, requires
from generator.language.roles import (
    PACKAGE,
    PRESETS,
    SMALL,
    Checkpoints,
    Decoder,
    load_checkpoint,
    make_mesh,
    run_python,
    save_hf,
)

requires("huggingface/adapter_file")

peft = pytest.importorskip("peft", reason="adapters are compared with peft's: pip install peft")
torch = pytest.importorskip("torch", reason="parity needs torch and transformers: pip install '.[test]'")
transformers = pytest.importorskip("transformers", reason="parity needs torch and transformers: pip install '.[test]'")


def checkpoint(*arguments: object):
    return run_python("-m", f"{PACKAGE.name}.checkpoint", *map(str, arguments))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, by what peft asks
@pytest.mark.parametrize("targets", ["all", "query,down"])
def test_logits_with_adapters_equal_those_of_peft(targets, tmp_path):
    config = dataclasses.replace(SMALL, width=PRESETS["tiny"].width)  # GPT-2's heads fill the width
    point("test_adapter_file.targets", config, targets)
    config = dataclasses.replace(config, lora_targets=targets, lora_rank=3, lora_alpha=5.0)
    plain = jax.jit(lambda: Decoder(config, nnx.Rngs(0)))()  # its adapters add nothing
    save_hf(config, plain, tmp_path / "base")
    rng = np.random.default_rng(0)
    graph, adapters, rest = nnx.split(plain, nnx.LoRAParam, ...)
    model = nnx.merge(graph, jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape)), adapters), rest)
    checkpoints = Checkpoints(str(tmp_path / "run"), config).open()
    checkpoints.save(1, {"model": model})
    checkpoints.close()
    for arguments in (
        ("export-adapters", tmp_path / "run", tmp_path / "adapters"),
        ("import", tmp_path / "base", tmp_path / "again", "--adapter", tmp_path / "adapters"),
    ):
        process = checkpoint(*arguments)
        assert process.returncode == 0, process.stderr
    _, again = load_checkpoint(str(tmp_path / "again"), make_mesh(1, 1, 1))
    assert jax.tree.all(jax.tree.map(np.array_equal, nnx.state(model), nnx.state(again)))
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="float32")
    tokens = rng.integers(2, config.vocab_size, (2, 17)).astype(np.int32)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapters").double()  # in fp32 it is 1e-4 off itself
    theirs = adapted(torch.from_numpy(tokens).long()).logits
    np.testing.assert_allclose(model(tokens), theirs.detach().numpy(), atol=1e-4, rtol=1e-4)
    assert jnp.abs(model(tokens) - plain(tokens)).max() > 0.1  # or it would show nothing


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_run_goes_on_from_an_adapter_of_peft(tmp_path):
    """Import, export of the same tensors, and a step of training, which begins with them."""
    config = dataclasses.replace(SMALL, width=PRESETS["tiny"].width)
    save_hf(config, jax.jit(lambda: Decoder(config, nnx.Rngs(0)))(), tmp_path / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="float32")
    torch.manual_seed(0)
    settings = dict(r=3, lora_alpha=5, use_rslora=True, init_lora_weights=False)  # at random
    modules = "all-linear"
    point("test_adapter_file.modules", config, modules)
    model = peft.get_peft_model(base, peft.LoraConfig("CAUSAL_LM", target_modules=modules, **settings))
    model.save_pretrained(tmp_path / "adapter")
    process = checkpoint("import", tmp_path / "base", tmp_path / "run", "--adapter", tmp_path / "adapter")
    assert process.returncode == 0, process.stderr
    _, imported = load_checkpoint(str(tmp_path / "run"), make_mesh(1, 1, 1))
    tokens = np.random.default_rng(0).integers(2, config.vocab_size, (2, 17)).astype(np.int32)
    theirs = model.double()(torch.from_numpy(tokens).long()).logits.detach().numpy()
    np.testing.assert_allclose(imported(tokens), theirs, atol=1e-5, rtol=1e-5)

    process = checkpoint("export-adapters", tmp_path / "run", tmp_path / "again")
    assert process.returncode == 0, process.stderr
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("adapter", "again"))
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)

    data = Path(email.__file__).parent / "*.py"
    flags = ["--checkpoint-dir", tmp_path / "run", "--tokenizer", "bytes", "--data", data, "--eval-batches", 1]
    flags += ["--sequence-length", 32, "--batch-size", 1, "--steps", 1, "--learning-rate", 1e-6, "--mesh-fsdp", 1]
    wrong = run_python("-m", f"{PACKAGE.name}.train", *map(str, flags), "--lora-rank", "4")
    assert wrong.returncode == 2 and "lora_rank 3 -> 4" in wrong.stderr
    process = run_python("-m", f"{PACKAGE.name}.train", *map(str, flags))
    assert process.returncode == 0, process.stderr
    _, trained = load_checkpoint(str(tmp_path / "run"), make_mesh(1, 1, 1), 1)
    moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), *(nnx.state(x, nnx.LoRAParam) for x in (imported, trained)))
    assert 0 < max(jax.tree.leaves(moved)) < 1e-5


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_adapter_of_some_layers_is_not_imported(tmp_path):
    config = dataclasses.replace(SMALL, width=PRESETS["tiny"].width)
    save_hf(config, jax.jit(lambda: Decoder(config, nnx.Rngs(0)))(), tmp_path / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype="float32")
    some = peft.LoraConfig("CAUSAL_LM", target_modules=["q_proj", "o_proj"], layers_to_transform=[0])
    peft.get_peft_model(base, some).save_pretrained(tmp_path / "adapter")
    process = checkpoint("import", tmp_path / "base", tmp_path / "run", "--adapter", tmp_path / "adapter")
    assert process.returncode == 2 and "layers.1" in process.stderr and "all layers" in process.stderr
    assert not (tmp_path / "run").exists()
