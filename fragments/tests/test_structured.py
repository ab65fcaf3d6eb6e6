"""Structured outputs: an answer has the form that was asked for, and texts beside it stay what they are alone."""

import json
import re

import numpy as np
import pytest
from etils import epath
from tokenizers import decoders, models, pre_tokenizers

from generator.language import requires
from generator.language.roles import (
    CALL_FORMATS,
    CHECKPOINTS,
    LONGEST_GRAMMAR,
    MARKS,
    WIDE,
    ByteTokenizer,
    Channels,
    Chat,
    Engine,
    EngineSettings,
    FileTokenizer,
    Grammars,
    InputError,
    MarkedText,
    RequestError,
    SamplingParams,
    Thoughts,
    ToolCalls,
    ask,
    byte_level,
    complete,
    drafting,
    module,
    save,
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


def sampled(grammars: Grammars, tokenizer: FileTokenizer, grammar: str, draw: np.random.Generator) -> list[int]:
    """Returns tokens at random, of those that are allowed, without eos."""
    matcher = grammars.matcher(grammar)
    tokens: list[int] = []
    while tokens[-1:] != [tokenizer.eos]:
        allowed = np.full((1, -(-tokenizer.vocab_size // 32)), 0, np.int32)
        grammars.fill(allowed, [(0, matcher, [])])
        tokens.append(int(draw.choice(np.flatnonzero(np.unpackbits(allowed.view(np.uint8), bitorder="little")))))
        assert matcher.consume_token(tokens[-1]), matcher.get_error()
    return tokens[:-1]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_any_tokenizer_spells_the_form(kind, tmp_path):
    """Where a space is put before a text, or a token's bytes are apart: tokens at random, of those that are allowed."""
    save_as_transformers_does(kind, tmp_path)
    tokenizer = FileTokenizer(epath.Path(tmp_path / "tokenizer.json"))
    grammars = Grammars(tokenizer, {tokenizer.eos}, tokenizer.vocab_size)
    draw = np.random.default_rng(0)
    for grammar, check in forms().items():
        tokens = sampled(grammars, tokenizer, grammar, draw)
        check(b"".join(token_bytes(tokenizer, token) for token in tokens).decode())


@pytest.fixture(scope="module")
def marking(tmp_path_factory) -> FileTokenizer:
    """A tokenizer with all marks of calls and thoughts as special tokens."""
    return save(
        tmp_path_factory.mktemp("marks"),
        models.BPE(byte_level("<s>", "</s>", *sorted(MARKS)), []),
        decoders.ByteLevel(),
        ["<s>", "</s>", *sorted(MARKS)],
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
    )


@pytest.mark.parametrize("form", CALL_FORMATS, ids=lambda form: form.name)
def test_calls_that_must_be_made_are_found_in_their_form(marking, form):
    """What the grammar of each format allows is what its reader reads: nothing but calls, which follow the schema."""
    answer_forms = module("answer_forms")
    special = {text: token for token, text in marking.special.items() if text in MARKS}
    functions = [{"name": name, "parameters": SCHEMA} for name in ("look", "wait")]
    grammars = Grammars(marking, {marking.eos}, marking.vocab_size)
    draw = np.random.default_rng(0)
    for most in (1, min(form.most, 3)):
        grammar = answer_forms.calls_required(functions, most, form, special)
        for _ in range(3):
            text = MarkedText(marking, [])
            whole = "".join(text.add(token) for token in sampled(grammars, marking, grammar, draw)) + text.end()
            calls = ToolCalls()
            calls.form = form
            calls.functions = {function["name"]: SCHEMA for function in functions}
            if form.name == "openai":
                _, whole = Channels().add(whole, True)
            outside, found = calls.add(whole, True)
            assert not outside.strip() and 1 <= len(found) <= most, whole
            for call in found:
                check_json(call["arguments"])


def follows(grammars: Grammars, grammar: str, tokens: list[int]) -> bool:
    matcher = grammars.matcher(grammar)
    return all(matcher.consume_token(token) for token in tokens) and matcher.is_accepting()


@pytest.mark.parametrize("form", CALL_FORMATS, ids=lambda form: form.name)
def test_calls_of_strict_functions_follow_their_schemas_in_a_text(marking, form):
    answer_forms = module("answer_forms")
    special = {text: token for token, text in marking.special.items() if text in MARKS}
    parameters = {"properties": {"c": {"enum": ["red", "blue"]}}, "required": ["c"], "additionalProperties": False}
    grammar = answer_forms.calls_allowed([{"name": "f", "parameters": parameters, "strict": True}], form, special)
    grammars = Grammars(marking, {marking.eos}, marking.vocab_size)
    before, after = form.argument
    for colour, is_right in (("red", True), ("green", False)):
        arguments = before % "c" + colour + after if before else json.dumps({"c": colour})
        text = form.around[0] + form.call[0] % "f" + arguments + form.call[1] + form.around[1]
        text = text if form.name in ("llama3_json", "openai") else f"I look. {text}"
        assert follows(grammars, grammar, marking.parsing.encode(text).ids) is is_right
    free = "<|channel|>final<|message|>I look." if form.name == "openai" else "I look."
    assert follows(grammars, grammar, marking.parsing.encode(free).ids)


@pytest.mark.parametrize("form", CALL_FORMATS, ids=lambda form: form.name)
def test_a_form_of_the_text_leaves_calls_possible(marking, form):
    """In place of it: strict functions get arguments of their schema, others any. Where calls must be, no text is."""
    answer_forms = module("answer_forms")
    special = {text: token for token, text in marking.special.items() if text in MARKS}
    parameters = {"properties": {"c": {"enum": ["red", "blue"]}}, "required": ["c"], "additionalProperties": False}
    functions = [{"name": name, "parameters": parameters, "strict": name == "f"} for name in ("f", "g")]
    chat = Chat(messages=[], tools=[{"type": "function", "function": function} for function in functions])
    grammars = Grammars(marking, {marking.eos}, marking.vocab_size)
    before, after = form.argument

    def call(name, key, value):
        arguments = before % key + value + after if before else json.dumps({key: value})
        return form.around[0] + form.call[0] % name + arguments + form.call[1] + form.around[1]

    header = "<|channel|>final<|message|>" if form.name == "openai" else ""
    right = [call("f", "c", "red"), header + "yes", call("g", "other", "a b\nc")]
    for choice, wanted in ("auto", [True, True, True]), ("required", [True, False, False]), ("none", [False, True]):
        chat.tool_choice = choice
        _, grammar = answer_forms.form_of_calls(chat, form, special, ("response_format", 'start: "yes"'))
        if choice == "none":
            grammar = answer_forms.behind_thoughts(grammar, Channels() if header else None, True, special)
            right = right[:2]
        assert [follows(grammars, grammar, marking.parsing.encode(text).ids) for text in right] == wanted
        for wrong in call("f", "c", "green"), header + "no":
            assert not follows(grammars, grammar, marking.parsing.encode(wrong).ids)


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_form_begins_after_thoughts(marking, is_begun):
    answer_forms = module("answer_forms")
    grammars = Grammars(marking, {marking.eos}, marking.vocab_size)
    for special in ({}, {text: token for token, text in marking.special.items() if text in MARKS}):
        thoughts = Thoughts("<think>", "</think>", is_begun)
        grammar = answer_forms.behind_thoughts('start: "red" | "blue"', thoughts, True, special)
        encode = (lambda text: marking.parsing.encode(text).ids) if special else marking.encode
        begin = "" if is_begun else "<think>"
        assert follows(grammars, grammar, encode(f"{begin}is it green?</think>\n\nred"))
        assert not follows(grammars, grammar, encode(f"{begin}is it green?</think>green"))
        assert follows(grammars, grammar, encode("blue")) is not is_begun
    grammar = answer_forms.behind_thoughts('start: "red" | "blue"', Channels(), True, special)
    final = "<|channel|>final<|message|>red"
    assert follows(grammars, grammar, encode(final))
    assert follows(grammars, grammar, encode(f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant{final}"))


def test_schemas_that_tagged_arguments_cannot_be_held_to_are_refused():
    answer_forms = module("answer_forms")
    form = next(form for form in CALL_FORMATS if form.name == "glm45")
    for parameters in {"properties": {"a": {"type": "string", "pattern": "b"}}}, {"anyOf": []}, {"required": ["a"]}:
        with pytest.raises(InputError, match="cannot be held to"):
            answer_forms.calls_required([{"name": "f", "parameters": parameters}], 1, form, {})
    odd = [{"properties": [1]}, {"required": 5}, {"required": [[]]}, {"properties": {"a": False}}]
    odd += [{"properties": {"a": {"type": "string"} | part}} for part in ({"enum": None}, {"enum": 5}, {"enum": []})]
    for parameters in odd:
        with pytest.raises(InputError, match="the parameters of f: "):
            answer_forms.calls_required([{"name": "f", "parameters": parameters}], 1, form, {})
    assert answer_forms.calls_required([{"name": "f", "parameters": {"properties": {"a": True}}}], 1, form, {})


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
        one = ask(port, "/v1/chat/completions", fields | {"parallel_tool_calls": False, "logprobs": True})[2]
        (single,) = one["choices"]
        assert len(single["message"]["tool_calls"]) == 1 and single["finish_reason"] == "tool_calls"
        assert len(single["logprobs"]["content"]) > 10
        streamed = [
            call["function"]
            for event in stream(port, "/v1/chat/completions", **fields)
            for call in event["choices"][0]["delta"].get("tool_calls", ())
        ]
        assert streamed == [call["function"] for call in message["tool_calls"]]


@pytest.mark.parametrize(("choice", "bias"), [("auto", -100), ("auto", 100), ("required", 0)])
def test_an_answer_of_a_form_may_be_a_call(port, choice, bias):
    """As agents with tools and a form of their last answer ask for it; here the bias of `<` decides."""
    less = sorted(pre_tokenizers.ByteLevel.alphabet()).index("<")
    tools = [tool | {"function": tool["function"] | {"strict": True}} for tool in TOOLS]
    fields = (
        CHAT | ASKED["schema"] | {"tools": tools, "tool_choice": choice, "logit_bias": {str(less): bias}, "seed": 1}
    )
    status, _, answer = ask(port, "/v1/chat/completions", fields | {"parallel_tool_calls": False})
    assert status == 200, answer
    (made,) = answer["choices"]
    if bias < 0:
        check_json(made["message"]["content"])
        assert made["finish_reason"] == "stop" and "tool_calls" not in made["message"]
    else:
        (call,) = made["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), ARGUMENTS)
        assert made["finish_reason"] == "tool_calls" and made["message"]["content"] is None


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
        ("response_format", {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "x"}}),
    ],
)
def test_forms_that_cannot_be_had_are_refused(port, param, fields):
    status, _, answer = ask(port, "/v1/chat/completions", CHAT | fields)
    assert status == 400 and answer["error"]["param"] == param, answer


@pytest.fixture(scope="module")
def thinking_port(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thinking") / "hf"
    save_served(folder)
    template = "{% if think %}<think>{% elif not think is defined %}</think>{% endif %}"
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}" + template)
    with served(folder, "--max-sequences", "4", "--model", "small", "--tool-call-parser", "glm45") as (_, port, _):
        yield port


def test_a_form_and_calls_of_another_family_follow_thoughts(thinking_port):
    """The model may think unless the prompt ends thoughts, and must where it begins them."""
    path = "/v1/chat/completions"
    begins = sorted(pre_tokenizers.ByteLevel.alphabet()).index("<")  # of <think>: without it the model does not think
    free = CHAT | {"chat_template_kwargs": {"think": False}, "logit_bias": {str(begins): -100}, "seed": 1}
    for fields in CHAT | {"seed": 1}, free:
        message = ask(thinking_port, path, fields | ASKED["schema"])[2]["choices"][0]["message"]
        check_json(message["content"])
        (choice,) = ask(thinking_port, path, fields | {"tools": TOOLS, "tool_choice": WAIT})[2]["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"
        jsonschema.validate(json.loads(call["function"]["arguments"]), ARGUMENTS)
    thinking = CHAT | ASKED["schema"] | {"chat_template_kwargs": {"think": True}, "max_tokens": 9, "seed": 1}
    (choice,) = ask(thinking_port, path, thinking)[2]["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"]
    events = [event["choices"][0]["delta"] for event in stream(thinking_port, path, **thinking)]
    told = "".join(delta.get("reasoning_content", "") for delta in events)
    assert told == choice["message"]["reasoning_content"]
