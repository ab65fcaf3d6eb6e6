"""Clients that call tools, against a server: openai, litellm, llm, LangChain and an agent framework.

python benchmarks/calling_clients.py VENV FOLDER PACKAGE      prints a table; exit code 1 where a client fails

VENV is made and gets the clients, unless it exists; FOLDER holds the PACKAGE, built --with responses. The model is a
small Llama of random weights with a token for each byte, so what its answers say is noise: what is tried is that
requests are taken, and that answers have the form that was asked for. Nothing is fetched but the clients.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from clients import MODEL

CLIENTS = ["openai", "litellm", "llm", "langchain-openai", "openai-agents", "jsonschema"]
OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
OFFLINE |= {"OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}{% for m in messages %}[{{ m.role }}] {{ m.content }}"
    "{% for call in m.tool_calls %}{{ call.function | tojson }}{% endfor %}{{ eos_token }}{% endfor %}"
)

COMMON = '''
import json, sys, jsonschema
from importlib.metadata import version

URL, MODEL = sys.argv[1] + "/v1", "small"
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "x", "parameters": PARAMETERS}}
    for name in ("weather", "trains")
]
ASKED = dict(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=200, temperature=1.0)
NAMED = {"type": "function", "function": {"name": "trains"}}
FORM = {"type": "json_schema", "json_schema": {"name": "trip", "schema": PARAMETERS, "strict": True}}


def is_call(call):
    jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
    assert call.function.name in ("weather", "trains"), call
    return True


def tried(name, act):
    try:
        result = act()
        print(json.dumps([name, "ok" if result is None else str(result)]), flush=True)
    except Exception as error:
        print(json.dumps([name, f"FAILED {type(error).__name__}: {error}"[:600]]), flush=True)


def check_chats(create):
    """Tries what clients with the interface of openai's chats can ask for."""

    def stream():
        events = list(create(**ASKED, seed=1, stream=True))
        text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
        assert text == create(**ASKED, seed=1).choices[0].message.content

    def streamed_calls():
        names, arguments = {}, {}
        for event in create(**ASKED, tools=TOOLS, tool_choice=NAMED, stream=True, seed=2):
            for call in event.choices[0].delta.tool_calls or () if event.choices else ():
                names[call.index] = names.get(call.index) or call.function.name
                arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
        assert names == {0: "trains"}
        jsonschema.validate(json.loads(arguments[0]), PARAMETERS)

    def calls(choice, **more):
        answer = create(**ASKED, tools=TOOLS, tool_choice=choice, seed=3, **more).choices[0]
        assert answer.message.tool_calls and all(map(is_call, answer.message.tool_calls))
        return answer

    def single():
        assert len(calls("required", parallel_tool_calls=False).message.tool_calls) == 1

    def formed():
        text = create(**ASKED, response_format=FORM, seed=4).choices[0].message.content
        jsonschema.validate(json.loads(text), PARAMETERS)

    def scored():
        answer = create(**ASKED, response_format=FORM, seed=4, logprobs=True, top_logprobs=2).choices[0]
        assert len(answer.logprobs.content[0].top_logprobs) >= 2

    def turns():
        (call, *_) = calls(NAMED).message.tool_calls
        message = {"role": "assistant", "content": None, "tool_calls": [call.model_dump(exclude_none=True)]}
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        asked = ASKED | {"messages": [*ASKED["messages"], message, result], "max_tokens": 20}
        assert create(**asked, tools=TOOLS, seed=5).usage.completion_tokens

    tried("chat", lambda: create(**ASKED, seed=1).usage.total_tokens and None)
    tried("stream", stream)
    tried("tools required", lambda: calls("required") and None)
    tried("named", lambda: calls(NAMED) and None)
    tried("streamed call", streamed_calls)
    tried("one call (parallel_tool_calls false)", single)
    tried("result of a tool", turns)
    tried("JSON schema", formed)
    tried("logprobs", scored)
