"""Chat templates of checkpoints."""

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etils import epath
from tokenizers import Tokenizer, models

from generator.language import requires
from generator.language.roles import AnyTokenizer, ByteTokenizer, FileTokenizer, InputError

requires("render")  # run as a program, not imported

# marks around text that looks like a special token, and the end of a continued message: noncharacters of Unicode
OPEN = "\ufdd0"


CLOSE = "\ufdd1"


END = "\ufdd2"


SECONDS = 5  # time limit of a template


class TemplateError(Exception):
    """A template rejects its input, or takes too long."""


class TooLong(TemplateError):
    """The text of a chat has more characters than it may have."""


def without_halves(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON and Jinja can hold and UTF-8 cannot, by U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


class Renderer:
    """The process that renders chat templates, restarted after it exceeds its time or memory."""

    def __init__(self, texts: dict[str, str], seconds: int = SECONDS):
        self.texts = texts
        self.seconds = seconds
        self.lock = threading.Lock()
        self.variables: dict[str, list[str]] = self.start()

    def start(self) -> Any:
        # -P, as modules beside this one share names with the standard library; the API key stays out of its environment
        command = [sys.executable, "-P", Path(__file__).with_name("render.py"), str(self.seconds)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SERVE_")}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        self.stop = weakref.finalize(self, stop, self.process)
        return self.ask(texts=self.texts)

    def ask(self, **call: Any) -> Any:
        line = ""
        with contextlib.suppress(OSError):  # the process has ended
            print(json.dumps(call), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        if not line:
            self.stop()
            raise TemplateError("it takes too much time or memory")
        reply = json.loads(line)
        if "error" in reply:
            raise TemplateError(without_halves(reply["error"]))
        return reply["result"]

    def render(self, name: str, names: dict[str, Any], most: int) -> str:
        with self.lock:
            if not self.stop.alive:
                self.start()
            text = self.ask(name=name, names=names, most=most)
        if text is None:
            raise TooLong(f"its output has more than {most:,} characters")
        return without_halves(text)


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def strings(value: Any) -> Iterator[str]:
    """Yields all strings in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in (part for pair in value.items() for part in pair) if isinstance(value, dict) else value:
            yield from strings(part)


def replaced(value: Any, texts: Iterator[str]) -> Any:
    """Replaces the strings of a JSON value, in the order of `strings`."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, dict):
        return {next(texts): replaced(part, texts) for part in value.values()}
    return [replaced(part, texts) for part in value] if isinstance(value, list) else value


def for_template(message: dict[str, Any]) -> dict[str, Any]:
    """Converts a message to what chat templates expect: content as text, arguments of calls parsed."""
    if isinstance(message.get("content"), list):
        message["content"] = "".join(part["text"] for part in message["content"])
    if message.get("reasoning_content"):
        message["thinking"] = message["reasoning_content"]  # as gpt-oss calls it
    for call in message.get("tool_calls", []):
        arguments = call["function"].get("arguments", "{}")
        with contextlib.suppress(ValueError):  # invalid JSON from a model: the template gets the text
            call["function"]["arguments"] = json.loads(arguments) if isinstance(arguments, str) else arguments
    return message


class ChatTemplate:
    """Tokenizes messages with a Jinja template, as transformers does.

    Special tokens of the template are tokens; in the content of messages they stay text, so that none can end a turn.
    """

    def __init__(self, texts: dict[str, str], tokenizer: FileTokenizer):
        """Takes templates by name: "default", and optionally "tool_use" for chats with tools."""
        self.renderer = Renderer(texts)
        self.texts = texts
        self.plain = tokenizer
        self.tokenizer, self.names = tokenizer.parsing, tokenizer.names
        # finds special tokens as the tokenizer does; everything else is one unknown word
        self.finder = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
        if self.tokenizer.normalizer:
            self.finder.normalizer = self.tokenizer.normalizer
        self.finder.add_special_tokens([x for x in self.tokenizer.get_added_tokens_decoder().values() if x.special])

    def marked(self, value: Any) -> Any:
        """Marks everything in a JSON value that looks like a special token."""
        text = END.join(re.sub(f"[{OPEN}-{END}]", "", without_halves(text)) for text in strings(value))
        (encoding,) = self.finder.encode_batch([text], add_special_tokens=False)
        parts = []
        done = 0
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token:
                parts += [text[done:start], OPEN, text[start:end], CLOSE]
                done = end
        return replaced(value, iter("".join([*parts, text[done:]]).split(END)))

    def reads(self, name: str) -> bool:
        """Returns whether any template reads the variable."""
        return any(name in names for names in self.renderer.variables.values())

    def render(self, messages: Any, tools: Any, names: Any, add_generation_prompt: bool, most: int = 2**31) -> str:
        """Returns the text of a chat whose strings are `marked`."""
        variables = {"documents": None, **(names or {}), **self.names, "messages": messages, "tools": tools}
        template = "tool_use" if tools and "tool_use" in self.texts else "default"
        return self.renderer.render(template, {**variables, "add_generation_prompt": add_generation_prompt}, most)

    def parts(self, text: str) -> list[tuple[str, str]]:
        """Returns the parts of a rendered text: OPEN and what stays text, or CLOSE and any other."""
        first, *rest = re.split(f"([{OPEN}{CLOSE}])", text)
        return [(CLOSE, first), *zip(rest[::2], rest[1::2], strict=True)]

    def encode(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        most: int = 2**31,
        names: dict[str, Any] | None = None,
    ) -> list[int]:
        """Returns the tokens of a chat. Raises TemplateError if the template rejects it.

        Args:
            continue_final_message: end the text with the content of the last message.
            most: maximum number of characters of the text.
            names: more variables of the template.
        """
        messages, tools, names = self.marked([messages, tools, names])
        if continue_final_message:
            messages[-1]["content"] = messages[-1].get("content", "") + END + " "
        text = self.render(messages, tools, names, add_generation_prompt, most)
        if continue_final_message:
            before, end, after = text.rpartition(END)
            if not end:
                raise TemplateError("it drops the end of the last message, which cannot be continued")
            text = before if after.startswith(" ") else before.rstrip()
        parts = self.parts(text)
        if len(parts) > most:
            raise TooLong(f"its output has more than {most:,} characters")
        batch = self.tokenizer.encode_batch_fast([p for mark, p in parts if mark == CLOSE], add_special_tokens=False)
        plain = iter(batch)
        ids = (next(plain).ids if mark == CLOSE else self.plain.encode(part) for mark, part in parts)
        return list(itertools.chain.from_iterable(ids))


def load_chat_template(tokenizer: AnyTokenizer, path: str) -> ChatTemplate | None:
    """Loads the templates beside a tokenizer.json, from their own files or tokenizer_config.json, if there are any."""
    if isinstance(tokenizer, ByteTokenizer):
        return None
    folder = epath.Path(path).parent
    settings, file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    more = folder / "additional_chat_templates" / "tool_use.jinja"
    try:
        template = json.loads(settings.read_text()).get("chat_template") if settings.exists() else None
        if more.is_dir() or Path(more).is_fifo():  # a pipe never ends
            raise ValueError(f"{more} is not a file")
        texts = {x["name"]: x["template"] for x in template} if isinstance(template, list) else {"default": template}
        texts |= {name: x.read_text() for name, x in (("default", file), ("tool_use", more)) if x.exists()}
        texts = {name: texts[name] for name in ("default", "tool_use") if texts.get(name)}
        return ChatTemplate(texts, tokenizer) if "default" in texts else None
    except (TemplateError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the chat template beside it cannot be read: {error}: fix or remove it") from None
