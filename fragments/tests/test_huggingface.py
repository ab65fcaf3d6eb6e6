"""Hugging Face import and export, against transformers' own Llama in fp32."""

import dataclasses
import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from generator.roles import (
    PRESETS,
    Decoder,
    InputError,
    Sampling,
    generate,
    hf_views,
    load_checkpoint,
    load_hf,
    make_mesh,
    named_arrays,
    save_hf,
)

torch = pytest.importorskip("torch", reason="parity needs torch and transformers: pip install '.[test]'")


transformers = pytest.importorskip("transformers", reason="parity needs torch and transformers: pip install '.[test]'")


SIZES = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
    initializer_range=0.2,  # large, so that every part of the model moves the logits
    rms_norm_eps=1e-3,
)


CASES = {
    "heads_equal": {},
    "heads_grouped": dict(num_key_value_heads=2),
    "head_size_free": dict(head_dim=12),
    "vocabulary_odd": dict(vocab_size=101),
    "theta": dict(rope_parameters={"rope_type": "default", "rope_theta": 500.0}),
    "bfloat16": dict(num_key_value_heads=1, dtype="bfloat16"),
}


@pytest.fixture
def llama(request):
    """A random Llama with random norms too, in eval mode."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES | getattr(request, "param", {}), attn_implementation="eager")
    reference = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return reference.to(config.dtype or torch.float32)


every_case = pytest.mark.parametrize("llama", CASES.values(), ids=CASES.keys(), indirect=True)


fp32_cases = pytest.mark.parametrize("llama", list(CASES.values())[:-1], ids=list(CASES)[:-1], indirect=True)


@fp32_cases
def test_logits_and_gradients_equal_transformers(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    config, model = load_hf(tmp_path)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 17), dtype=np.int32)

    def mean_loss(model):
        logits = model(tokens)
        log_probabilities = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(log_probabilities, tokens[:, 1:, None], axis=-1).mean(), logits

    gradients, logits = jax.jit(jax.grad(mean_loss, has_aux=True))(model)
    expected = llama(torch.from_numpy(tokens).long(), labels=torch.from_numpy(tokens).long())
    assert logits.shape == (2, 17, config.vocab_size)
    np.testing.assert_allclose(logits, expected.logits.detach().numpy(), atol=1e-4)
    assert jnp.abs(logits).max() > 1  # else the tolerance would say nothing

    gradients = hf_views({name: np.asarray(x) for name, x in named_arrays(gradients).items()}, config)
    expected.loss.backward()
    assert gradients.keys() == {name for name, _ in llama.named_parameters()}
    for name, parameter in llama.named_parameters():
        error = np.linalg.norm(gradients[name] - parameter.grad.numpy()) / parameter.grad.norm()
        assert error < 1e-3, f"{name}: relative error {error}"


@every_case
@pytest.mark.parametrize("max_shard_bytes", [5_000_000_000, 10_000])
def test_round_trip_is_bit_identical(llama, tmp_path, max_shard_bytes):
    llama.save_pretrained(tmp_path / "theirs", max_shard_size=max_shard_bytes)
    config, model = load_hf(tmp_path / "theirs")
    dtype = str(llama.dtype).removeprefix("torch.")
    assert config.dtype == dtype
    assert {str(x.dtype) for x in jax.tree.leaves(model)} == {"float32"}
    save_hf(config, model, tmp_path / "ours", dtype=dtype, max_shard_bytes=max_shard_bytes)
    assert (tmp_path / "ours/model.safetensors.index.json").exists() == (max_shard_bytes < 5_000_000_000)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "ours")
    ours, theirs = again.state_dict(), llama.state_dict()
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]), name
    ours, theirs = again.config.to_dict(), llama.config.to_dict()
    settings = theirs.keys() - {"_name_or_path", "dtype"}
    assert {name: ours[name] for name in settings} == {name: theirs[name] for name in settings}


def test_every_parameter_has_a_tensor():
    config = PRESETS["tiny"]
    arrays = named_arrays(jax.eval_shape(lambda: Decoder(config, nnx.Rngs(0))))
    views = hf_views({name: np.empty(x.shape, np.int8) for name, x in arrays.items()}, config)
    assert sum(view.size for view in views.values()) == sum(x.size for x in arrays.values())


def test_shards_hold_no_more_than_they_may(llama, tmp_path):
    llama.save_pretrained(tmp_path / "theirs")
    save_hf(*load_hf(tmp_path / "theirs"), tmp_path / "ours", max_shard_bytes=20_000)
    index = json.loads((tmp_path / "ours/model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert [file.name for file in files] == [
        f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))
    ]
    assert all(sum(x.nbytes for x in load_file(file).values()) <= 20_000 for file in files)
    assert index["metadata"]["total_size"] == sum(p.numel() * 4 for p in llama.parameters())


def test_all_wrong_tensors_are_listed_at_once(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
    tensors["model.norm.weight"] = np.zeros(31, np.float32)
    tensors["lm_head.weight"] = np.zeros((64, 32), np.int8)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(4, np.float32)  # no parameter: passed over
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError) as error:
        load_hf(tmp_path)
    assert str(error.value).splitlines() == [
        f"{tmp_path}: its tensors are not those of its config.json:",
        "  missing: model.layers.1.mlp.up_proj.weight [48, 32]",
        "  wrong: lm_head.weight I8 [64, 32], not F32, BF16 or F16 [64, 32]",
        "  unknown: model.layers.0.self_attn.q_proj.bias F32 [32]",
        "  wrong: model.norm.weight F32 [31], not F32, BF16 or F16 [32]",
    ]


@pytest.mark.parametrize(
    "setting, value, found",
    [
        (
            "tie_word_embeddings",
            True,
            "tie_word_embeddings is true, but this package was woven for false: select tied embeddings",
        ),
        ("model_type", "mistral", 'model_type is "mistral", but this package was woven for "llama": select'),
        ("attention_bias", True, "attention_bias is true, but this package was woven for false: select"),
        ("mlp_bias", True, "mlp_bias is true, but this package was woven for false: select"),
        ("hidden_act", "gelu", 'hidden_act is "gelu", but this package was woven for "silu": select'),
        ("rope_scaling", {"type": "linear", "factor": 2.0}, 'rope_scaling is {"type": "linear", "factor": 2.0}, but'),
        (
            "rope_parameters",
            {"rope_type": "llama3", "factor": 8.0},
            'rope_scaling is {"rope_type": "llama3", "factor": 8.0}, but',
        ),
        ("hidden_size", None, "the setting 'hidden_size' is missing"),
    ],
)
def test_another_structure_is_an_error(llama, tmp_path, setting, value, found):
    llama.save_pretrained(tmp_path)
    hf = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(hf | {setting: value}))
    with pytest.raises(InputError) as error:
        load_hf(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'config.json'}: {found}")


def test_settings_of_older_files(llama, tmp_path):
    """transformers 4 wrote rope_theta at the top, and Llama 1 and 2 wrote no head_dim, no biases and no kv heads."""
    llama.save_pretrained(tmp_path)
    hf = json.loads((tmp_path / "config.json").read_text())
    for setting in ("rope_parameters", "head_dim", "num_key_value_heads", "attention_bias", "mlp_bias", "dtype"):
        del hf[setting]
    older = {"rope_theta": 500.0, "rope_scaling": None, "torch_dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(hf | older))
    config, _ = load_hf(tmp_path)
    assert (config.rope_theta, config.head_size, config.kv_heads, config.dtype) == (500.0, 8, 4, "bfloat16")


@pytest.mark.parametrize(
    "damage, found",
    [
        (lambda d: (d / "config.json").unlink(), "config.json: [Errno 2] No such file or directory"),
        (lambda d: (d / "config.json").write_text("{"), "config.json: Expecting property name"),
        (lambda d: (d / "model.safetensors").unlink(), "model.safetensors: cannot be read as safetensors"),
        (
            lambda d: (d / "model.safetensors").write_bytes(b"truncated"),
            "model.safetensors: cannot be read as safetensors",
        ),
    ],
)
def test_unreadable_files_are_named(llama, tmp_path, damage, found):
    llama.save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError) as error:
        load_hf(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/{found}")


def test_export_overwrites_nothing(llama, tmp_path):
    llama.save_pretrained(tmp_path)
    config, model = load_hf(tmp_path)
    with pytest.raises(InputError, match="is there already: give a new directory"):
        save_hf(config, model, tmp_path)


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["huggingface", *map(str, arguments)])
    importlib.import_module("..checkpoint", __package__).main()


def test_import_and_export_from_the_command_line(llama, tmp_path, monkeypatch):
    """What is not a tensor comes along too; a checkpoint that was imported generates as transformers does."""
    llama.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs/tokenizer.json").write_text("{}")
    run(monkeypatch, "import", tmp_path / "theirs", tmp_path / "run")
    run(monkeypatch, "export", tmp_path / "run", tmp_path / "ours")
    run(monkeypatch, "export", tmp_path / "run", tmp_path / "half", "--dtype", "bfloat16")
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json"):
        assert (tmp_path / "ours" / name).exists()
    theirs, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert theirs.keys() == ours.keys()
    assert all(np.array_equal(theirs[name], ours[name]) for name in theirs)
    half = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "half")
    assert half.dtype == torch.bfloat16
    assert torch.equal(half.lm_head.weight, llama.lm_head.weight.to(torch.bfloat16))
    config, model = load_checkpoint(str(tmp_path / "run"), make_mesh())
    assert config.tokenizer == str(tmp_path / "run/tokenizer/tokenizer.json")
    prompt = [5, 6, 7]
    expected = llama.generate(
        torch.tensor([prompt]), max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    tokens = np.concatenate(list(generate(model, [prompt], Sampling(max_tokens=8), eos=-1)))
    assert tokens.tolist() == expected[0, 3:].tolist()
    for arguments in (
        ["import", tmp_path / "theirs", tmp_path / "run"],
        ["export", tmp_path / "run", tmp_path / "ours"],
    ):
        with pytest.raises(SystemExit, match="is there already: give a new directory"):
            run(monkeypatch, *arguments)


@pytest.mark.parametrize("llama", [{"vocab_size": 258}], indirect=True)
def test_a_model_of_bytes_names_its_ends(llama, tmp_path):
    """transformers would take Llama's 1 and 2 for bos and eos."""
    llama.save_pretrained(tmp_path / "theirs")
    config, model = load_hf(tmp_path / "theirs")
    save_hf(dataclasses.replace(config, tokenizer="bytes"), model, tmp_path / "ours")
    hf = transformers.LlamaConfig.from_pretrained(tmp_path / "ours")
    assert (hf.bos_token_id, hf.eos_token_id) == (256, 257)
