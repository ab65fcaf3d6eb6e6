"""Messages of chats in rows of data, as chat templates take them."""

import collections
import contextlib
import functools
import importlib.util
import json
import sys
from typing import Any

from generator.language.roles import AnyTokenizer, ChatTemplate, InputError, for_template, load_chat_template

ROLES = "system", "developer", "user", "assistant", "tool"


WARNED_CHATS: collections.defaultdict[str, set[str]] = collections.defaultdict(
    set
)  # sources of chats by what was wrong


MAX_WARNED_CHATS = 100_000  # sources that are kept for each


def warn_of_chat(what: str, source: str) -> None:
    """Warns of the first chat of a kind, of the 10th, the 100th and so on."""
    count = len(WARNED_CHATS[what])
    if count < MAX_WARNED_CHATS:
        WARNED_CHATS[what].add(source)
    if len(WARNED_CHATS[what]) > count and str(count + 1).strip("0") == "1":
        print(f"warning: chats {what}: {count + 1:,} so far, such as {source}", file=sys.stderr)


def without_nulls(value: Any) -> Any:
    """Drops null fields, with which tables fill objects."""
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def json_field(fields: dict[str, Any], name: str, kind: type, where: str = "") -> Any:
    """Returns a field of a chat or a message, which may be JSON in a text; an empty one if it is not there."""
    value = fields.get(name, kind())
    with contextlib.suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    if not isinstance(value, kind) or (kind is list and not all(isinstance(part, dict) for part in value)):
        raise ValueError(f"{where}{name} must be {'a list of objects' if kind is list else 'an object'}")
    return value


def check_content(message: dict[str, Any], what: str) -> None:
    content = message.get("content", "")
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError(f"{what}: content must be text, or a list of parts of type text")
    if not isinstance(message.get("reasoning_content", ""), str):
        raise ValueError(f"{what}: reasoning_content must be text")


def read_messages(messages: Any, name: str, source: str) -> tuple[list[dict[str, Any]], list[float]]:
    """Returns messages as chat templates expect them, and their weights. Raises ValueError if they are none."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"{name} must be a list of messages; prompt and completion may also both be texts")
    weights = []
    for i, message in enumerate(messages):
        what = f"{name}[{i}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ValueError(f"{what} must be an object whose role is one of {', '.join(ROLES)}")
        is_assistant = message["role"] == "assistant"
        weight = message.pop("weight", 1)
        if type(weight) not in (int, float) or not 0 <= weight <= 100 or (weight != 1 and not is_assistant):
            raise ValueError(f"{what}: weight must be a number from 0 to 100, of a message of the assistant")
        check_content(message, what)
        calls = json_field(message, "tool_calls", list, f"{what}: ")
        if not all(isinstance(call.get("function"), dict) for call in calls):
            raise ValueError(f"{what}: each of tool_calls must have a function")
        message |= {"tool_calls": calls} if calls else {}
        if not (for_template(message).get("content") or message.get("reasoning_content") or calls):
            if "content" not in message or (is_assistant and weight):
                raise ValueError(f"{what} says nothing")
            warn_of_chat("with an empty message", source)
        weights.append(weight)
    return messages, weights


class WithTemplate:
    """Finds the chat template beside a tokenizer, and what rows give to it."""

    def __init__(self, tokenizer: AnyTokenizer, path: str):
        """Takes the `path` of the tokenizer, which has the chat template beside it."""
        self.tokenizer, self.path = tokenizer, path

    @functools.cached_property
    def loaded_template(self) -> ChatTemplate | None:
        return load_chat_template(self.tokenizer, self.path) if importlib.util.find_spec("jinja2") else None

    @functools.cached_property
    def template(self) -> ChatTemplate:
        if not importlib.util.find_spec("jinja2"):
            raise InputError("chats need jinja2: pip install jinja2")
        if not self.loaded_template:
            raise InputError(f"--tokenizer {self.path}: chats need a chat template: put chat_template.jinja beside it")
        if self.loaded_template.reads("strftime_now"):
            print(
                f"warning: the chat template beside {self.path} asks for the date, so its tokens change: "
                "set date_string in chat_template_kwargs, or prepare the data",
                file=sys.stderr,
            )
        return self.loaded_template

    def options(self, chat: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the tools of a chat, and other variables of its template. Raises ValueError if it takes none."""
        tools, names = json_field(chat, "tools", list), json_field(chat, "chat_template_kwargs", dict)
        if tools and not self.template.reads("tools"):
            raise ValueError("the chat template does not support tools")
        if reserved := names.keys() & {"messages", "tools", "add_generation_prompt", *self.template.names}:
            raise ValueError(f"chat_template_kwargs must not set {min(reserved)}")
        return tools, names
