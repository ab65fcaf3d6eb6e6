"""Chats of several turns: the model samples those of the assistant, and a function of Python answers them.

Source: Yao et al. 2022, arXiv 2210.03629 (actions and observations in turn); Jin et al. 2025, arXiv 2503.09516, section
3.1 (no loss on tokens that the model did not sample).
"""

import dataclasses
import json
import math
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from generator.language import point, proceed, requires, splice
from generator.language.roles import (
    END,
    OPEN,
    AnyTokenizer,
    Config,
    Engine,
    InputError,
    NonNegativeInt,
    Request,
    Rewards,
    TemplateError,
    ToolCalls,
    WithTemplate,
    estimate_advantages,
    sum_and_count,
)

requires("rollouts", "tool_parser")


class RolloutConfig:
    environment_function: str = ""  # MODULE:FUNCTION that answers a turn, from (messages, **other fields of the row)
    max_turns: NonNegativeInt = 0  # turns of the assistant in a chat at most; 0: one, which no function answers


def find_calls(text: str) -> list[dict[str, Any]]:
    """Returns the tool calls in a text, as chat templates take them."""
    _, calls = ToolCalls().add(text, is_end=True)
    return [{"type": "function", "function": x | {"arguments": json.loads(x["arguments"])}} for x in calls]


def answer(function: Callable, prompt: list[Any], messages: list[Any], row: dict[str, Any]) -> list[Any] | str:
    """Calls the function, in a process of its own. Returns the messages that it adds, or what went wrong."""
    try:
        result = function([*prompt, *messages], **row)
        text = json.dumps([] if result is None else result, ensure_ascii=False)
        # half of a surrogate pair becomes U+FFFD, as in data: a tool may repeat what the model wrote
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if (size := len(text.encode())) > 1_000_000:
            return f"returned {size:,} bytes, and may return 1,000,000"
        added = json.loads(text)
        each = [x if isinstance(x, dict) else {} for x in (added if isinstance(added, list) else [None])]
        if not all(x.get("role") in ("tool", "user") and isinstance(x.get("content"), str) for x in each):
            expected = "None, or a list of messages, each with role tool or user, and a text as content"
            return f"returned {text[:200]}, and must return {expected}"
        return added
    except BaseException as error:  # sys.exit() too
        *_, last = traceback.extract_tb(error.__traceback__)
        return f"{error!r} in {last.filename}:{last.lineno}"


@dataclasses.dataclass(eq=False)
class Conversation(Request):
    """A prompt and all that follows it. Tokens that the model did not sample have NaN as their log-probability."""

    row: Any = None  # the Prompt
    messages: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # after the prompt
    is_unfinished: bool = False  # whether the function did not answer in time


