"""Text generation without a KV cache: each token takes a pass over the whole text."""

import dataclasses

import numpy as np
import tyro

from generator.language import excludes, point
from generator.language.roles import InputError, ending_with_messages

excludes("generate", "reward_head")


@dataclasses.dataclass(frozen=True)
class SampleSettings:
    """Prints a prompt and its continuation by the newest checkpoint of a run."""

    checkpoint_dir: str  # of the training run
    prompt: str  # text to continue
    max_tokens: int = 64
    temperature: float = 0.0  # 0: the likeliest token
    top_k: int = 40  # sample from this many likeliest tokens
    seed: int = 0


@ending_with_messages()
def main() -> None:
    settings = tyro.cli(SampleSettings, prog=f"python -m {__package__}.generate")
    # after help and refusals, as they import JAX
    import jax

    from generator.language.roles import load_checkpoint, load_tokenizer, make_mesh, next_token, with_matrices_in

    jax.set_mesh(make_mesh())
    config, model = load_checkpoint(settings.checkpoint_dir, jax.sharding.get_mesh())
    model = with_matrices_in(config.dtype, model)
    tokenizer = load_tokenizer(config.tokenizer, config.special_tokens)
    tokens = tokenizer.encode_prompt(settings.prompt) or [tokenizer.eos]
    length = len(tokens) + settings.max_tokens
    most = config.context_length
    if not 0 < settings.max_tokens or length > most or not 0 < settings.top_k <= config.vocab_size:
        raise InputError(f"{len(tokens)} tokens and --max-tokens: 1 to {most} in all; --top-k: to {config.vocab_size}")
    text = np.pad(np.array([tokens] * jax.device_count(), np.int32), ((0, 0), (0, settings.max_tokens)))
    with point("sample.key", settings, length):
        key = jax.random.key(settings.seed)
    for count in range(len(tokens), length):
        text[:, count] = next_token(model, text, count, settings.temperature, settings.top_k, key)
        if text[0, count] == tokenizer.eos:
            break
        tokens.append(int(text[0, count]))
    print(tokenizer.decode(tokens))


if __name__ == "__main__":
    main()
