"""Fields of requests that ask for a form of the answer.

Source: OpenAI's API reference, `response_format` and `tool_choice`; vLLM's documentation, `structured_outputs`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from generator.language import proceed, requires, splice

requires("openai/fields", "openai/messages", "answer_forms")


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str = ""
    description: str = ""
    schema: dict[str, Any] = {}
    strict: bool = True  # an answer always follows the schema


class ResponseFormat(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None

    def __post_init__(self) -> None:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema belongs to the type json_schema, which needs it")


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Forms beyond OpenAI's, as vLLM names them."""

    json: str | dict[str, Any] | None = None  # a schema
    json_object: bool = False
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
    grammar: Annotated[str, Meta(min_length=1)] | None = None  # in llguidance's form of Lark

    def __post_init__(self) -> None:
        if sum(getattr(self, name) not in (None, False) for name in self.__struct_fields__) != 1:
            raise ValueError(f"takes one of {', '.join(self.__struct_fields__)}")


class NamedFunction(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str


class NamedTool(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The choice of a tool that must be called."""

    function: NamedFunction
    type: Literal["function"] = "function"


@splice("Fields.fields")
def _():
    FORM = "response_format"  # as clients call the field
    response_format: ResponseFormat = ResponseFormat()
    structured_outputs: StructuredOutputs | None = None


@splice("Chat.tool_choice")
def _():
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"


@splice("Function.fields")
def _():
    strict: bool = False  # calls follow the schema of `parameters`; those that must be called always do


@splice("drop_nulls.kept")
def _(kept):
    kept = *kept, "schema", "json"


@splice("read_fields.refused")
def _(fields):
    form = fields.pop("response_format", None)
    proceed()
    if form is not None:
        fields["response_format"] = form
