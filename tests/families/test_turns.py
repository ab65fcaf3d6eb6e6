"""Chats of several turns in the forms of published templates: their tokens are those that transformers has for the whole."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import transformers

from families.weaving import LIBRARY, write
from generator.checkpoint.loading import load_package
from generator.weaver import weave

PATH = Path(__file__).resolve().parents[2] / "fragments/tests/chat_forms.py"
SPEC = importlib.util.spec_from_file_location("chat_forms", PATH)
forms = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(forms)
ENDS = ("</s>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|end of sentence|>", "<|END_OF_TURN_TOKEN|>")
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "é"}}\n</tool_call>'
CHATS = [
    forms.say("Hi", "Hello. How are you?", "Fine", "Good.\n\nBye", "日本語 😀", "größer"),
    forms.say("a b", "c d e", "f", "", "h i", "j", system="You answer shortly."),
    [
        *forms.say("look", CALL),
        {"role": "tool", "content": "seen\n"},
        forms.say("", "I see.")[1],
        *forms.say("so", "x"),
    ],
]


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> SimpleNamespace:
    path = write(weave("llama2", "cpu", LIBRARY, parts=("turns",)), tmp_path_factory.mktemp("turns"))
    return load_package(path, ("config", "engine", "errors", "rollouts", "tokenizer", "turns"))


class Oracle:
    """Stands for an engine: it samples what transformers has next, up to a token that ends a turn."""

    queued = running = ()

    def __init__(self, package: SimpleNamespace, whole: list[int], ends: set[int]):
        self.package, self.whole, self.ends = package, whole, ends

    def add(self, prompt: list[int], sampling: object) -> object:
        assert prompt == self.whole[: len(prompt)]
        rest = self.whole[len(prompt) :]
        count = 1 + next(i for i, token in enumerate(rest) if token in self.ends)
        return self.package.engine.Request(prompt, sampling, rest[:count], [-1.0] * count, finish="stop")


def begin(chat: list) -> int:
    """Returns where the assistant is first."""
    return next(i for i, message in enumerate(chat) if message["role"] == "assistant")


def play(package: SimpleNamespace, tokenizer: str, whole: list[int], chat: list, ends: set[int]) -> object:
    """Plays a chat from the first turn of the assistant, where a function answers with the messages that follow."""
    config = dataclasses.replace(package.config.PRESETS["tiny"], tokenizer=tokenizer, completion_tokens=10**6)
    config = dataclasses.replace(config, environment_function="copy:copy", max_turns=9, reward="copy:copy")
    row = package.rollouts.Prompt("x:1", copy.deepcopy(chat[: begin(chat)]), {}, [])
    environment = package.turns.Environment(config, package.tokenizer.load_tokenizer(tokenizer), ends, [row])

    def follow(asked: list) -> list:
        """Returns what each chat has after its turns so far, up to the next one."""
        rests = [chat[len(prompt) + len(said) :] for prompt, said, _ in asked]
        counts = [[*(message["role"] for message in rest), "assistant"].index("assistant") for rest in rests]
        return [rest[:count] for rest, count in zip(rests, counts, strict=True)]

    follow.name = "following"
    environment.function, engine = follow, Oracle(package, whole, ends)
    prompt = environment.chats.template.encode(copy.deepcopy(row.prompt))
    first = engine.add(prompt, package.engine.SamplingParams(seed=1))
    (found,) = environment([row], [first], engine)
    assert sum(x["role"] == "assistant" for x in found.messages) == sum(x["role"] == "assistant" for x in chat)
    return found


@pytest.mark.parametrize("form", forms.CHAT_FORMS)
def test_tokens_are_those_of_the_whole_chat(package, form, tmp_path):
    """And sampled are those of the assistant; a chat that the template does not take is refused."""
    path = forms.save_chat_tokenizer(tmp_path, forms.CHAT_FORMS[form])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=path, bos_token="<s>", eos_token="</s>", chat_template=forms.CHAT_FORMS[form]
    )
    more = theirs.convert_tokens_to_ids(["<|user|>"] if form == "glm" else [])  # where the next turn ends one
    ends, options = {*theirs.convert_tokens_to_ids([*ENDS]), *more}, dict(return_assistant_tokens_mask=True)
    for chat in CHATS[:2] if form == "glm" else CHATS:  # of which <|tool|> is no token
        try:
            wanted = theirs.apply_chat_template(copy.deepcopy(chat), return_dict=True, **options)
        except Exception as error:  # such as of roles that do not alternate
            if chat[0]["role"] == "system":
                continue  # nor does it take the prompt
            asked = theirs.apply_chat_template(chat[: begin(chat)], add_generation_prompt=True, return_dict=False)
            with pytest.raises(package.errors.InputError, match=rf"x:1: following: .* cannot add .*{error}"):
                play(package, path, [*asked, *ends], chat, ends)
            continue
        whole, said = np.array(wanted["input_ids"] + more), np.array(wanted["assistant_masks"] + [0 for _ in more]) > 0
        found = play(package, path, whole.tolist(), chat, ends)
        size, sampled = len(found.sequence), np.zeros(len(whole), bool)
        sampled[len(found.prompt) : size] = ~np.isnan(found.logprobs)
        assert found.sequence == whole[:size].tolist() and not theirs.decode(whole[size:]).strip()
        assert not theirs.decode(whole[said & ~sampled]).strip()
        assert {*whole[sampled & ~said].tolist()} <= {*more}
