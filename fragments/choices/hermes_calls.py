"""Where answers may have tool calls: with tools, by a template with the tag of Hermes and Qwen."""

from generator.language import excludes, requires, splice
from generator.language.roles import BEGIN, ToolCalls

requires("tool_calls")
excludes("parsed_answers")  # which reads calls of other forms too


@splice("Answer.choices")
def _(self, template):
    texts = template.texts.values() if template else ()
    if self.request.offered and any(BEGIN in text for text in texts):
        for choice in self.choices:
            choice.tool_calls = ToolCalls()
