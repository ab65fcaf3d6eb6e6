"""Structured outputs: an answer has the form that was asked for, and texts beside it stay what they are alone."""

import json
import re

import numpy as np
import pytest
from etils import epath

from generator.language import requires
from generator.language.roles import (
    CHECKPOINTS,
    LONGEST_GRAMMAR,
    WIDE,
    ByteTokenizer,
    Engine,
    EngineSettings,
    FileTokenizer,
    Grammars,
    RequestError,
    SamplingParams,
    ask,
    complete,
    drafting,
    module,
    save_as_transformers_does,
    save_served,
    served,
    stream,
    token_bytes,
    wide_model,
)

requires("structured/answer_forms")

jsonschema = pytest.importorskip("jsonschema", reason="checks answers: pip install jsonschema")

COLOURS = "red", "blue", "grün"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "c": {"enum": [*COLOURS, None]}},
    "required": ["n", "c"],
    "additionalProperties": False,
}
TOKENIZER = ByteTokenizer()


def check_json(text: str) -> None:
    jsonschema.validate(json.loads(text), SCHEMA)


def forms() -> dict[str, object]:
    """Returns grammars, each with a function that fails for a text of another form."""
    answer_forms = module("answer_forms")
    return {
        f"start: {answer_forms.json_rule(SCHEMA)}": check_json,
        "start: /[ab]{3,9}-[0-9]+x/": lambda text: re.fullmatch("[ab]{3,9}-[0-9]+x", text)[0],
        'start: "red" | "blue" | "grün"': COLOURS.index,
    }