'''

SCRIPTS = {
    "openai": """
import openai

client = openai.OpenAI(base_url=URL, max_retries=0)
check_chats(client.chat.completions.create)


def many():
    valid = 0
    for seed in range(200):
        answer = client.chat.completions.create(**ASKED, tools=TOOLS, tool_choice="required", seed=seed,
            parallel_tool_calls=False)
        valid += all(map(is_call, answer.choices[0].message.tool_calls))
    assert valid == 200, valid
    return f"{valid} valid of 200"


def responses():
    tools = [{"type": "function", "strict": True} | tool["function"] for tool in TOOLS]
    made = dict(model=MODEL, max_output_tokens=200)
    plain = client.responses.create(**made, input="Hello", instructions="Be short.")
    assert plain.output_text and plain.usage.output_tokens
    one = dict(tools=tools, tool_choice="required", parallel_tool_calls=False)
    called = client.responses.create(**made, **one, input="Hello")
    (call,) = called.output
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    history = [{"role": "user", "content": "Hello"}, call.model_dump(exclude_none=True), result]
    assert client.responses.create(**made, input=history, tools=tools).status in ("completed", "incomplete")
    form = {"format": {"type": "json_schema", "name": "trip", "schema": PARAMETERS, "strict": True}}
    text = client.responses.create(**made, input="Hello", text=form).output_text
    jsonschema.validate(json.loads(text), PARAMETERS)
    with client.responses.stream(**made, input="Hello") as stream:
        events = list(stream)
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text
    assert events[-1].type in ("response.completed", "response.incomplete")  # the text is noise, and may be cut off
    try:
        client.responses.create(**made, input="x", previous_response_id="resp_1")
    except openai.BadRequestError as error:
        assert "stores no responses" in str(error)
    else:
        raise AssertionError("previous_response_id was taken")


def parsed():
    from typing import Annotated, Literal

    import pydantic

    class Trip(pydantic.BaseModel):
        city: Literal["Oslo", "Rome"]
        days: Annotated[int, pydantic.Field(ge=1, le=9)]

    for completions in client.chat.completions, client.beta.chat.completions:
        message = completions.parse(**ASKED, response_format=Trip, seed=3).choices[0].message
        assert message.parsed == Trip.model_validate_json(message.content)
    with client.chat.completions.stream(**ASKED, response_format=Trip, seed=3) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        last = stream.get_final_completion().choices[0].message
    assert text == last.content == message.content and last.parsed == message.parsed
    tools = dict(tools=[openai.pydantic_function_tool(Trip, name="trains")], tool_choice=NAMED)
    (call,) = client.chat.completions.parse(**ASKED, **tools, seed=3).choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Trip)
    with client.chat.completions.stream(**ASKED, **tools, seed=3) as stream:
        (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
    assert streamed.function.parsed_arguments == call.function.parsed_arguments
    made = dict(model=MODEL, max_output_tokens=200, input="Hello", text_format=Trip)
    assert isinstance(client.responses.parse(**made).output_parsed, Trip)
    with client.responses.stream(**made) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Trip)


tried("200 function calls", many)
tried("responses", responses)
tried("parsed, whole and streamed", parsed)
""",
    "litellm": """
import litellm

litellm.telemetry = False


def create(**fields):
    return litellm.completion(**fields | {"model": "openai/small"}, api_base=URL, api_key="none")


check_chats(create)


def responses():
    answer = litellm.responses(model="openai/small", input="Hello", api_base=URL, api_key="none", max_output_tokens=30)
    assert answer.output


tried("responses", responses)
""",
    "llm": """
import llm
from llm.default_plugins.openai_models import Chat

model = Chat("small", model_name="small", api_base=URL, supports_schema=True, supports_tools=True)
model.key = "none"


def trains(city: str) -> str:
    "Says when trains go."
    return "soon"


def prompted():
    assert model.prompt("Hello", stream=False, max_tokens=40).text()


def streamed():
    assert "".join(model.prompt("Hello", stream=True, max_tokens=40))


def formed():
    text = model.prompt("Hello", stream=False, schema=PARAMETERS, max_tokens=200).text()
    jsonschema.validate(json.loads(text), PARAMETERS)


def tools():
    model.prompt("Hello", stream=False, tools=[trains], max_tokens=40).text()


tried("chat", prompted)
tried("stream", streamed)
tried("JSON schema", formed)
tried("tools", tools)
""",
    "langchain-openai": """
from langchain_openai import ChatOpenAI

made = dict(base_url=URL, api_key="none", model=MODEL, max_retries=0, temperature=1.0)
model = ChatOpenAI(**made, max_tokens=200)
functions = [tool["function"] for tool in TOOLS]


def required(choice, **more):
    answer = model.bind_tools(TOOLS, tool_choice=choice, **more).invoke("Hello")
    assert answer.tool_calls and not answer.invalid_tool_calls
    for call in answer.tool_calls:
        jsonschema.validate(call["args"], PARAMETERS)
    return answer


def streamed():
    assert "".join(chunk.content for chunk in model.stream("Hello"))


def single():
    assert len(required("required", parallel_tool_calls=False).tool_calls) == 1


def formed():
    schema = PARAMETERS | {"title": "trip"}
    jsonschema.validate(model.with_structured_output(schema, method="json_schema").invoke("Hello"), PARAMETERS)
    jsonschema.validate(model.with_structured_output(schema, method="function_calling").invoke("Hello"), PARAMETERS)


def turns():
    from langchain_core.messages import HumanMessage, ToolMessage

    answer = required("trains")
    results = [ToolMessage("rain", tool_call_id=call["id"]) for call in answer.tool_calls]
    assert model.bind_tools(TOOLS).invoke([HumanMessage("Hello"), answer, *results]) is not None


def responses():
    assert ChatOpenAI(**made, max_tokens=30, use_responses_api=True).invoke("Hello").content


tried("chat", lambda: model.invoke("Hello").content and None)
tried("stream", streamed)
tried("tools required", lambda: required("required") and None)
tried("named", lambda: required("trains") and None)
tried("one call (parallel_tool_calls false)", single)
tried("result of a tool", turns)
tried("JSON schema", formed)
tried("logprobs", lambda: model.bind(logprobs=True).invoke("Hello").response_metadata["logprobs"]["content"] and None)
tried("responses", responses)
""",
    "openai-agents": '''
