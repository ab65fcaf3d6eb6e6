"""Answers of /v1/responses: items of output, whole or as events.

Source: OpenAI's API reference, `responses` and `responses-streaming`.
"""

import concurrent.futures
import functools
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette import requests
from starlette.responses import Response
from starlette.routing import Route

from generator.language import requires, splice
from generator.language.roles import Answer, Job, Piece, ResponseRequest, Server, as_json, as_refusal, chat_logprobs

requires("response_fields", "serve/serve")


class Output:
    """Items of output, as they grow, and the events that tell of it."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.logprobs: list[dict[str, Any]] = []  # of tokens whose text is not in a message yet
        self.is_open = False  # whether the last item grows
        self.count = 0  # events so far

    def note(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": f"response.{kind}", "sequence_number": self.count, **fields})
        self.count += 1

    def take(self) -> list[dict[str, Any]]:
        """Returns the events since the last call."""
        events, self.events = self.events, []
        return events

    def begin(self, kind: str, prefix: str, **fields: Any) -> dict[str, Any]:
        """Begins an item, after ending the one before, and returns it."""
        self.end()
        item = {"type": kind, "id": f"{prefix}_{uuid.uuid4().hex}", "status": "in_progress", **fields}
        self.items.append(item)
        self.is_open = True
        self.note("output_item.added", output_index=len(self.items) - 1, item=dict(item))
        return item

    def place(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}

    def add(self, kind: str, text: str) -> None:
        """Adds text to a message, or to thoughts (`reasoning`), which begins if the last item is another."""
        is_message = kind == "message"
        part: dict[str, Any] = {"type": "output_text" if is_message else "reasoning_text", "text": ""}
        part |= {"annotations": [], "logprobs": []} if is_message else {}
        if not (self.is_open and self.items[-1]["type"] == kind):
            role = {"role": "assistant", "content": []} if is_message else {"summary": [], "content": []}
            self.begin(kind, "msg" if is_message else "rs", **role)
            self.items[-1]["content"] = [part]
            self.note("content_part.added", **self.place(), content_index=0, part=dict(part))
        (part,) = self.items[-1]["content"]
        part["text"] += text
        more = {}
        if is_message:
            more = {"logprobs": self.logprobs}
            part["logprobs"] = part["logprobs"] + self.logprobs
            self.logprobs = []
        self.note(f"{part['type']}.delta", **self.place(), content_index=0, delta=text, **more)

    def add_call(self, call: dict[str, Any]) -> None:
        function = call["function"]
        item = self.begin("function_call", "fc", call_id=call["id"], name=function["name"], arguments="")
        item["arguments"] = function["arguments"]
        self.note("function_call_arguments.delta", **self.place(), delta=function["arguments"])
        self.note("function_call_arguments.done", **self.place(), **function)
        self.end()

    def end(self, status: str = "completed") -> None:
        """Ends the last item, if it grows."""
        if not self.is_open:
            return
        item = self.items[-1]
        item["status"] = status
        self.is_open = False
        for part in item.get("content", ()):
            if "logprobs" in part:  # of tokens without text at its end too
                part["logprobs"] = part["logprobs"] + self.logprobs
                self.logprobs = []
            more = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
            self.note(f"{part['type']}.done", **self.place(), content_index=0, text=part["text"], **more)
            self.note("content_part.done", **self.place(), content_index=0, part=dict(part))
        self.note("output_item.done", output_index=len(self.items) - 1, item=dict(item))


class ResponseAnswer(Answer):
    """An answer in the form of a response."""

    def follow(self, output: Output, piece: Piece) -> None:
        """Adds a piece to the output."""
        if self.request.likeliest is not None:
            output.logprobs += chat_logprobs(piece.scores, self.server.tokenizer)["content"]
        if piece.reasoning:
            output.add("reasoning", piece.reasoning)
        if piece.text:
            output.add("message", piece.text)
        for call in piece.calls:
            output.add_call(call)
        if piece.finish:
            output.end("incomplete" if piece.finish == "length" else "completed")

    def described(self, output: Output, finish: str | None) -> dict[str, Any]:
        """Returns the response, with what there is of its output."""
        usage = self.usage()
        tokens = {"input_tokens": usage["prompt_tokens"], "input_tokens_details": usage["prompt_tokens_details"]}
        tokens |= {"output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0}}
        statuses = {None: "in_progress", "length": "incomplete", "error": "failed"}
        reason = {"reason": "max_output_tokens"} if finish == "length" else None
        error = {"code": "server_error", "message": "the answer could not be finished"} if finish == "error" else None
        empty = {"tools": [], "tool_choice": "auto", "text": {"format": {"type": "text"}}, "instructions": None}
        return {
            **{"id": self.head["id"], "object": "response", "created_at": self.head["created"]},
            **{"model": self.head["model"], "status": statuses.get(finish, "completed"), "output": [*output.items]},
            **{"error": error, "incomplete_details": reason, "previous_response_id": None, "store": False},
            **{"parallel_tool_calls": self.request.parallel_tool_calls, "max_output_tokens": None, "metadata": {}},
            **{"temperature": self.request.temperature, "top_p": self.request.top_p, **empty, **self.request.repeated},
            **{"usage": tokens | {"total_tokens": usage["total_tokens"]} if finish else None},
        }

    def response(self, pieces: list[Piece]) -> Response:
        output = Output()
        self.follow(output, pieces[0])
        return as_json(self.described(output, pieces[0].finish))

    async def stream(self, job: Job) -> AsyncIterator[bytes]:
        output = Output()
        finish = None
        try:
            for kind in "created", "in_progress":
                output.note(kind, response=self.described(output, None))
            for event in output.take():
                yield msgspec.json.encode(event)
            async for _, piece in self.pieces(job):
                self.follow(output, piece)
                finish = piece.finish
                for event in output.take():
                    yield msgspec.json.encode(event)
            response = self.described(output, finish)
            output.note(response["status"], response=response)
        except Exception as error:  # the answer has begun: an event tells what ended it
            problem = as_refusal(error).content["error"]
            output.end("incomplete")
            output.note("failed", response=self.described(output, "error") | {"error": problem})
        for event in output.take():
            yield msgspec.json.encode(event)


async def respond(server: Server, http: requests.Request) -> ResponseAnswer:
    answer = await server.answer(ResponseRequest, http)
    return ResponseAnswer(server, answer.request, answer.prompts, answer.salt, http.state.id)


@splice("Server.routes")
def _(self, routes):
    from generator.language.roles import respond

    self.threads["/v1/responses"] = concurrent.futures.ThreadPoolExecutor(2)
    routes.append(Route("/v1/responses", functools.partial(respond, self), methods=["POST"]))
