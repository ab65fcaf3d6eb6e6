"""Chats as tokens with weights, against transformers; what no chat is; batches of chats, prepared or not."""

import copy
import dataclasses
import importlib
import itertools
import json
import re

import jax
import numpy as np
import pytest

from generator.language import requires
from generator.language.roles import (
    CHAT_CALL,
    CHAT_CONVERSATIONS,
    CHAT_FORMS,
    CHAT_MARK,
    PACKAGE,
    PRESETS,
    Batches,
    Chats,
    InputError,
    assert_same,
    load_tokenizer,
    make_mesh,
    open_documents,
    read_sequences,
    run_prepare,
    save_chat_tokenizer,
    say,
)

requires("chats", "data/chat_data")


def make_chats(folder, form: str = "chatml", loss_on: str = "assistant", special: bool = False) -> Chats:
    path = save_chat_tokenizer(folder, CHAT_FORMS.get(form, form))
    return Chats(load_tokenizer(path, special), path, loss_on)


def read(chats: Chats, messages: object, **fields: object) -> np.ndarray:
    row = {"messages": messages} if messages is not None else {}
    return chats(CHAT_MARK + json.dumps(row | fields | {"source": "a row"}))


def said(chats: Chats, found: np.ndarray, weight: float = 1) -> str:
    """Returns the text of tokens with a weight."""
    return chats.template.tokenizer.decode(found["token"][found["weight"] == weight].tolist(), False)


def without_blocks(form: str) -> str:
    return re.sub(r"({%-?) *generation", r"\1 if true", re.sub(r"({%-?) *endgeneration", r"\1 endif", form))


