"""Programs made up at random: what they may be made of, their hosts, and the fragments that they read and give values by."""

from __future__ import annotations

import re

from hypothesis import strategies as st

FUNCTION = [  # how a function N is called with {x}; the first eight are followed
    *("{f}({x})", "{f}(x={x})", "{f}({x}, 5)", "{f}({x}, y=5)", "{f}(y=5, x={x})", "jax.checkpoint({f})({x})"),
    *("jax.jit(lambda v: {f}(v))({x})", "sum({f}(v) for v in [{x}])", "{f}(*[{x}])", "{f}(**dict(x={x}))"),
    *("jax.jit({f})({x})", "jax.checkpoint(jax.jit({f}))({x})", "jax.vmap({f})({x})", "jax.tree.map({f}, {x})"),
    *("jax.lax.cond(True, {f}, {f}, {x})", "[{f}][0]({x})", "list(map({f}, [{x}]))[0]", "{{1: {f}}}[1]({x})"),
    *("(lambda v: {f}(v))({x})", "(lambda f: f({x}))({f})", "[{f}(v) for v in [{x}]][0]", "[{f}(p) for p in [{x}]][0]"),
    *("jax.grad({f})({x})", "jax.grad({f}, argnums=1)({x}, 5)", "jax.grad({f}, 1)({x}, 5)", "(step := {f})({x})"),
    *("jax.jit({f}, static_argnums=(1,))({x}, 5)", "jax.jit({f}, **{{}})({x})", "sorted([{x}], key={f})[0]"),
    *("({f} if {x} else {f})({x})", "apply({f}, {x})", "apply(f={f}, x={x})", "jax.checkpoint(f={f})({x})"),
    *("jax.checkpoint({f}, static_argnums=(1,))({x}, 5)", "jax.checkpoint(jax.checkpoint({f}))({x})"),
    *("functools.partial(jax.jit, {f})()({x})", "(lambda checkpoint: checkpoint({f})({x}))(lambda f: f)"),
    *("saved({f})({x})", "twice({f})({x})", "scan({f}, {x}, 5)", "checkpoint({f}, {x})", "TABLE[1]({x}) + {f}({x})"),
]
INSTANCE = [  # how an instance {i} of the class {k} is called; the first six are followed, where it says its class
    *("{i}({x})", "{i}(x={x})", "{i}.act({x})", "typed{k}({i}, {x})", "sum({i}(v) for v in [{x}])", "{i}({x}, y=5)"),
    *("jax.checkpoint({i})({x})", "jax.jit({i})({x})", "jax.vmap({i})({x})", "[{i}][0]({x})"),
    *("[c({x}) for c in [{i}]][0]", "(lambda c: c({x}))({i})", "apply({i}, {x})", "({i} or None)({x})"),
    *("getattr({i}, 'a' + 'ct')({x})", "getattr({i}, 'act')({x})", "Holder({i}).held({x})", "Holder({i}).call({x})"),
    *("list(map({i}.act, [{x}]))[0]", "jax.tree.map({i}, {x})", "called({i}, {x})", "anything({i}, {x})"),
    *("type({i}).act({i}, {x})", "type({i})()({x})", "{i}.__class__()({x})", "max([{x}], key={i})"),
    *("{i}.__call__({x})", "sum(c.act({x}) for c in [{i}])", "dict(a={i})['a']({x})", "stored({i}).pop()({x})"),
    *("jax.lax.cond(True, {i}, {i}, {x})", "given({i})({x})", "given(given)({i})({x})", "(lambda: {i})()({x})"),
    *("[(lambda v: c(v))({x}) for c in (lambda: [{i}])()][0]", "(c := {i})({x})", "jax.jit(lambda: {i})()({x})"),
    *("listed{k}([{i}], {x})", "jax.jit(given)({i})({x})", "jax.jit(called)({i}, {x})", "kept{k}({i}).held({x})"),
    *("functools.reduce(lambda v, c: c(v), [{i}], {x})", "jax.vmap(lambda v: {i})({x})({x})", "heir{k}({x})"),
    *("({i} if {x} else None)({x})", "getattr(Holder({i}), 'held')({x})", "getattr(Holder({i}), 'he' + 'ld')({x})"),
    *("list(map([{i}][0].act, [{x}]))[0]", "[c({x}) for c in yielded({i})][0]", "apply(*[{i}, {x}])"),
    *("apply(**dict(f={i}, x={x}))", "default{k}({x})", "rebound{k}({i}, {x})", "rest{k}([{i}]).held[0]({x})"),
    *("placed({i}, {x})", "apply({i}.act, {x})", "[{i}.act][0]({x})", "jax.vmap({i}.act)({x})"),
]
SHAPES = [  # statements around a call; {c} is the call with {x} as its argument, {f} a name of what is called
    *("z = {c}", "z = {c}\nz = z + {c}", "if x > 2:\n    z = {c}\nelse:\n    z = 1", "for v in [1, 2]:\n    z = {c}"),
    *(
        "def inner(v):\n    z = {c}\n    return z\nz = inner(x)",
        "def inner(p):\n    z = {c}\n    return z\nz = inner(x)",
    ),
    *("def inner(v):\n    return {c}\nz = jax.jit(inner)(x)", "def inner(v, w):\n    v = {c}\n    return v, None\n"),
    *("with quiet():\n    z = {c}", "while True:\n    z = {c}\n    break", "try:\n    z = {c}\nfinally:\n    x = x"),
    *(
        "step = {f}\nz = step(x)",
        "step = jax.jit({f})\nz = step(x)",
        "step = {f}\nif x > 2:\n    step = abs\nz = step(x)",
    ),
    *(
        "step = jax.grad({f}, argnums=1)\nz = step(x, 5)",
        "for {f} in [abs]:\n    z = {f}(x)",
        "{f}, z = abs, 1\nz = {f}(x)",
    ),
    *("z = (lambda {f}: {f}(x))(abs)", "z = [{f}(x) for {f} in [abs]][0]", "with quiet(abs) as {f}:\n    z = {f}(x)"),
    *("class K:\n    def go(self, v):\n        return {c}\nz = K().go(x)", "class K:\n    held = {f}\nz = K.held(x)"),
    *("def inner(v, step={f}):\n    return step(v)\nz = inner(x)", "x = x + 100\nz = {c}", "x, z = 7, 1\nz = {c}"),
    *("for step in [{f}]:\n    z = step(x)", "step = abs\nfor step in [{f}]:\n    z = step(x)"),
    *("steps = {{}}\nsteps['a'] = {f}\nz = steps['a'](x)", "steps = []\nsteps.append({f})\nz = steps.pop()(x)"),
    *("step = jax.checkpoint\nz = step({f})(x)", "step = jax.jit\nfor step in [abs]:\n    pass\nz = step({f})(x)"),
    *("step = lambda: {f}\nz = step()(x)", "match [{f}]:\n    case [step]:\n        z = step(x)"),
    *("step = None\ndef choose():\n    nonlocal step\n    step = {f}\nchoose()\nz = step(x)", "z = ({f} := abs)(x)"),
    *("from builtins import abs as {f}\nz = {f}(x)", "match abs:\n    case {f}:\n        z = {f}(x)"),
    *(
        "class {f}:\n    def __new__(cls, v):\n        return v\nz = {f}(x)",
        "def inner(v={c}):\n    return v\nz = inner()",
    ),
    *("if x > 2:\n    def inner(v):\n        return {c}\nelse:\n    def inner(v):\n        return v\nz = inner(x)",),
    *("z = x\nif x > 2:\n    p = 3\n    z = {c}", "p = 4\nz = {c}", "z = max({c}, -99)", "z = [{c}, 2][0]"),
]
functions = st.one_of(*[st.sampled_from(FUNCTION[:8])] * 3, st.sampled_from(FUNCTION))
instances = st.one_of(*[st.sampled_from(INSTANCE[:6])] * 3, st.sampled_from(INSTANCE))
shapes = st.one_of(st.sampled_from(SHAPES[:5]), st.sampled_from(SHAPES))
plain = st.sampled_from([True, True, False])  # whether there is a call by name as well
owners = st.sampled_from(["held", "held", "self", "C()", "untyped"])  # what an instance is, where it is called
HEAD = "import functools\nimport jax\nfrom generator.language import point\n\n"
HELPERS = {  # functions that call what they are given, or give it back; a program has those that it uses
    "apply": "def apply(f, x):\n    return f(x)\n\n",
    "Holder": "class Holder:\n    def __init__(self, held):\n        self.held = held\n\n"
    "    def call(self, x):\n        return self.held(x)\n\n",
    "called": "def called(thing, x):\n    return thing(x)\n\n",
    "anything": "def anything(thing: object, x):\n    return thing(x)\n\n",
    "stored": "def stored(thing):\n    things = []\n    things.append(thing)\n    return things\n\n",
    "given": "def given(thing):\n    return thing\n\n",
    "yielded": "def yielded(thing):\n    yield thing\n\n",
    "saved": "def saved(f):\n    return jax.checkpoint(f)\n\n",
    "twice": "def twice(f):\n    return lambda x: f(x) + f(x)\n\n",
    "scan": "def scan(f, x, y):\n    return f(x, y)\n\n",
    "checkpoint": "def checkpoint(f, x):\n    return f(x)\n\n",
    "placed": "class Shelf:\n    pass\n\ndef placed(thing, x):\n    shelf = Shelf()\n    setattr(shelf, 'one', thing)\n"
    "    return getattr(shelf, 'o' + 'ne')(x)\n\n",
    "TABLE": "TABLE = {1: abs}\n\n",
}
TYPED = {  # those that declare its class
    "typed": "def typed{k}(thing: C{k}, x):\n    return thing(x)\n\n",
    "listed": "def listed{k}(things: list[C{k}], x):\n    return things[0](x)\n\n",
    "kept": "class kept{k}:\n    held: C{k}\n\n    def __init__(self, held: C{k}):\n        self.held = held\n\n",
    "rest": "class rest{k}:\n    held: list[C{k}]\n\n    def __init__(self, held):\n        self.held = held\n\n",
    "rebound": "def rebound{k}(thing: C{k}, x):\n    thing = thing(x)\n    return thing\n\n",
    "default": "def default{k}(x, f=None):\n    f = f or C{k}()\n    return f(x)\n\n",
    "heir": "def heir{k}(x):\n    class Heir(C{k}):\n        pass\n    return Heir()(x)\n\n",
}


