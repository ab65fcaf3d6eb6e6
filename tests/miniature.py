"""Miniature fragments for tests of the weaver: woven by the operators alone, or into a whole package."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from generator.code.bindings import free_names, scopes_of
from generator.code.black import run_black
from generator.code.format import format_python
from generator.code.traced import Traced
from generator.code.tree import TracedTree
from generator.errors import LoomError
from generator.language.fragment import Fragment, parse_fragment
from generator.language.grammar import LANGUAGE
from generator.package.package import Package
from generator.recipe.library import Library
from generator.thread.thread import thread
from generator.tidy import tidy as seams
from generator.tidy.tidy import indentation
from generator.weave.fill import fill
from generator.weave.link import collect_definitions
from generator.weave.splice import weave_splices
from generator.weaver import weave

PACKAGE = """\
exports = ["model"]

[folders]
model = "model.py"
train = "train.py"

[config]
documentation = "Settings."

[documentation]
"__init__.py" = "A miniature."
"config.py" = "The settings."
"""
ARCHITECTURE = 'title = "Toy"\n'
TARGET = 'title = "Anywhere"\n'
VALUE = """
    from generator.language import provide, splice

    @provide("site")
    def p(batch):
        return batch * 10

    @splice("here")
    def _(x, p):
        x = x + p
"""


def tidy(text: str) -> str:
    """A text without the indentation that it has in a test, formatted."""
    return run_black([Traced.copy(dedent(text), "a.py")])[0]


def with_imports(text: str) -> str:
    """A fragment with the imports of the language that a test leaves out, at its end, so that lines keep numbers."""
    text = dedent(text).lstrip("\n")
    try:
        words = sorted((LANGUAGE - scopes_of(TracedTree(Traced.copy(text, "a.py"))).module.bound) & {*free_names(text)})
    except (LoomError, SyntaxError, ValueError, RecursionError):  # which a test is about
        return text
    return "\n".join([text.rstrip("\n"), f"from generator.language import {', '.join(words)}\n"]) if words else text


def fragments(**texts: str) -> list[Fragment]:
    """The fragments `model/NAME`."""
    return [parse_fragment(f"fragments/model/{name}.py", with_imports(text)) for name, text in texts.items()]


def operate(settings: dict[str, object] | None = None, /, **texts: str) -> dict[str, Traced]:
    """Fragments through fill, splice and thread: the text of every definition, linked or not."""
    selected = fragments(**texts)
    collected = collect_definitions(selected, lambda fragment: "model.py")
    definitions = {key: replace(d, text=fill(d.text, settings or {})) for key, d in collected.items()}
    splices = [splice for fragment in selected for splice in fragment.splices]
    providers = [provider for fragment in selected for provider in fragment.providers]
    spliced, needs = weave_splices(definitions, splices)
    imports = {fragment.path: fragment.imports for fragment in selected}
    return {key: definition.text for key, definition in thread(spliced, providers, needs, imports).items()}


def woven(settings: dict[str, object] | None = None, /, **texts: str) -> str:
    """All that `operate` gives as one text, formatted."""
    return format_python([Traced.join(operate(settings, **texts).values())])[0].text


def without_seams(**texts: str) -> str:
    """The text of `woven`, tidied before it is formatted."""
    indent_of = indentation({f"fragments/model/{name}.py": with_imports(text) for name, text in texts.items()})
    return format_python([Traced.join(seams.tidy(text, indent_of) for text in operate(**texts).values())])[0].text


def definition(text: str, name: str) -> str:
    """The definition of a module with its blank line and newline."""
    start = max(text.find(f"class {name}:"), text.find(f"def {name}("))
    return text[start:].split("\n\n\n")[0].rstrip("\n") + "\n"


def run(text: str) -> dict:
    """The names that a woven text defines."""
    names: dict = {}
    exec(compile(text, "<woven>", "exec"), names)
    return names


def check_value(before: str, after: str, result: object, value: str = VALUE, argument: object = 1) -> None:
    """Weaves `before` with the value p, compares, and runs `site`."""
    text = woven(host=before, value=value)
    assert text == tidy(after)
    assert run(text)["site"](argument) == result


def refused(settings: dict[str, object] | None = None, /, **texts: str) -> str:
    """The text of the error that these fragments give."""
    with pytest.raises(LoomError) as raised:
        operate(settings, **texts)
    return str(raised.value)


def message(text: str) -> str:
    """The first line of an error, which has a place, without it; a remedy follows."""
    place, _, rest = text.partition(": ")
    assert place.startswith("fragments/model/") and place.split(":")[1].isdigit(), text
    first, _, remedy = rest.partition("\n  ")
    assert remedy, text
    return first


def files(
    fragments: dict[str, str],
    architecture: str = ARCHITECTURE,
    target: str = TARGET,
    package: str = PACKAGE,
    **others: str,
) -> dict[str, str]:
    """The files of a library whose architecture `toy` selects all these fragments, by name such as `model/rope`."""
    selected = "".join(f'    "{name}",\n' for name in fragments)
    texts = {f"fragments/{name}.py": with_imports(text) for name, text in fragments.items()}
    return {
        **texts,
        "templates/architectures/toy.toml": f"fragments = [\n{selected}]\n{dedent(architecture)}",
        "targets/any/target.toml": dedent(target),
        "templates/package.toml": dedent(package),
        **others,
    }


def package(fragments: dict[str, str], **options: str) -> Package:
    """A whole package, woven from these fragments."""
    return weave("toy", "any", Library(files(fragments, **options)))


def refused_package(fragments: dict[str, str], **options: str) -> str:
    """The text of the error that weaving a package of these fragments gives."""
    with pytest.raises(LoomError) as raised:
        package(fragments, **options)
    return str(raised.value)
