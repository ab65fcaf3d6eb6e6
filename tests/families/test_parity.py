"""Every family against its reference in transformers: logits, gradients, checkpoints, decoding, packing, training."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
import transformers

from families import parity
from families.cases import FAMILIES
from families.weaving import LIBRARY, fitted, woven
from generator.recipe.recipe import select

CASES = {family: list(FAMILIES[family].cases) for family in FAMILIES}
# what `make test` compares: the fewest families that have every fragment together, with what else has a fragment
SHORT = {
    "apertus": "learned",
    "bamba": "one_of_four",
    "bloom": "heads_of_no_power",
    "cohere2": "grouped",
    "deepseek_v2": "grouped",
    "deepseek_v3": "yarn",
    "deepseek_v32": "yarn",
    "dots1": "normed",
    "exaone4": "every_fourth",
    "exaone_moe": "two_dense",
    "falcon": "multi_query",
    "falcon_h1": "multiplied",
    "gemma2": "grouped",
    "gemma3": "grouped",
    "gemma4": "grouped",
    "gemma4_moe": "beside",
    "glm_moe_dsa": "selected",
    "gpt2": "tied",
    "gpt_neox": "parallel",
    "gpt_oss": "grouped",
    "gptj": "whole",
    "granite": "scaled",
    "granitemoehybrid": "sparse",
    "hunyuan_v1_dense": "stretched",
    "hunyuan_v1_moe": "stretched",
    "jamba": "every_fourth",
    "kimi_linear": "every_fourth",
    "lfm2": "listed",
    "llama2": "linear",  # model/rope_linear
    "llama4": "scout",
    "mamba2": "groups",
    "minimax": "every_fourth",
    "minimax_m2": "half_rotated",
    "mpt": "tied",
    "nanochat": "capped",
    "nemotron": "half_rotated",
    "nemotron_h": "alternating",
    "olmo3": "every_fourth",
    "olmo_hybrid": "every_fourth",
    "olmoe": "clipped",  # model/clip_qkv
    "opt": "tied",
    "phi": "biased",  # model/head_bias
    "phi3": "window",
    "phi4_mini": "short_and_long",
    "phimoe": "biased",
    "qwen2_moe": "every_second",
    "qwen3_moe": "every_second",
    "qwen3_next": "every_fourth",
    "recurrent_gemma": "two_of_three",
    "seed_oss": "biased_out",  # model/output_bias
    "smollm3": "every_fourth",
    "solar_open": "sparse",
}
# of SHORT one for each way in which layers do not see every token before them, each alike
SEEING = (
    "bamba bloom cohere2 deepseek_v3 deepseek_v32 gemma3 gpt2 gpt_oss lfm2 llama4 mamba2 phi4_mini qwen3_next".split()
)


def grouped(family: str, case: str, short: bool):
    """A parameter whose tests one process runs, which weaves the package once, and most of what `fitted` weaves."""
    marks = [pytest.mark.xdist_group(family)] + ([] if short else [pytest.mark.slow])
    return pytest.param((family, case), marks=marks, id=f"{family}-{case}")


ALL = [grouped(family, case, SHORT.get(family) == case) for family, names in CASES.items() for case in names]
SEEN = [
    grouped(family, case, SHORT.get(family) == case and family in SEEING)
    for family, names in CASES.items()
    for case in names
]
SERVED = [family for family in FAMILIES if FAMILIES[family].serves]
FIRST = [grouped(family, names[0], short=False) for family, names in CASES.items()]


@pytest.fixture(scope="module", params=ALL)
def compared(request, tmp_path_factory):
    """A woven package, its reference, the reference's checkpoint, tokens, and the case."""
    name, case_name = request.param
    family, folder = FAMILIES[name], tmp_path_factory.mktemp(f"{name}_{case_name}")
    case, own = family.cases[case_name], f"{name}_{case_name}"
    config = getattr(transformers, family.config)(
        **family.settings | case.settings, attn_implementation="eager", dtype="float32"
    )
    reference = parity.make_reference(getattr(transformers, family.model), config)
    reference.save_pretrained(folder / "theirs")
    library = fitted(family.architecture, own, folder / "theirs")
    package = woven(own, "cpu", folder, library, parts=("serve",) if family.serves else ())
    assert hasattr(package, "engine") == family.serves
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, family.length), dtype=np.int32)
    return package, reference, folder / "theirs", tokens, case, family


def test_the_short_set_has_every_fragment():
    def fragments(families):
        return {
            it.name for family in families for it in select(FAMILIES[family].architecture, "cpu", LIBRARY).fragments
        }

    of_tests = {name for name in fragments(FAMILIES) if name.startswith("tests/")}
    assert fragments(FAMILIES) - fragments(SHORT) <= of_tests


def test_logits_and_gradients(compared):
    package, reference, folder, tokens, case, _ = compared
    parity.check_logits_and_gradients(package, reference, folder, tokens, case.atol)


def test_round_trip(compared):
    package, reference, folder, _, case, family = compared
    parity.check_round_trip(package, reference, folder, case.follows, family.respelled)


@pytest.mark.parametrize("compared", [it for it in SEEN if it.values[0][0] in SERVED], indirect=True)
def test_decoding(compared):
    package, _, folder, tokens, *_ = compared
    _, model = package.huggingface.load_hf(folder)
    # one row, and parts of one length, for few programs: the second request has the pages of the first
    parity.check_decoding(package, model, tokens, max_sequences=1, page_size=8, chunk=4)


@pytest.mark.slow
@pytest.mark.parametrize("compared", [it for it in ALL if it.values[0][0] in SERVED], indirect=True)
def test_decoding_side_by_side(compared):
    package, _, folder, tokens, *_ = compared
    _, model = package.huggingface.load_hf(folder)
    parity.check_decoding(package, model, tokens, max_sequences=2, page_size=4, chunk=8)


@pytest.mark.parametrize("compared", SEEN, indirect=True)
def test_packing(compared):
    package, _, folder, tokens, *_ = compared
    parity.check_packing(package, folder, tokens)


@pytest.mark.parametrize("compared", FIRST, indirect=True)
def test_tiny_preset_trains(compared):
    """Ten steps on one batch: the loss falls by more than a tenth."""
    package, _, _, tokens, *_ = compared
    config = dataclasses.replace(
        package.config.PRESETS["tiny"],
        sequence_length=tokens.shape[1] - 1,
        batch_size=2,
        steps=10,
        warmup_ratio=0.0,
        dtype="float32",
    )
    batch = {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "positions": np.broadcast_to(np.arange(tokens.shape[1] - 1, dtype=np.int32), tokens[:, 1:].shape),
        "segment_ids": np.ones_like(tokens[:, 1:]),
        "weights": np.ones(tokens[:, 1:].shape, np.float32),
    }
    state, step, losses = (
        package.step.new_state(config),
        jax.jit(functools.partial(package.step.train_step, config=config)),
        [],
    )
    for _ in range(config.steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["train/loss"]))
    assert losses[-1] < 0.9 * losses[0], losses