@st.composite
def programs(draw) -> dict:
    """Functions and classes, of which 0 provides p and calls the rest; each reads p, or emits, where drawn."""
    size = draw(st.integers(2, 5))
    nodes = []
    for number in range(size):
        callees = (
            [draw(st.integers(number + 1, size - 1)) for _ in range(draw(st.integers(0, 2)))]
            if number + 1 < size
            else []
        )
        if number == 0 and not callees:
            callees = [1]
        nodes.append(
            {
                "class": number > 0 and draw(st.booleans()),
                "reads": draw(st.booleans()),
                "provides": number == 0 or draw(st.integers(0, 5)) == 0,
                "made": draw(st.sampled_from([f"x * 7 + {number}", "x"])),
                "recursive": number > 0 and draw(st.integers(0, 5)) == 0,
                "calls": [
                    (k, draw(functions), draw(instances), draw(shapes), draw(plain), draw(owners)) for k in callees
                ],
            }
        )
    for number in range(1, size):
        if not any(call[0] == number for node in nodes for call in node["calls"]):
            caller = nodes[draw(st.integers(0, number - 1))]
            call = (number, draw(functions), draw(instances), draw(shapes), draw(plain), draw(owners))
            caller["calls"].append(call)
    return {"nodes": nodes, "emits": draw(st.one_of(st.none(), st.integers(1, size - 1)))}


