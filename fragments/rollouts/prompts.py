"""Prompts in rows of data, from which the model samples."""

import dataclasses
import json
from typing import Any

from generator.language import point, requires
from generator.language.roles import (
    AnyTokenizer,
    Config,
    InputError,
    TemplateError,
    WithTemplate,
    find_files,
    read_messages,
    without_nulls,
)

requires("rollouts/rollouts", "chats/messages")


@dataclasses.dataclass
class Prompt:
    """A row of the data."""

    source: str  # FILE:LINE
    prompt: Any  # text or messages
    fields: dict[str, Any]  # all others
    tokens: list[int]
    point("Prompt.fields")


def most_tokens(config: Config) -> int:
    """Returns how many tokens a prompt and its completion may have; the last one is only a target."""
    return min(config.sequence_length + 1, config.context_length)


def read_prompt(line: bytes, source: str, tokenizer: AnyTokenizer, chats: WithTemplate) -> Prompt | None:
    """Reads a line of JSONL, at the place `source`; None if it is blank, or null. Raises what is wrong with it."""
    row = json.loads(line) if line.strip() else None
    if row is None:
        return None
    fields = row if isinstance(row, dict) else {}
    prompt = without_nulls(fields.pop("prompt", None))
    if isinstance(prompt, str):
        tokens = tokenizer.encode_prompt(prompt)
    elif prompt and isinstance(prompt, list):
        messages, _ = read_messages(prompt, "prompt", source)
        if messages[-1]["role"] == "assistant":
            raise ValueError("its last message is the assistant's, who is to answer")
        tools, names = chats.options(without_nulls(fields))
        tokens = chats.template.encode(messages, tools or None, names=names)
    else:
        raise ValueError("it has none" if prompt is None else f"prompt is {json.dumps(prompt)[:80]}")
    if not tokens:
        raise ValueError("prompt is empty")
    return Prompt(source, prompt, fields, tokens)


def read_prompts(config: Config, flag: str, data: str, tokenizer: AnyTokenizer) -> list[Prompt]:
    """Reads the JSONL files `data` of a flag, and prints how many prompts are too long. Refuses other rows."""
    chats = WithTemplate(tokenizer, config.tokenizer)
    prompts = list[Prompt]()
    for path in find_files(data):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                if prompt := read_prompt(line, f"{path}:{number}", tokenizer, chats):
                    prompts.append(prompt)
            except (AttributeError, LookupError, TypeError, ValueError, RecursionError, TemplateError) as error:
                what = str(error) if isinstance(error, ValueError) else repr(error)
                raise InputError(
                    f"{path}:{number}: must be an object of JSON whose prompt is a text or messages: {what}: "
                    "fix it, or leave it out"
                ) from None
    short = [prompt for prompt in prompts if len(prompt.tokens) + config.completion_tokens <= most_tokens(config)]
    too_long = len(prompts) - len(short)
    is_longer = config.sequence_length < config.context_length
    most = f"--sequence-length {config.sequence_length}" if is_longer else f"--context-length {config.context_length}"
    room = f"--completion-tokens {config.completion_tokens} in {most}"
    if too_long:
        print(f"{flag} {data}: {too_long:,} prompts are too long for {room}, and left out")
    if not short:
        problem = f"no prompt is short enough for {room}: change these" if too_long else "is empty: give prompts"
        raise InputError(f"{flag} {data}: {problem}")
    return short
