"""Rendering of chat templates in a separate process with limits on time and memory.

A template is code from a checkpoint: Jinja's sandbox restricts what it can access, but not its time or memory.
"""

import datetime
import json
import re
import resource
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

RENDER_MEMORY = 2**30  # bytes of the process


def raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def to_json(x: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment() -> ImmutableSandboxedEnvironment:
    """Creates the environment that transformers provides to chat templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


class Templates:
    """Chat templates by name."""

    def __init__(self) -> None:
        self.environment, self.compiled = make_environment(), dict[str, jinja2.Template]()

    def load(self, texts: dict[str, str]) -> dict[str, list[str]]:
        """Compiles templates, and returns the variables that each reads."""
        found = {}
        for name, text in texts.items():
            # blocks of transformers' own, which do not change the text
            text = re.sub(r"({%-?\s*)generation\b", r"\1if true", text)
            text = re.sub(r"({%-?\s*)endgeneration\b", r"\1endif", text)
            self.compiled[name] = self.environment.from_string(text)
            found[name] = sorted(meta.find_undeclared_variables(self.environment.parse(text)))
        return found

    def render(self, name: str, names: dict[str, Any], most: int) -> str:
        """Renders a template to at most `most` characters."""
        text = self.compiled[name].render(names)
        if len(text) > most:
            raise OverflowError(f"its output has more than {most:,} characters")
        return text


def main() -> None:
    """Serves a connection, given its file descriptor and a time limit in seconds for each request, until it closes."""
    resource.setrlimit(resource.RLIMIT_AS, (RENDER_MEMORY, RENDER_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection, templates = Connection(int(sys.argv[1])), Templates()
    connection.send_bytes(b"{}")  # ready; starting may take longer than the time limit
    while True:
        try:
            asked = json.loads(connection.recv_bytes())
        except EOFError:
            return
        signal.alarm(int(sys.argv[2]))  # kills this process
        try:
            reply = {"result": templates.load(asked["texts"]) if "texts" in asked else templates.render(**asked)}
        except Exception as error:  # templates may raise anything
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.alarm(0)
        connection.send_bytes(json.dumps(reply).encode())


if __name__ == "__main__":
    main()