@pytest.mark.parametrize(
    "sizes", [{}, {"kv_cache_tokens": 512, "chunk": 4}, drafting(3)], ids=["wide", "few", "drafts"]
)
def test_texts_have_their_form_beside_free_ones(sizes):
    """With preemption, with drafts that a grammar forbids, and with more sequences than slots."""
    settings = EngineSettings(**{"max_sequences": 4, "page_size": 8, "chunk": 16} | sizes)
    engine = Engine(WIDE, wide_model(), {TOKENIZER.eos}, settings)
    alone = Engine(WIDE, wide_model(), {TOKENIZER.eos}, settings)
    engine.grammars = Grammars(TOKENIZER, engine.ends, WIDE.vocab_size)
    prompts = [list(b"a text to go on with"[: 3 + seed]) for seed in range(8)]
    samplings = [SamplingParams(max_tokens=40, temperature=1.0, seed=seed) for seed in range(8)]
    free = [engine.add(*pair) for pair in zip(prompts, samplings, strict=True)]
    formed = [
        (engine.add(prompt, SamplingParams(max_tokens=400, temperature=1.0, seed=seed, grammar=grammar)), check)
        for seed, prompt in enumerate(prompts)
        for grammar, check in forms().items()
    ]
    while engine.queued or engine.running:
        engine.step()
    for request, check in formed:
        assert request.finish == "stop" and request.tokens[-1] == TOKENIZER.eos
        check(TOKENIZER.decode(request.tokens))
    for request, prompt, sampling in zip(free, prompts, samplings, strict=True):
        (expected,) = alone.generate([prompt], sampling)
        assert request.tokens == expected.tokens


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_any_tokenizer_spells_the_form(kind, tmp_path):
    """Where a space is put before a text, or a token's bytes are apart: tokens at random, of those that are allowed."""
    save_as_transformers_does(kind, tmp_path)
    tokenizer = FileTokenizer(epath.Path(tmp_path / "tokenizer.json"))
    grammars = Grammars(tokenizer, {tokenizer.eos}, tokenizer.vocab_size)
    draw = np.random.default_rng(0)
    for grammar, check in forms().items():
        matcher = grammars.matcher(grammar)
        tokens = []
        while tokens[-1:] != [tokenizer.eos]:
            allowed = np.full((1, -(-tokenizer.vocab_size // 32)), 0, np.int32)
            grammars.fill(allowed, [(0, matcher, [])])
            tokens.append(int(draw.choice(np.flatnonzero(np.unpackbits(allowed.view(np.uint8), bitorder="little")))))
            assert matcher.consume_token(tokens[-1]), matcher.get_error()
        check(b"".join(token_bytes(tokenizer, token) for token in tokens[:-1]).decode())


@pytest.mark.parametrize("sizes", [{}, drafting(3)], ids=["plain", "drafts"])
def test_a_grammar_that_outgrows_its_limits_ends_in_an_error(sizes):
    """And not as if the text matched: what is sampled by the mask that failed is no part of it."""
    engine = Engine(WIDE, wide_model(), {TOKENIZER.eos}, EngineSettings(max_sequences=2, page_size=8, **sizes))
    engine.grammars = Grammars(TOKENIZER, engine.ends, WIDE.vocab_size)
    grammar = f"start: /[ab]{'a?' * 3000}c/"
    requests = [engine.add([5], SamplingParams(max_tokens=50, temperature=1.0, grammar=grammar)) for _ in range(2)]
    while engine.running or engine.queued:
        engine.step()
    for request in requests:
        assert request.finish == "error" and TOKENIZER.eos not in request.tokens
    assert not any(engine.pool.ref_count)


def test_what_is_no_grammar_is_refused():
    engine = Engine(WIDE, wide_model(), {TOKENIZER.eos}, EngineSettings(max_sequences=2, page_size=8))
    with pytest.raises(RequestError, match="knows no tokenizer"):
        engine.add([5], SamplingParams(grammar='start: "x"'))
    engine.grammars = Grammars(TOKENIZER, engine.ends, WIDE.vocab_size)
    chain = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(6_000)} | {"6000": {"type": "string"}}
    chain = {"$ref": "#/$defs/0", "$defs": chain}  # llguidance recurses along it
    engine.add([5], SamplingParams(grammar=f"start: %json {json.dumps(chain)}"))
    wrong = "x", "start: y", "start: /(/", "start: %json {", 'start: %json {"type": 3}', "start: start"
    wrong += 'start: %json {"$ref": "#"}', "#" * LONGEST_GRAMMAR + '\nstart: "x"', 'start: "x"' + "\n" * 3000
    for grammar in wrong:
        with pytest.raises(RequestError, match=r"^grammar: .+") as caught:
            engine.add([5], SamplingParams(grammar=grammar))
        assert caught.value.field == "grammar"
    with pytest.raises(RequestError, match="min_tokens"):
        engine.add([5], SamplingParams(grammar='start: "x"', min_tokens=2))


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("structured") / "hf"
    save_served(folder)
    path = folder / "tokenizer_config.json"
    template = "{% if tools %}<tool_call>{% endif %}{% for message in messages %}{{ message.content }}{% endfor %}"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    with served(folder, "--max-sequences", "4", "--model", "small") as (_, port, _):
        yield port


ASKED = {
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    "json": {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    "choice": {"structured_outputs": {"choice": [*COLOURS]}},
    "regex": {"structured_outputs": {"regex": "[ab]{3}"}},
}


@pytest.mark.parametrize("name", ASKED)
def test_answers_have_the_form_that_a_client_asks_for(port, name):
    checks = {"choice": COLOURS.index, "regex": lambda text: re.fullmatch("[ab]{3}", text)[0]}
    answer = complete(port, prompt="x", max_tokens=400, n=3, seed=1, logprobs=2, **ASKED[name])
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "stop"
        checks.get(name, check_json)(choice["text"])


CHAT = {"messages": [{"role": "user", "content": "hi"}], "temperature": 1.0}
ARGUMENTS = {"properties": {"n": {"enum": [1, None]}}, "required": ["n"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": ARGUMENTS}} for name in ("look", "wait")]
WAIT = {"type": "function", "function": {"name": "wait"}}


@pytest.mark.parametrize("choice", ["required", WAIT], ids=["any", "wait"])
def test_tools_are_called_where_they_must_be(port, choice):
    for seed in range(2):
        fields = CHAT | {"tools": TOOLS, "tool_choice": choice, "seed": seed}
        status, _, answer = ask(port, "/v1/chat/completions", fields)
        assert status == 200, answer
        message = answer["choices"][0]["message"]
        is_cut = answer["choices"][0]["finish_reason"] == "length"  # in a further call, which stays text
        assert message["tool_calls"] and (is_cut or message["content"] is None)
        names = {call["function"]["name"] for call in message["tool_calls"]}
        assert names <= {"look", "wait"} if choice == "required" else names == {"wait"}
        for call in message["tool_calls"]:
            jsonschema.validate(json.loads(call["function"]["arguments"]), ARGUMENTS)
        streamed = [
            call["function"]
            for event in stream(port, "/v1/chat/completions", **fields)
            for call in event["choices"][0]["delta"].get("tool_calls", ())
        ]
        assert streamed == [call["function"] for call in message["tool_calls"]]


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("response_format", {"response_format": {"type": "json_schema"}}),
        ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}}),
        ("response_format", {"response_format": {"type": "json_object"}, "min_tokens": 3}),
        ("structured_outputs", {"structured_outputs": {"regex": "("}}),
        ("structured_outputs", {"structured_outputs": {"regex": "x", "choice": ["y"]}}),
        ("structured_outputs", {"structured_outputs": {"json": "{"}}),
        ("structured_outputs", {"structured_outputs": {"json": '{"items":' * 5000 + "1" + "}" * 5000}}),
        ("structured_outputs", {"structured_outputs": {}}),
        ("structured_outputs", {"structured_outputs": {"grammar": ""}}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": TOOLS}),
        ("response_format", {"response_format": {"type": "json_object"}, "tool_choice": "required", "tools": TOOLS}),
    ],
)
def test_forms_that_cannot_be_had_are_refused(port, param, fields):
    status, _, answer = ask(port, "/v1/chat/completions", CHAT | fields)
    assert status == 400 and answer["error"]["param"] == param, answer
