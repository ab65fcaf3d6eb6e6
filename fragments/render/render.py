"""Rendering of chat templates in a separate process with limits on time and memory.

A template is code from a checkpoint: Jinja's sandbox restricts what it can access, but not its time or memory.
"""

import datetime
import json
import re
import resource
import signal
import sys
from typing import Any

import jinja2
from jinja2 import meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from generator.language import point

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
    point("make_environment.made", environment)
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def without_generation(text: str) -> str:
    """Replaces blocks of transformers' own, which do not change what is rendered."""
    text = re.sub(r"({%-?\s*)generation\b", r"\1if true", text)
    return re.sub(r"({%-?\s*)endgeneration\b", r"\1endif", text)


def main() -> None:
    """Answers each line of JSON by another, in as many seconds as the first argument says.

    {"texts"}: templates by name, answered by the variables that each reads; {"name", "names", "most"}: by a text, or
    null if it has more characters.
    """
    resource.setrlimit(resource.RLIMIT_AS, (RENDER_MEMORY, RENDER_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    environment = make_environment()
    for line in sys.stdin:
        signal.alarm(int(sys.argv[1]))  # kills this process
        try:
            call = json.loads(line)
            if "texts" in call:
                with point("render.texts", call):
                    texts = {name: without_generation(text) for name, text in call["texts"].items()}
                templates = {name: environment.from_string(text) for name, text in texts.items()}
                trees = {name: environment.parse(text) for name, text in texts.items()}
                result = {name: sorted(meta.find_undeclared_variables(tree)) for name, tree in trees.items()}
            else:
                result = templates[call["name"]].render(call["names"])
                if len(result) > call["most"]:
                    result = None
            reply = {"result": result}
        except Exception as error:  # templates may raise anything
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        signal.alarm(0)
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