import asyncio
from typing import Annotated, Literal

import openai
import pydantic
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from agents import set_tracing_disabled

set_tracing_disabled(True)
called = []


class Trip(pydantic.BaseModel):
    city: Literal["Oslo", "Rome"]
    days: Annotated[int, pydantic.Field(ge=1, le=9)]


@function_tool(is_enabled=lambda context, agent: not called)
def trains(days: int) -> str:
    """Says when trains go."""
    called.append(days)
    return "soon"


def agent(kind, is_streamed):
    """Calls the tool once, then without it answers in the form of a trip."""
    settings = ModelSettings(tool_choice="required", temperature=1.0, max_tokens=200, parallel_tool_calls=False)
    made = kind(model="small", openai_client=openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0))
    asked = Agent(name="a", instructions="Help.", model=made, tools=[trains], model_settings=settings, output_type=Trip)
    called.clear()

    async def streamed():
        result = Runner.run_streamed(asked, "Hello", max_turns=4)
        assert [event async for event in result.stream_events()]
        return result

    result = asyncio.run(streamed() if is_streamed else Runner.run(asked, "Hello", max_turns=4))
    assert len(called) == 1 and isinstance(result.final_output, Trip), called


for name, kind in ("chats", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel):
    for is_streamed in False, True:
        tried(f"agent, by {name}{', streamed' * is_streamed}", lambda: agent(kind, is_streamed))
''',
}


@contextlib.contextmanager
def served(folder: Path, package: str, model: Path) -> Iterator[str]:
    """The address of a server."""
    command = [sys.executable, "-m", f"{package}.serve", "--hf", str(model), "--port", "0", "--dtype", "float32"]
    command += ["--model", "small"]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=folder, env=OFFLINE, **quiet) as process:
        try:
            yield next(line.split()[-1] for line in process.stdout or () if " at http://" in line)
        finally:
            process.terminate()


def main(environment: str, folder: str, package: str) -> int:
    python = Path(environment).resolve() / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *CLIENTS], check=True)
    is_failed = False
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, "-c", MODEL, made], check=True, env=OFFLINE)
        (Path(made) / "chat_template.jinja").write_text(TEMPLATE)
        with served(Path(folder), package, Path(made)) as url:
            for client, script in SCRIPTS.items():
                told = f"print(json.dumps(['version', version({client!r})]))"
                command = [python, "-c", f"{COMMON}\n{told}\n{script}", url]
                done = subprocess.run(command, env=OFFLINE, capture_output=True, text=True, timeout=600, cwd=made)
                lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
                lines += [["exit", f"FAILED {done.stderr[-600:]}"]] if done.returncode else []
                print(f"{client} {lines[0][1]}")
                for name, result in lines[1:]:
                    print(f"    {name:40} {result}", flush=True)
                    is_failed |= result.startswith("FAILED")
    return int(is_failed)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
