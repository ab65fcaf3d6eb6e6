"""Text generation from the command line."""

import dataclasses
import functools
import json
from pathlib import Path

import tyro

from generator.language import point, setting
from generator.language.roles import EngineSettings, InputError, ModelSettings, SamplingParams, ending_with_messages


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateSettings(ModelSettings):
    """Prints a prompt and its continuation by a run's newest checkpoint, or by the model of a Hugging Face directory.

    Settings of sampling that are not given come from the model's generation_config.json.
    """

    sampling: tyro.conf.OmitArgPrefixes[SamplingParams]
    prompt: str | None = None  # text to continue
    prompts: str | None = None  # a file with a prompt on each line; prints a line of JSON for each
    point("GenerateSettings.fields")


@ending_with_messages()
def main() -> None:
    parse = functools.partial(tyro.cli, GenerateSettings, prog=f"python -m {__package__}.generate")
    settings = parse(default=GenerateSettings(sampling=SamplingParams()))
    prompt, prompts = settings.prompt, settings.prompts
    if (prompt is None) == (prompts is None):
        raise InputError("give either --prompt TEXT or --prompts FILE")
    # after help and refusals, as they import JAX
    from generator.language.roles import (
        Detokenizer,
        Engine,
        as_text,
        default_sampling,
        load_ends,
        load_generation,
        load_to_serve,
        tokenizer_to_serve,
    )

    point("generate.start", settings)
    config, model, mesh = load_to_serve(settings)
    point("generate.loaded", settings, config, model, mesh)
    defaults = default_sampling(load_generation(config.tokenizer), sampled=False)
    sampling = parse(default=GenerateSettings(sampling=SamplingParams(**defaults))).sampling
    tokenizer = tokenizer_to_serve(settings.tokenizer, config.tokenizer)
    ends = load_ends(tokenizer, config.tokenizer)

    def encode(text: str) -> list[int]:
        return tokenizer.encode_prompt(text) or [tokenizer.eos]

    if prompt is not None:
        ids = encode(as_text(prompt.encode(errors="surrogateescape"), "--prompt"))
        longest = min(len(ids) + sampling.max_tokens, config.context_length)
        sizes = EngineSettings(max_sequences=setting("single_batch_size"), max_length=longest)
        engine = Engine(config, model, ends, sizes, mesh)
        text = Detokenizer(tokenizer, ids)
        request = engine.add(ids, sampling)
        print(tokenizer.decode(ids), end="", flush=True)
        while request.finish is None:
            known = len(request.tokens)
            engine.step()
            print(*map(text.add, request.tokens[known:]), sep="", end="", flush=True)
        print(text.end())
    else:
        try:
            texts = as_text(Path(prompts).read_bytes(), prompts).removesuffix("\n").split("\n")
        except OSError as error:
            raise InputError(f"--prompts {prompts}: {error.strerror}: give a file with a prompt on each line") from None
        if texts == [""]:
            raise InputError(f"--prompts {prompts}: it has no prompts: give a file with one on each line")
        engine = Engine(config, model, ends, EngineSettings(queue=len(texts)), mesh)
        for text, request in zip(texts, engine.generate([*map(encode, texts)], sampling), strict=True):
            added = Detokenizer(tokenizer, request.prompt)
            pieces = [*map(added.add, request.tokens), added.end()]
            print(json.dumps({"prompt": text, "text": "".join(pieces), "finish": request.finish}, ensure_ascii=False))


if __name__ == "__main__":
    main()