@pytest.mark.parametrize("form", CHAT_FORMS)
def test_tokens_and_masks_are_those_of_transformers(form, tmp_path):
    """Without blocks, the mask by differences is that of the blocks, or refused where a template drops thoughts."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install '.[test]'")
    marked, plain = (
        make_chats(tmp_path / "marked", form),
        make_chats(tmp_path / "plain", without_blocks(CHAT_FORMS[form])),
    )
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=marked.path, bos_token="<s>", eos_token="</s>", chat_template=CHAT_FORMS[form]
    )
    options = dict(return_dict=True, return_assistant_tokens_mask=True)
    compared = 0
    for messages in CHAT_CONVERSATIONS:
        try:
            wanted = theirs.apply_chat_template(copy.deepcopy(messages), **options)
        except Exception as error:  # such as of roles that do not alternate
            with pytest.raises(InputError, match=re.escape(str(error))):
                read(marked, messages)
            continue
        for chats in marked, plain:
            if chats is plain and "thoughts" in form and any(x["role"] == "assistant" for x in messages[:-1]):
                with pytest.raises(
                    InputError, match=r"a row: where message \d begins .* uncertain: give --loss-on last"
                ):
                    read(chats, messages)
                continue
            found = read(chats, messages)
            assert found["token"].tolist() == wanted["input_ids"]
            assert found["weight"].tolist() == wanted["assistant_masks"]
            compared += 1
    assert compared >= 10


def test_weights_of_messages_and_rules(tmp_path):
    turns = say("a", "one", "b", "two", "c", "three")
    turns[1]["weight"] = 0
    turns[3]["weight"] = 0.5
    for form in CHAT_FORMS["chatml"], without_blocks(CHAT_FORMS["chatml"]):
        chats, last, whole = (make_chats(tmp_path, form, rule) for rule in ("assistant", "last", "all"))
        found = read(chats, turns)
        assert said(chats, found) == "three<|im_end|>\n" and said(chats, found, 0.5) == "two<|im_end|>\n"
        assert said(last, read(last, turns)) == "three<|im_end|>\n"
        found = read(whole, turns)
        assert said(whole, found, 0.5) == "two<|im_end|>\n" and said(whole, found, 0) == "one<|im_end|>\n"
        found = read(chats, None, prompt=turns[:5], completion=turns[5:])
        assert said(chats, found) == "three<|im_end|>\n" and not (found["weight"] == 0.5).any()
    found = read(chats, None, prompt="2 + 2 =", completion=" 4</s>")
    assert said(chats, found) == " 4</s></s>"  # a text in a document, and eos
    special = make_chats(tmp_path, special=True)
    assert said(special, read(special, None, prompt="2 + 2 =", completion=" 4</s>")) == " 4</s>"
    answer = said(special, read(special, say("a", "b<|im_end|>c")))
    assert answer == "b<|im_end|>c<|im_end|>\n" == said(chats, read(chats, say("a", "b<|im_end|>c")))
    thoughts = make_chats(tmp_path, without_blocks(CHAT_FORMS["qwen 3, which drops thoughts"]), "last")
    thinks = [*say("a", "x", "b"), {"role": "assistant", "content": "y", "reasoning_content": "hm"}]
    assert said(thoughts, read(thoughts, thinks)) == "<think>\nhm\n</think>\n\ny<|im_end|>\n"


def test_the_server_makes_the_same_tokens(tmp_path):
    """Special tokens in the content of messages stay text in both; arguments and tools may be JSON in a text."""
    chats = make_chats(tmp_path, "qwen with tools")
    messages = copy.deepcopy(CHAT_CONVERSATIONS[8])
    tools = [{"type": "function", "function": {"name": "look"}}]
    messages[0]["content"] = "<|im_end|>\n<|im_start|>system"
    wanted = chats.template.encode(copy.deepcopy(messages), tools, add_generation_prompt=False)
    assert read(chats, messages, tools=tools)["token"].tolist() == wanted
    messages[1]["tool_calls"][0]["function"]["arguments"] = json.dumps(CHAT_CALL["function"]["arguments"])
    assert read(chats, messages, tools=json.dumps(tools))["token"].tolist() == wanted
    messages[1] |= {"content": None, "tool_calls": json.dumps(messages[1]["tool_calls"]), "name": None}
    assert read(chats, messages, tools=tools)["token"].tolist() == wanted


NONE = [
    *([], {}, 3, "text", [3], [None], [{}], [{"role": "user"}], [{"role": "wizard", "content": "x"}]),
    *([{"role": ["user"], "content": "x"}], [{"role": "user", "content": 3}], [{"role": "user", "content": [3]}]),
    *([{"role": "user", "content": [{"type": "image"}]}], say("a", ""), [*say("a"), {"role": "assistant"}]),
    *([*say("a"), {"role": "assistant", "content": "b", "weight": x}] for x in ("1", -1, float("nan"), True, 1e9)),
    *([*say("a"), {"role": "assistant", "tool_calls": x}] for x in (3, [3], [{}], [{"function": 3}], "[")),
    *([{"role": "user", "content": "a", "weight": 0}], [*say("a"), {"role": "assistant", "reasoning_content": 3}]),
]


def test_what_is_no_chat_is_named(tmp_path):
    chats = make_chats(tmp_path, "qwen with tools")

    def refused(messages: object, **fields: object) -> str:
        with pytest.raises(InputError, match=r"a row: .*: fix it, or leave it out") as caught:
            read(chats, messages, **fields)
        return str(caught.value)

    for messages in NONE:
        assert "messages" in refused(messages)
    assert "messages[0] must be an object whose role is one of system" in refused([{"role": "x", "content": "y"}])
    for tools in 3, [3], {}, "{":
        assert "tools must be a list of objects" in refused(say("a", "b"), tools=tools)
    assert "must not set messages" in refused(say("a", "b"), chat_template_kwargs={"messages": []})
    assert "prompt and completion may also both be texts" in refused(None, prompt="a", completion=say("b"))
    assert "completion says nothing" in refused(None, prompt="a", completion="")
    refused(None, prompt="a", completion=json.loads("[" * 900 + "]" * 900))  # deeper than Python 3.11 recurses
    chats = make_chats(tmp_path, "{{ raise_exception('no ' + messages[0].role) }}")
    assert "no user" in refused(say("a", "b"))
    assert "does not support tools" in refused(say("a", "b"), tools=[{"a": 1}])
    chats = make_chats(tmp_path, "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    chats.template.renderer.stop()
    chats.template.renderer.seconds = 1
    assert "too much time" in refused(say("a", "b"))
    chats = make_chats(tmp_path, "{{ messages[0].content }}{{ messages[-1].content }}")
    assert "where message 1 begins and ends" in refused(say("ab", "b"))
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(InputError, match=r"put chat_template\.jinja beside it"):
        read(Chats(chats.tokenizer, chats.path, "last"), say("a", "b"))


def write_chats(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def config(tmp_path):
    """Returns settings with 12 chats: one is long, and one has no answer."""
    chats = [say(f"question {i}", f"answer {i}") for i in range(10)]
    rows = [{"messages": messages} for messages in (*chats, say("why?"), say("go on", "word " * 100))]
    data = write_chats(tmp_path / "chats.jsonl", rows)
    tokenizer = save_chat_tokenizer(tmp_path / "tokenizer", CHAT_FORMS["chatml"])
    fields = dict(data=data, tokenizer=tokenizer, vocab_size=400, sequence_length=64, batch_size=2, eval_share=0.0)
    return dataclasses.replace(PRESETS["tiny"], **fields)


def make_batches(config) -> Batches:
    return Batches(config, jax.sharding.NamedSharding(make_mesh(1, 1, 1), jax.sharding.PartitionSpec()))


def test_batches_have_weights_on_answers_and_tell_of_the_rest(config, tmp_path, capsys):
    importlib.import_module("..chats", __package__).WARNED_CHATS.clear()
    tokenizer = load_tokenizer(config.tokenizer)
    texts = write_chats(tmp_path / "texts.jsonl", [{"text": f"text {i}"} for i in range(9)])
    for data in config.data, f"1:{config.data},1:{texts}":
        batches = make_batches(dataclasses.replace(config, data=data))
        seen = set()
        for batch in (next(batches) for _ in range(12)):
            for i in range(2):
                for segment in range(1, batch["segment_ids"][i].max() + 1):
                    within = batch["segment_ids"][i] == segment
                    weights = batch["weights"][i][within]
                    seen.add(tokenizer.decode(batch["targets"][i][within][weights > 0].tolist()))
                    assert set(weights) <= {0, 1}
        answers = {f"answer {i}\n" for i in range(10)}
        assert answers <= seen and "why?" not in "".join(seen)
        assert data == config.data or any(re.fullmatch(r"t?e?xt \d", text) for text in seen)  # without its first token
        assert any(text.startswith("word word") for text in seen)
    said = capsys.readouterr().err
    assert "chats longer than a sequence, whose ends are cut off: 1 so far" in said
    assert "chats without a token that has a loss: 1 so far" in said
    with pytest.raises(InputError, match=r"a chat of .* tokens, more than --sequence-length 64"):
        list(itertools.islice(read_sequences(dataclasses.replace(config, long_chats="refuse"), "train"), 30))
    dropped = read_sequences(dataclasses.replace(config, long_chats="drop"), "train")
    assert not any("word word" in tokenizer.decode(row["tokens"].tolist()) for row in itertools.islice(dropped, 30))
    with pytest.raises(InputError, match="none with a token that --loss-on chooses"):
        make_batches(dataclasses.replace(config, data=write_chats(tmp_path / "no.jsonl", [{"messages": say("a")}])))


def test_prepared_chats_give_the_same_batches(config, tmp_path, capsys):
    ended = run_prepare(config.data, tmp_path / "out", "--tokenizer", config.tokenizer, "--workers=1")
    assert ended.returncode == 0 and "12 documents" in ended.stdout, ended.stderr
    ready = dataclasses.replace(config, data=str(tmp_path / "out"))
    plain, prepared = make_batches(config), make_batches(ready)
    for _ in range(20):
        assert_same(next(plain), next(prepared))
    with pytest.raises(InputError, match=r"its chats are as .*'loss_on': 'assistant'.*: give the first, or prepare"):
        make_batches(dataclasses.replace(ready, loss_on="last"))
    state = plain.get_state()
    for other in dict(loss_on="all"), dict(long_chats="drop"):  # are other data to a run that resumes
        with pytest.raises(InputError, match="not what this run had up to 5"):
            make_batches(dataclasses.replace(config, **other)).set_state(state, 5)
    template = tmp_path / "tokenizer/chat_template.jinja"
    template.write_text(template.read_text() + " ")
    for same in config, ready:
        with pytest.raises(InputError, match=r"not what this run had up to 5|its chats are as"):
            make_batches(same).set_state(state, 5)
    mixed = write_chats(tmp_path / "mixed.jsonl", [{"messages": say("a", "b")}, {"text": "c"}])
    ended = run_prepare(mixed, tmp_path / "mixed", "--tokenizer", config.tokenizer, "--workers=1")
    assert ended.returncode == 2 and "texts and chats are in one source" in ended.stderr


def test_rows_that_are_chats(tmp_path, capsys):
    def first(row: dict[str, object], field: str = "text") -> str:
        path = tmp_path / f"{len([*tmp_path.iterdir()])}.jsonl"
        return open_documents(write_chats(path, [row]), field)[0][0]

    turns = say("a", "b")
    for row in {"messages": turns, "prompt": "a", "prompt_id": 3}, {"messages": turns, "tools": None}:
        assert json.loads(first(row).removeprefix(CHAT_MARK))["messages"] == turns
    assert json.loads(first({"text": turns}).removeprefix(CHAT_MARK))["messages"] == turns
    assert first({"text": "c", "messages": turns}) == "c"
    assert "rows have text and messages, and the first counts" in capsys.readouterr().err
    assert json.loads(first({"text": "c", "messages": turns}, "messages").removeprefix(CHAT_MARK))["messages"] == turns
    with pytest.raises(InputError, match="must be JSON with a field text"):
        first({"prompt": "a"})
    with pytest.raises(InputError, match="not a string"):
        first({"text": {"a": 1}})


def test_a_page_shows_a_batch(config, tmp_path, monkeypatch):
    data = write_chats(tmp_path / "show.jsonl", [{"messages": say("<script>", f"<b>&{i}")} for i in range(9)])
    out = tmp_path / "batch.html"
    arguments = ["data", "show", f"--data={data}", f"--tokenizer={config.tokenizer}", f"--out={out}"]
    monkeypatch.setattr("sys.argv", [*arguments, "--batch-size=2", "--sequence-length=64"])
    importlib.import_module(f"{PACKAGE.name}.data").main()
    page = out.read_text()
    assert "<script" not in page and "<b>" not in page and page.count("<section>") == 2
    assert re.search(r'class="loss" style="--weight: 1" title="token \d+, weight 1">&', page)
