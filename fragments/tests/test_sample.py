"""Text without a cache: the likeliest tokens of one pass over the whole text."""

import importlib
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from generator.language import point, requires
from generator.language.roles import PACKAGE, SMALL, Decoder, next_token, run_python, save_two

requires("sample")


def test_each_token_is_the_likeliest_or_drawn_of_the_likeliest():
    model = jax.jit(lambda: Decoder(SMALL, nnx.Rngs(0)))()
    rng = np.random.default_rng(0)
    text = rng.integers(0, SMALL.vocab_size, (1, 12), dtype=np.int32)
    likeliest = np.argsort(jax.jit(lambda tokens: model(tokens))(text[:, :7])[0, -1])[::-1]
    with point("test_sample.draw", model, text, rng):
        draw = [int(next_token(model, text, 7, t, 4, jax.random.key(seed))) for t in (0.0, 1.0) for seed in range(20)]
    assert draw[:20] == [likeliest[0]] * 20
    assert 1 < len({*draw[20:]}) and {*draw[20:]} <= {*likeliest[:4].tolist()}
    with point("test_sample.one", model, text):
        assert jnp.ndim(next_token(model, text, 7, 0.0, 1, jax.random.key(0))) == 0


def check_four_devices(directory: str) -> None:
    """Continues a prompt, and looks at what each device has of the model."""
    module = sys.modules[next_token.__module__]
    module.next_token = mock.Mock(wraps=next_token)
    sys.argv[1:] = ["--checkpoint-dir", directory, "--prompt", "def ", "--max-tokens", "3"]
    importlib.import_module(f"{PACKAGE.name}.generate").main()
    arrays = jax.tree.leaves(module.next_token.call_args.args[0])
    split = sum(x.size for x in arrays if x.addressable_shards[0].data.size * 4 == x.size)
    assert split > 0.9 * sum(x.size for x in arrays)
    assert not any(x.ndim > 3 and x.dtype != SMALL.dtype for x in arrays)


def test_the_command_continues_a_prompt(tmp_path):
    flags = "--checkpoint-dir", str(save_two(tmp_path)), "--prompt", "def ", "--max-tokens"
    process = run_python("-m", f"{PACKAGE.name}.generate", *flags, "3")
    assert process.returncode == 0 and process.stdout.startswith("def "), process.stderr
    program = f"from {__name__} import check_four_devices; check_four_devices({flags[1]!r})"
    over_four = run_python("-c", program, devices=4)
    assert over_four.returncode == 0 and over_four.stdout == process.stdout, over_four.stderr
    process = run_python("-m", f"{PACKAGE.name}.generate", *flags, "0")
    assert process.returncode == 2 and "Traceback" not in process.stderr