def host_of(program: dict) -> str:
    """The program as a fragment."""
    text = ""
    for number, node in enumerate(program["nodes"]):
        lines, kept = [f'point("at{number}", x)', "total = x"], []
        for place, (k, by_name, by_instance, shape, plainly, owner) in enumerate(node["calls"]):
            called, x = f"f{k}", "v" if shape.startswith(("def inner(v", "class K:\n    def")) else "x"
            if program["nodes"][k]["class"]:
                if owner == "self" and node["class"] and "class K" not in shape:
                    called = f"self.c{k}"
                    kept.append(f"self.c{k} = C{k}()")
                elif owner == "C()":
                    called = f"C{k}()"
                else:
                    called = f"held{place}"
                    lines.append(f"{called}{f': C{k}' if owner == 'held' else ''} = C{k}()")
            name = f"f{k}"
            if program["nodes"][k]["class"] and "{f}" in shape:
                name = f"thing{k}"
                lines.append(f"{name}: C{k} = C{k}()")
            if plainly:  # so that it has a caller, whatever the other one is
                is_class = program["nodes"][k]["class"]
                lines += (
                    [f"plain{place}: C{k} = C{k}()", f"x = x + plain{place}(x)"] if is_class else [f"x = x + f{k}(x)"]
                )
            form = by_instance if program["nodes"][k]["class"] else by_name
            lines += shape.format(c=form.format(f=called, i=called, x=x, k=k), f=name).rstrip("\n").split("\n")
            if shape.startswith("def inner(v, w"):
                lines.append("z, _ = jax.lax.scan(inner, x, [1, 2])")
            lines.append("total = total * 3 + z")
        own = "self" if node["class"] else f"f{number}"
        lines += [f"if y < 3:\n    total = total + {own}(x - 9, y + 1)"] if node["recursive"] else []
        lines += ['point("end", total)'] if number == 0 else []
        body = "".join(f"    {line}\n" for part in [*lines, "return total"] for line in part.split("\n"))
        if node["class"]:
            made = "".join(f"    {line}\n" for line in dict.fromkeys(kept))
            method = (f"def __init__(self):\n{made}\n" if made else "") + f"def __call__(self, x, y=1):\n{body}"
            again = "def act(self, x):\n    return self(x)\n"
            text += f"class C{number}:\n" + re.sub("^(?=.)", "    ", method + "\n" + again, flags=re.M) + "\n"
        else:
            text += f"def f{number}(x, y=1):\n{body}\n"
    used = [helper for word, helper in HELPERS.items() if re.search(rf"(?<!\.)\b{word}\b", text)]
    used += [t.format(k=k) for word, t in TYPED.items() for k in range(1, 5) if f"{word}{k}(" in text]
    return HEAD + "".join(used) + text


def features_of(program: dict) -> str:
    text = "from generator.language import emit, provide, splice\n\n"
    for number, node in enumerate(program["nodes"]):
        site = f"C{number}.__call__" if node["class"] else f"f{number}"
        if node["provides"]:
            text += f'@provide("{site}")\ndef p(x):\n    return {node["made"]}\n\n'
        if node["reads"]:
            text += f'@splice("at{number}")\ndef _(x, p):\n    x = x + p\n\n'
    if program["emits"]:
        text += f'@splice("at{program["emits"]}")\ndef _(x):\n    aux = x * 2\n    emit(aux)\n\n'
        text += '@splice("end")\ndef _(total, aux):\n    total = total + flat(aux)\n\n'
    return text
