"""Chats as tokens with weights, for supervised fine-tuning.

Source: Ouyang et al. 2022, arXiv 2203.02155, section 3.1 (demonstrations); masks as in transformers.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

from generator.language import point, requires, splice
from generator.language.roles import (
    CHAT_MARK,
    CLOSE,
    END,
    MAX_WARNED_CHATS,
    OPEN,
    WARNED_CHATS,
    AnyTokenizer,
    ByteTokenizer,
    InputError,
    TemplateError,
    WithTemplate,
    encode_document,
    read_messages,
    warn_of_chat,
    without_nulls,
)

requires("chat_template", "render/generation", "data/chat_data")


class DataConfig:
    loss_on: Literal["assistant", "last", "all"] = "assistant"  # of a chat: what the assistant says, its last turn, all
    long_chats: Literal["truncate", "drop", "refuse"] = "truncate"  # what becomes of chats longer than a sequence


TOKEN_AND_WEIGHT = np.dtype([("token", "<i4"), ("weight", "<f2")])  # of an array [n] for a chat


def locate(tokenizer: Tokenizer, text: str, at: int = 0) -> list[tuple[int, int, int]]:
    """Returns the tokens of a text, each with its start and end, for a text that begins `at` a place."""
    (encoding,) = tokenizer.encode_batch([text], add_special_tokens=False)
    return [(token, at + start, at + end) for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)]


def weigh(places: list[tuple[int, int, int]], spans: list[tuple[int, int, float]], default: float) -> np.ndarray:
    """Returns the tokens of `places` with the weight of the span that each overlaps, or `default`."""
    tokens, starts, ends = np.array(places, np.int32).reshape(-1, 3).T
    weighted = np.empty(len(tokens), TOKEN_AND_WEIGHT)
    weighted["token"], weighted["weight"] = tokens, default
    for start, end, weight in spans:
        weighted["weight"][(starts < end) & (ends > start)] = weight  # as masks of transformers do
    return weighted


class Chats(WithTemplate):
    """Encodes chats as tokens with weights: those of the loss on each token as a target."""

    def __init__(self, tokenizer: AnyTokenizer, path: str, loss_on: str):
        super().__init__(tokenizer, path)
        self.loss_on = loss_on

    def rules(self) -> dict[str, str]:
        """Returns what the tokens of a chat depend on, beside the tokenizer; pairs of texts need no template."""
        texts = sorted(self.loaded_template.texts.items()) if self.loaded_template else []
        return {"template": hashlib.sha256(json.dumps(texts).encode()).hexdigest(), "loss_on": self.loss_on}

    def __call__(self, document: str) -> np.ndarray:
        """Returns the tokens of a text, int32 [n], or those of a chat with weights, [n]."""
        if not document.startswith(CHAT_MARK):
            return encode_document(self.tokenizer, document)
        source = "a chat"
        try:
            chat = json.loads(document.removeprefix(CHAT_MARK))
            source = chat.pop("source")
            with point("Chats.encoded", self, chat, source):
                weighted = self.encode(without_nulls(chat), source)
            return weighted
        except (AttributeError, LookupError, RecursionError, TemplateError, TypeError, ValueError) as error:
            problem = error if isinstance(error, TemplateError | ValueError) else repr(error)
            raise InputError(f"{source}: {problem}: fix it, or leave it out") from None

    def encode(self, chat: dict[str, Any], source: str) -> np.ndarray:
        prompt = chat.get("prompt")
        completion = chat.get("completion")
        on_all = self.loss_on == "all"
        if "messages" in chat:
            messages, weights = read_messages(chat["messages"], "messages", source)
        elif isinstance(prompt, str) and isinstance(completion, str):
            return self.encode_completion(prompt, completion)
        else:
            prompt_messages, _ = read_messages(prompt, "prompt", source)
            answer, weights = read_messages(completion, "completion", source)
            messages, weights = prompt_messages + answer, [float(on_all)] * len(prompt_messages) + weights
        answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if self.loss_on == "last":
            weights = [weight if i in answers[-1:] else 0 for i, weight in enumerate(weights)]
        tools, names = self.options(chat)
        words = [message.get(name, "").strip() for message in messages for name in ("content", "reasoning_content")]
        messages, tools, names = self.template.marked([messages, tools or None, names])

        @functools.cache
        def render(count: int, add_generation_prompt: bool = False) -> str:
            """Returns the text of the first messages, with END before and after each block of `{% generation %}`."""
            options = names | {"generation_mark": END}
            text = self.template.render(messages[:count], tools, options, add_generation_prompt)
            return re.sub(f"[{OPEN}{CLOSE}]", "", text) if self.tokenizer.parses_special else text

        parts = render(len(messages)).split(END)
        default = float(on_all)
        text = "".join(parts)
        ends = [0, *itertools.accumulate(map(len, parts))]
        blocks = list(zip(ends[1::2], ends[2::2], strict=False)) if len(parts) % 2 else []
        if len(blocks) == len(answers):
            spans = [(*block, weights[i]) for block, i in zip(blocks, answers, strict=True)]
        elif blocks and self.loss_on == "assistant" and len({weights[i] for i in answers}) == 1:
            spans = [(*block, weights[answers[0]]) for block in blocks]  # not one a message, but all weigh the same
        else:
            spans = [(*self.difference(i, text, render), weights[i]) for i in answers if weights[i] != default]
        if any(word not in re.sub(f"[{OPEN}{CLOSE}]", "", text) for word in words):
            warn_of_chat("with words that the chat template leaves out or changes", source)
        places = list[tuple[int, int, int]]()
        start = 0
        for mark, part in self.template.parts(text):
            places += locate(self.template.tokenizer if mark == CLOSE else self.tokenizer.tokenizer, part, start)
            start += len(part) + 1  # and the mark after it
        return weigh(places, spans, default)

    def difference(self, i: int, text: str, render: Callable[..., str]) -> tuple[int, int]:
        """Returns start and end of message i in the text, less its generation prompt. Raises ValueError if unclear."""
        with contextlib.suppress(TemplateError):  # of messages that do not begin a chat
            before, after = (x.replace(END, "") for x in (render(i, True), render(i + 1)))
            if text.startswith(after) and after.startswith(before):
                return len(before), len(after)
        advice = (
            f"give --loss-on {'' if self.loss_on == 'last' else 'last, or '}all, or a template with generation blocks"
        )
        raise ValueError(f"where message {i} begins and ends in the template's text is uncertain: {advice}")

    def encode_completion(self, prompt: str, completion: str) -> np.ndarray:
        """Returns the tokens of a prompt and its completion that need no template."""
        tokenizer = self.tokenizer
        text = prompt + completion
        if not completion:
            raise ValueError("completion says nothing")
        if isinstance(tokenizer, ByteTokenizer):
            places = [(byte, i, i + 1) for i, character in enumerate(text) for byte in character.encode()]
        else:
            places = locate(tokenizer.tokenizer, text)
        size = len(text)
        end = [] if places[-1][0] == tokenizer.eos else [tokenizer.eos]
        places = [*((i, 0, 0) for i in tokenizer.prefix), *places, *((i, size, size + 1) for i in end)]
        return weigh(places, [(len(prompt), size + 1, 1)], float(self.loss_on == "all"))


def print_chat_warnings() -> None:
    """Prints how many chats were not taken as they are, and how."""
    for what, sources in WARNED_CHATS.items():
        print(f"chats {what}: {len(sources):,}{' or more' if len(sources) == MAX_WARNED_CHATS else ''}")


@splice("train.end")
def _():
    print_chat_warnings()
