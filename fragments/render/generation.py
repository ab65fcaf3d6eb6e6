"""Marks of what the assistant says, where a template has `{% generation %}` blocks.

Source: the extension of transformers that its assistant masks come from (huggingface/transformers#30650).
"""

from collections.abc import Callable

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context

from generator.language import requires, splice

requires("data/chat_data")


class Generation(Extension):
    """Renders blocks around what the assistant says, with `generation_mark` before and after."""

    tags = frozenset({"generation"})

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("wrap"), [], [], body).set_lineno(line)

    @jinja2.pass_context
    def wrap(self, context: Context, caller: Callable[[], str]) -> str:
        mark = context.get("generation_mark", "")
        return f"{mark}{caller()}{mark}"


@splice("make_environment.made")
def _(environment):
    environment.add_extension(Generation)


@splice("render.texts")
def _(call, texts):
    texts = call["texts"]
