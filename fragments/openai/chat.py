"""Chats as a checkpoint's own template writes them."""

import datetime
import json
import re

import jinja2
from etils import epath
from jinja2.sandbox import ImmutableSandboxedEnvironment

from generator.language.roles import ByteTokenizer, FileTokenizer, InputError

BREAK = "\ufdd0"  # no character, and so in no text


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


class ChatTemplate:
    """From messages to tokens by a template of Jinja, which reaches nothing of this program, as in transformers.

    The template's special tokens are tokens; those in what a message says stay text, so that none ends it early.
    """

    def __init__(self, text: str, tokenizer: FileTokenizer):
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
        environment.globals["raise_exception"] = raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        # blocks that transformers knows, and that change no text
        text = re.sub(r"({%-?\s*)generation\b", r"\1if true", re.sub(r"({%-?\s*)endgeneration\b", r"\1endif", text))
        self.template = environment.from_string(text)
        self.tokenizer = tokenizer.parsing
        self.names = tokenizer.names | {"add_generation_prompt": True, "tools": None, "documents": None}
        inside = (f"(?<={re.escape(name[0])})(?={re.escape(name[1:])})" for name in tokenizer.special.values())
        self.inside = re.compile("|".join(inside) or "(?!)")  # special tokens

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        """Raises jinja2.TemplateError for messages that the template does not take."""
        messages = [x | {"content": self.inside.sub(BREAK, x["content"].replace(BREAK, ""))} for x in messages]
        text = self.template.render(messages=messages, **self.names)
        parts = self.tokenizer.encode_batch_fast(text.split(BREAK), add_special_tokens=False)
        return [token for part in parts for token in part.ids]


def load_chat_template(tokenizer: ByteTokenizer | FileTokenizer, path: str) -> ChatTemplate | None:
    """The template beside a tokenizer.json, in a file of its own or in tokenizer_config.json; None: there is none."""
    if isinstance(tokenizer, ByteTokenizer):
        return None
    file, settings = (epath.Path(path).with_name(name) for name in ("chat_template.jinja", "tokenizer_config.json"))
    try:
        text = json.loads(settings.read_text()).get("chat_template") if settings.exists() else None
        if isinstance(text, list):  # several, with names
            text = {entry["name"]: entry["template"] for entry in text}.get("default")
        text = file.read_text() if file.exists() else text
        return ChatTemplate(text, tokenizer) if text else None
    except (jinja2.TemplateError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: the chat template beside it cannot be read: {error}: fix or remove it") from None