class Environment:
    """Continues chats: a function answers a turn, and the model samples the next one."""

    def __init__(self, config: Config, tokenizer: AnyTokenizer, ends: set[int], rows: list[Any]):
        """Takes all rows, as `Prompt`s. Raises InputError if one is no chat, or the function cannot take it."""
        if not (config.environment_function and config.max_turns and config.reward):
            raise InputError("--environment-function and --max-turns: give both, also to go on, and --reward")
        self.config, self.tokenizer, self.ends = config, tokenizer, ends
        self.chats = WithTemplate(tokenizer, config.tokenizer)
        flag = "--environment-function"
        self.function = Rewards(config.environment_function, config.reward_seconds, flag, answer)
        for row in rows:
            if isinstance(row.prompt, str):
                raise InputError(f"{row.source}: {flag} answers in chats: make the prompt a list of messages")
            self.function.check(row.source, row.fields, ["messages"])

    def __call__(self, rows: list[Any], requests: list[Request], engine: Engine) -> list[Conversation]:
        """Continues chats to their end, from requests for their first turns: the same number for each row."""
        each = [row for row in rows for _ in range(len(requests) // len(rows))]
        chats = [Conversation(x.prompt, x.sampling, row=row) for x, row in zip(requests, each, strict=True)]
        newest = dict(zip(chats, requests, strict=True))
        turn = 0
        while newest:
            turn += 1
            for chat, request in newest.items():
                self.add_turn(chat, request)
            going = [chat for chat in newest if chat.finish == "stop" and turn < self.config.max_turns]
            answers = self.function([(chat.row.prompt, chat.messages, chat.row.fields) for chat in going])
            newest = {}
            for chat, answer in zip(going, answers, strict=True):
                chat.is_unfinished = answer is None
                if answer and (room := self.add_answer(chat, answer)) > 0:
                    # of the first turn's seed and the number of this one
                    (seed,) = np.random.SeedSequence([chat.sampling.seed, turn]).generate_state(1).tolist()
                    sampling = dataclasses.replace(chat.sampling, seed=seed, max_tokens=room)
                    newest[chat] = engine.add(chat.sequence, sampling)
            while engine.queued or engine.running:
                engine.step()
        return chats

    def add_turn(self, chat: Conversation, request: Request) -> None:
        """Adds a turn of the assistant."""
        chat.tokens, chat.logprobs = chat.tokens + request.tokens, chat.logprobs + request.logprobs
        chat.finish = request.finish
        point("Environment.add_turn", chat, request)
        text = self.tokenizer.decode(request.tokens[:-1] if chat.finish == "stop" else request.tokens)
        calls = find_calls(text)
        chat.messages.append({"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {}))

    def add_answer(self, chat: Conversation, answer: list[dict[str, Any]]) -> int:
        """Adds messages after a turn, unless they end the chat. Returns how many tokens the next turn may have."""
        end, *tokens = self.between(chat, answer)
        if end != chat.tokens[-1]:
            return 0  # the model ended its text, but not as a turn ends
        room = self.config.completion_tokens - len(chat.tokens) - len(tokens)
        if room < 1:
            chat.finish = "length"
        else:
            chat.messages, chat.tokens = chat.messages + answer, chat.tokens + tokens
            chat.logprobs = chat.logprobs + [math.nan] * len(tokens)
        return room

    def between(self, chat: Conversation, answer: list[dict[str, Any]]) -> list[int]:
        """Returns the tokens that the template writes after the newest turn, the first of which ends it.

        What the model sampled is not written again: the template gets a mark in its place. Raises InputError if it
        writes what comes before in another way now, or ends a turn by no token that ends a text.
        """
        template = self.chats.template
        tokens = list[int]()
        messages = [*chat.messages, *answer]
        try:
            after = self.render(chat, messages, True)
            # with the generation prompt of the newest turn, or without it, as some templates change it afterwards
            befores = [self.render(chat, chat.messages[:-1], flag) for flag in (True, False)]
            if not any(after[:-2] == x[:-1] and "".join(after[-2:-1]).startswith(x[-1]) for x in befores):
                raise ValueError("it writes what comes before in another way, once these follow")
            if len(self.render(chat, messages, True, ("assistant", "tool", "user"))) <= len(messages):
                raise ValueError("it leaves messages out")
            for mark, part in template.parts(after[-1].lstrip()):
                encoded = template.tokenizer.encode_batch_fast([part], add_special_tokens=False)[0].ids
                tokens += template.plain.encode(part) if mark == OPEN else encoded
            if not tokens or tokens[0] not in self.ends:
                raise ValueError(f"it writes {after[-1][:20]!r} after a turn, and no token that ends a text")
        except (AttributeError, LookupError, RecursionError, TemplateError, TypeError, ValueError) as error:
            what = f"{self.function.name}: the chat template cannot add {str(answer)[:200]}: {error}"
            raise InputError(f"{chat.row.source}: {what}: answer by another role, or give another template") from None
        return tokens

    def render(
        self, chat: Conversation, added: list[Any], add_generation_prompt: bool, roles: tuple[str, ...] = ("assistant",)
    ) -> list[str]:
        """Returns what the template writes around messages of these roles after the prompt, if it leaves none out."""
        tools, names = self.chats.options(chat.row.fields)
        messages, tools, names = self.chats.template.marked([[*chat.row.prompt, *added], tools or None, names])
        for message in messages[len(chat.row.prompt) :]:
            if message["role"] in roles:
                message.pop("tool_calls", None)
                message["content"] = END
        return self.chats.template.render(messages, tools, names, add_generation_prompt).split(END)


@splice("Rollouts.start")
def _(self, config):
    rows = self.prompts + self.held_out_prompts
    is_asked = config.environment_function or config.max_turns
    self.chat_environment = Environment(config, self.tokenizer, self.ends, rows) if is_asked else None


@splice("Rollouts.generated")
def _(self, prompts, engine, requests):
    if self.chat_environment:
        chats = self.chat_environment(prompts, [requests[place] for place in range(len(requests))], engine)
        requests = dict(enumerate(chats))


@splice("Rollouts.metrics")
def _(self, requests, sums):
    if self.chat_environment:
        turns = [sum(message["role"] == "assistant" for message in chat.messages) for chat in requests]
        sums |= {
            "rollout/turns": sum_and_count(turns),
            "rollout/unfinished_answers": sum_and_count([chat.is_unfinished for chat in requests]),
        }


@splice("Rollouts.texts")
def _(self, requests, texts):
    if self.chat_environment:
        texts = [request.messages for request in requests]
    else:
        proceed()


@splice("Rollouts.row")
def _(self, batch, row, first, end, sample):
    is_given = np.isnan(sample.logprobs)  # not sampled
    for field in ("weights", "advantages", "sampled_logprobs"):
        batch[field][row, first:end][is_given] = 0
    if self.config.loss_per == "sequence":
        batch["weights"][row] *= len(is_given) / np.sum(~is_given)


def estimate_of_sampled(
    rewards: list[float], values: list[float], logprobs: list[float], config: Config
) -> list[float]:
    """Returns the advantages of tokens by those that the model sampled alone; of the others 0."""
    is_sampled = ~np.isnan(logprobs)[: len(rewards)]
    advantages = np.zeros(len(rewards))
    sampled_rewards, sampled_values = np.array(rewards)[is_sampled].tolist(), np.array(values)[is_sampled].tolist()
    advantages[is_sampled] = estimate_advantages(sampled_rewards, sampled_values, config)
    return advantages.tolist()


@splice("Rollouts.estimated", optional=True)
def _(sample, config):
    sample.advantages = estimate_of_sampled(sample.advantages, sample.critic_values, sample.logprobs, config)


@splice("Rollouts.together", optional=True)
def _(sampled, advantages):
    is_sampled = [~np.isnan(sample.logprobs)[: len(sample.advantages)] for sample in sampled]
    pairs = zip(sampled, is_sampled, strict=True)
    advantages = np.concatenate([np.array(sample.advantages)[mask] for sample, mask in pairs])
