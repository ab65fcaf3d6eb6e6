"""Chat templates in the forms that checkpoints have, with blocks around what the assistant says; conversations."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from generator.language import requires

requires("chats")

EACH_MESSAGE = "{{ bos_token }}{% for m in messages %}"


def turns(user: str, assistant: str, prompt: str = "", start: str = EACH_MESSAGE, system: str = "") -> str:
    """Returns a template of turns; `prompt` is what a generation prompt and each turn of the assistant begin with."""
    other = f"{{% elif m.role == 'system' %}}{system}" if system else ""
    return (
        f"{start}{{% if m.role == 'assistant' %}}{prompt}{{% generation %}}{assistant}{{% endgeneration %}}"
        f"{other}{{% else %}}{user}{{% endif %}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{prompt}{{% endif %}}"
    )


CHATML = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
ALTERNATE = (
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
)
SYSTEM_FIRST = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
)
WITH_THOUGHTS = """{%- for m in messages -%}
{%- if m.role != 'assistant' -%}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% else -%}
<|im_start|>assistant
{% generation %}
{%- set content = m.content.split('</think>')[-1] -%}
{%- if loop.last -%}
<think>
{{ m.reasoning_content | default('') }}
</think>

{% endif -%}
{{ content }}<|im_end|>
{% endgeneration %}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""
WITH_TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- "\\n" }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>' + m.content + '</tool_response><|im_end|>\\n' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- generation %}
        {%- if m.content %}
            {{- m.content }}
        {%- endif %}
        {%- for call in m.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
        {%- endgeneration %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
CHAT_FORMS = {
    "chatml": turns(CHATML, "{{ m.content }}<|im_end|>\n", "<|im_start|>assistant\n", "{% for m in messages %}"),
    "chatml, default system": turns(
        CHATML,
        "{{ m.content }}<|im_end|>\n",
        "<|im_start|>assistant\n",
        "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
        "<|im_start|>system\nYou help.<|im_end|>\n{% endif %}",
    ),
    "llama 2": turns(
        "{{ bos_token }}[INST] {% if loop.first and system %}<<SYS>>\n{{ system }}\n<</SYS>>\n\n{% endif %}"
        "{{ m.content.strip() }} [/INST]",
        " {{ m.content.strip() }} {{ eos_token }}",
        start=SYSTEM_FIRST + ALTERNATE.removeprefix("{{ bos_token }}"),
    ),
    "llama 3": turns(
        "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>",
        "{{ m.content | trim }}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "gemma": turns(
        "<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n",
        "{{ m.content | trim }}<end_of_turn>\n",
        "<start_of_turn>model\n",
        ALTERNATE,
    ),
    "mistral": turns("[INST] {{ m.content }} [/INST]", " {{ m.content }}{{ eos_token }}", start=ALTERNATE),
    "mistral, tekken": turns("[INST]{{ m.content }}[/INST]", "{{ m.content }}{{ eos_token }}", start=ALTERNATE),
    "zephyr": turns(
        "<|{{ m.role }}|>\n{{ m.content + eos_token }}\n",
        "{{ m.content + eos_token }}\n",
        "<|assistant|>\n",
        "{% for m in messages %}",
    ),
    "phi 3": turns("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n", "{{ m.content }}<|end|>\n", "<|assistant|>\n"),
    "phi 4": turns(
        "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>",
        "{{ m.content }}<|im_end|>",
        "<|im_start|>assistant<|im_sep|>",
        "{% for m in messages %}",
    ),
    "deepseek 2": turns("User: {{ m.content }}\n\n", " {{ m.content }}{{ eos_token }}", "Assistant:"),
    "deepseek 3": turns(
        "<|User|>{{ m.content }}",
        "{{ m.content }}<|end of sentence|>",
        "<|Assistant|>",
        "{{ bos_token }}{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
        "{% for m in messages if m.role != 'system' %}",
    ),
    "vicuna": turns(
        "USER: {{ m.content }} ", "{{ m.content }}{{ eos_token }}", "ASSISTANT: ", system="{{ m.content }} "
    ),
    "alpaca": turns(
        "### Instruction:\n{{ m.content }}\n\n",
        "{{ m.content }}{{ eos_token }}\n\n",
        "### Response:\n",
        system="{{ m.content }}\n\n",
    ),
    "tulu": turns("<|{{ m.role }}|>\n{{ m.content }}\n", "{{ m.content }}{{ eos_token }}\n", "<|assistant|>\n"),
    "openchat": turns(
        "GPT4 Correct {{ m.role.title() }}: {{ m.content }}<|end|>",
        " {{ m.content }}<|end|>",
        "GPT4 Correct Assistant:",
    ),
    "command": turns(
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>",
        "{{ m.content }}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    "granite": turns(
        "<|start_of_role|>{{ m['role'] }}<|end_of_role|>{{ m['content'] }}{{ eos_token }}\n",
        "{{ m['content'] }}{{ eos_token }}\n",
        "<|start_of_role|>assistant<|end_of_role|>",
        "{%- for m in messages %}",
    ),
    "glm": turns(
        "<|{{ m.role }}|>\n{{ m.content }}",
        "{{ '\n' + m.content }}",
        "<|assistant|>",
        "[gMASK]<sop>{% for m in messages %}",
    ),
    "qwen with tools": WITH_TOOLS,
    "qwen 3, which drops thoughts": WITH_THOUGHTS,
}
CHAT_TOKENS = (
    *(
        "<s>",
        "</s>",
        "<|im_start|>",
        "<|im_end|>",
        "<|im_sep|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ),
    *("<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
    *("<|User|>", "<|Assistant|>", "<|end of sentence|>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    *("<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|start_of_role|>", "<|end_of_role|>", "[gMASK]", "<sop>"),
)


def say(*texts: str, system: str | None = None) -> list[dict[str, object]]:
    """Returns messages of the user and the assistant in turn."""
    first = [] if system is None else [{"role": "system", "content": system}]
    return first + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


CHAT_CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "é", "n": [1, 2]}}}
CHAT_CONVERSATIONS = [
    say("Hello?", "Hello!"),
    say("Hi", "Hello. How are you?", "Fine", "Good.\n\nBye"),
    say("a b", "c d e", "f", "g", "h i", "j", system="You answer shortly."),
    say("日本語 😀", "größer 😀😀", "ﬁn", "日本"),
    say("  spaces  \n", "\n\n two\n\n", " x ", "y "),
    say("def f(x):\n    return x", "```py\nprint(1)\n```\n", system=""),
    [*say("one", "two"), {"role": "assistant", "content": "three"}],
    say("think", "hm</think>answer", "again", "so"),
    [
        *say("look"),
        {"role": "assistant", "content": "", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "content": "seen"},
        {"role": "assistant", "content": "I see."},
    ],
    say("a" * 300, "b " * 200, "last words of the user"),
]


def save_chat_tokenizer(folder: Path, template: str) -> str:
    """Saves a byte-level tokenizer with the special tokens of all forms, and a template beside it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=[*CHAT_TOKENS], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(CHAT_FORMS.values(), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    (folder / "chat_template.jinja").write_text(template)
    return str(folder / "tokenizer.json")
