"""Llama in Hugging Face checkpoints: its sizes, structures and older files, against transformers in fp32."""

import json

import jax
import numpy as np
import pytest

from generator.language import point
from generator.language.roles import InputError, check_logits_and_gradients, load_hf, save_hf

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
    """Makes a random Llama, with random norms too, in eval mode."""
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
    point("test_llama.logits")
    llama.save_pretrained(tmp_path / "theirs")
    config, model = load_hf(tmp_path / "theirs")
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 17))
    check_logits_and_gradients(config, model, llama, torch.from_numpy(tokens), tmp_path / "gradients")


@every_case
def test_what_transformers_wrote_comes_back(llama, tmp_path):
    point("test_llama.written")
    llama.save_pretrained(tmp_path / "theirs")
    config, model = load_hf(tmp_path / "theirs")
    dtype = str(llama.dtype).removeprefix("torch.")
    assert config.dtype == dtype
    assert {str(x.dtype) for x in jax.tree.leaves(model)} == {"float32"}
    save_hf(config, model, tmp_path / "ours", dtype=dtype)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "ours")
    ours, theirs = again.state_dict(), llama.state_dict()
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]), name
    ours, theirs = again.config.to_dict(), llama.config.to_dict()
    settings = theirs.keys() - {"_name_or_path", "dtype"}
    assert {name: ours[name] for name in settings} == {name: theirs[name] for name in settings}


@pytest.mark.parametrize(
    "setting, value, found",
    [
        (
            "tie_word_embeddings",
            True,
            "tie_word_embeddings is true, and this package is for false: give another checkpoint",
        ),
        ("attention_bias", True, "attention_bias is true, and this package is for false: give another"),
        ("mlp_bias", True, "mlp_bias is true, and this package is for false: give another"),
        ("hidden_act", "gelu", 'hidden_act is "gelu", and this package is for "silu": give another'),
        ("rope_scaling", {"type": "linear", "factor": 2.0}, 'rope_scaling is {"rope_type": "linear", "type": "linear"'),
        (
            "rope_parameters",
            {"rope_type": "llama3", "factor": 8.0},
            'rope_scaling is {"rope_type": "llama3", "factor": 8.0}, and',
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
    """transformers 4 wrote rope_theta at the top; Llama 1 and 2 wrote no head_dim, biases or kv heads."""
    llama.save_pretrained(tmp_path)
    hf = json.loads((tmp_path / "config.json").read_text())
    for setting in ("rope_parameters", "head_dim", "num_key_value_heads", "attention_bias", "mlp_bias", "dtype"):
        del hf[setting]
    older = {"rope_theta": 500.0, "rope_scaling": None, "torch_dtype": "float16"}
    (tmp_path / "config.json").write_text(json.dumps(hf | older))
    config, _ = load_hf(tmp_path)
    assert (config.rope_theta, config.head_size, config.kv_heads, config.dtype) == (500.0, 8, 4, "bfloat16")
