"""Tokenizers of the kinds that checkpoints come with: texts as they come, and the tokens of transformers."""

import json
import random

import pytest
from etils import epath
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from generator.language.roles import (
    ByteTokenizer,
    FileTokenizer,
    InputError,
    Stops,
    StopString,
    Text,
    TokenScore,
    completion_logprobs,
    count_special,
    load_chat_template,
    load_tokenizer,
    warn_of_special_tokens,
)

WORDS = [
    "text",
    "a",
    "b",
    "▁",
    "▁a",
    "true",
    "▁true",
    "▁▁",
    "日",
    "é",
    "▁日本",
    "'s",
    ".",
    "##ing",
    "<0xZZ>",
    "<0x+1>",
    "<0xe6>",
]
BYTES = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def sentencepiece(*special):
    """A vocabulary that falls back to bytes, as Llama 2's."""
    names = ["<unk>", "<s>", "</s>", *special, *(f"<0x{i:02X}>" for i in range(256)), *WORDS, *"abcdehilnorstuwxyz"]
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


def byte_level(*special):
    return BYTES | {name: 256 + i for i, name in enumerate(special)}


def save(folder, model, decoder, special, added=(), normalizer=None, pre_tokenizer=None):
    made = Tokenizer(model)
    made.add_special_tokens(special)
    made.add_tokens([*added])
    made.decoder = decoder
    if normalizer:
        made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    made.save(str(folder / "tokenizer.json"))
    return FileTokenizer(epath.Path(folder / "tokenizer.json"))


def fallback(folder, strip=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    model = models.BPE(sentencepiece(), [], byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    prepend = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return save(folder, model, decoders.Sequence(steps[: 3 + strip]), ["<unk>", "<s>", "</s>"], normalizer=prepend)


def plain_bytes(folder):
    model, added = models.BPE(byte_level("Ġtext", "æĹ¥", "ðŁĺ"), []), ["<call>", "<tool> x", "日本語"]
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return save(folder, model, decoders.ByteLevel(), ["<s>", "</s>"], added, pre_tokenizer=split)


def unigram(folder):
    model = models.Unigram([("<unk>", 0.0), *((name, -1.0) for name in ["<s>", "</s>", "▁text", *WORDS])], 0)
    return save(folder, model, decoders.Metaspace(), ["<unk>", "<s>", "</s>"], pre_tokenizer=pre_tokenizers.Metaspace())


def wordpiece(folder):
    vocabulary = {name: i for i, name in enumerate(["[UNK]", "<s>", "</s>", *WORDS])}
    model = models.WordPiece(vocabulary, unk_token="[UNK]")
    return save(
        folder, model, decoders.WordPiece(), ["[UNK]", "<s>", "</s>"], pre_tokenizer=pre_tokenizers.Whitespace()
    )


KINDS = {
    "bytes": lambda folder: ByteTokenizer(),
    "byte level": plain_bytes,
    "byte fallback": fallback,
    "byte fallback, no strip": lambda folder: fallback(folder, strip=False),
    "unigram": unigram,
    "word pieces": wordpiece,
}
PIECES = ["😀", "你好", "é", "नमस्ते", "👩‍🚀", "a", " ", "ok", "\n"]


@pytest.mark.parametrize("kind", KINDS)
def test_text_comes_as_it_is_decoded_at_once(kind, tmp_path):
    """Whatever tokens come: of scripts or at random, after a prompt or not, up to a stop string or to the end."""
    tokenizer, draw = KINDS[kind](tmp_path), random.Random(0)
    for case in range(500):
        tokens = [draw.randrange(tokenizer.vocab_size + 2) for _ in range(draw.randrange(30))]
        if case % 3 == 0:
            tokens = [token for text in draw.choices(PIECES, k=8) for token in tokenizer.encode(text)]
        text = Text(tokenizer, [])
        pieces = [*map(text.add, tokens), text.end()]
        whole = tokenizer.decode(tokens)
        assert "".join(pieces) == whole
        cut = draw.randrange(len(tokens) + 1)
        before = tokenizer.decode(tokens[:cut])
        if whole.startswith(before) and "\ufffd" not in whole:
            text = Text(tokenizer, tokens[:cut])
            assert before + "".join([*map(text.add, tokens[cut:]), text.end()]) == whole
        if len(whole) > 5:
            stop = whole[3 : 3 + draw.randrange(1, 4)]
            stops = Stops([StopString("never there"), StopString(stop)])
            assert "".join(stops.add(piece) for piece in pieces if not stops.found) == whole[: whole.find(stop)]
            assert stops.found


def test_texts_of_tokens_make_up_the_text_and_are_told_apart(tmp_path):
    tokenizer = fallback(tmp_path)
    for text in "a true a", "true\n日本 ok":
        tokens = tokenizer.encode(text)
        assert b"".join(map(tokenizer.token_bytes, tokens)).decode() == " " + text
    ids = [tokenizer.tokenizer.token_to_id(name) for name in ("▁true", "true", "<0x61>", "a", "<0xE6>")]

    top = {ids[0]: -1.0, ids[1]: -2.0, ids[2]: -4.0, ids[3]: -3.0, ids[4]: -5.0}
    found = completion_logprobs([TokenScore(ids[0], 0, -1.0, top, b" true")], tokenizer)
    assert found["tokens"] == [" true"]
    assert found["top_logprobs"] == [{" true": -1, "true": -2, "a": -3, f"token_id:{ids[2]}": -4, "bytes:\\xe6": -5}]


def begin(*tokens):
    """The post-processor of a tokenizer.json that begins a text with these."""
    return lambda vocabulary: processors.TemplateProcessing(
        single=" ".join([*tokens, "$A"]), special_tokens=[(token, vocabulary[token]) for token in tokens]
    )


def end(token):
    return lambda vocabulary: processors.TemplateProcessing(
        single=f"<s> $A {token}", special_tokens=[(name, vocabulary[name]) for name in ("<s>", token)]
    )


CHAT = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}\n{% endfor %}"
LLAMA = dict(bos_token="<s>", eos_token="</s>")
ADDED = {"__type": "AddedToken", "content": "<s>", "lstrip": False, "rstrip": False, "normalized": False}
GEMMA = {name: i for i, name in enumerate(dict.fromkeys(["<pad>", "<eos>", "<bos>", *sentencepiece()]))}
CHECKPOINTS = {  # class, vocabulary, settings, what begins a text by tokenizer.json, what tokenizer_config.json says
    "llama2": ("LlamaTokenizer", sentencepiece(), LLAMA, begin("<s>"), dict(add_bos_token=True)),
    "llama2 of old": (
        "LlamaTokenizer",
        sentencepiece(),
        LLAMA,
        begin("<s>"),
        dict(bos_token=ADDED, add_bos_token=False),
    ),
    "with eos": ("LlamaTokenizer", sentencepiece(), LLAMA, end("</s>"), {}),
    "mistral": ("LlamaTokenizer", sentencepiece("[INST]"), LLAMA, begin("<s>"), dict(add_bos_token=True)),
    "phi3": ("LlamaTokenizer", sentencepiece("<|user|>"), LLAMA, None, dict(add_bos_token=False)),
    "gemma": (
        "GemmaTokenizer",
        GEMMA,
        dict(bos_token="<bos>", eos_token="<eos>"),
        begin("<bos>"),
        dict(add_bos_token=True),
    ),
    "llama3": (None, byte_level("<|b|>", "<|e|>"), dict(bos_token="<|b|>", eos_token="<|e|>"), begin("<|b|>"), {}),
    "qwen2": (
        "Qwen2Tokenizer",
        byte_level("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        dict(eos_token="<|im_end|>", pad_token="<|endoftext|>"),
        None,
        dict(bos_token=None, add_bos_token=False),
    ),
    "glm": (
        None,
        byte_level("[gMASK]", "<sop>", "<|endoftext|>"),
        dict(eos_token="<|endoftext|>"),
        begin("[gMASK]", "<sop>"),
        {},
    ),
    "gpt2": ("GPT2Tokenizer", byte_level("<|e|>"), dict(bos_token="<|e|>", eos_token="<|e|>"), None, {}),
    "smollm": ("GPT2Tokenizer", byte_level("<|s|>", "<|e|>"), dict(bos_token="<|s|>", eos_token="<|e|>"), None, {}),
    "gpt_oss": (None, byte_level("<|s|>", "<|return|>"), dict(bos_token="<|s|>", eos_token="<|return|>"), None, {}),
    "deepseek": (
        None,
        byte_level("<|b|>", "<|e|>"),
        dict(bos_token="<|b|>", eos_token="<|e|>"),
        begin("<|b|>"),
        dict(add_bos_token=True, add_eos_token=False),
    ),
    "cohere": (
        "CohereTokenizer",
        byte_level("<BOS>", "<EOS>"),
        dict(bos_token="<BOS>", eos_token="<EOS>"),
        begin("<BOS>"),
        {},
    ),
}
TEXTS = ["the cat", "  two  spaces\n\n", "日本 😀", "a </s> and <|im_start|> and <|e|><EOS> in it", "<s>", "x"]


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_tokens_are_those_of_transformers(kind, tmp_path):
    """Of prompts, chats and documents, where an earlier call left truncation and padding in tokenizer.json."""
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install '.[test]'")
    name, vocabulary, settings, beginning, written = CHECKPOINTS[kind]
    if name:
        made = getattr(transformers, name)(vocab=vocabulary, merges=[], **settings)
    else:
        backend = Tokenizer(models.BPE(vocabulary, []))
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        backend.add_special_tokens([token for token, i in vocabulary.items() if i >= 256])
        made = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **settings)
    if beginning:
        made.backend_tokenizer.post_processor = beginning(vocabulary)
    made.chat_template = CHAT
    made.backend_tokenizer.enable_truncation(3)
    made.backend_tokenizer.enable_padding(length=8)
    made.save_pretrained(tmp_path)
    saved = tmp_path / "tokenizer_config.json"
    saved.write_text(json.dumps(json.loads(saved.read_text()) | written))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    ours = FileTokenizer(epath.Path(path))
    template = load_chat_template(ours, str(path))
    for text in TEXTS:
        assert ours.encode_prompt(text) == theirs(text, truncation=False, padding=False).input_ids
        document = theirs(text, split_special_tokens=True, truncation=False, padding=False).input_ids
        document = [*document[: len(document) - len(ours.suffix)], theirs.eos_token_id]
        assert [*ours.prefix, *ours.encode(text), ours.eos] == document
        if "<" not in text:  # special tokens in what a message says stay text here
            messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "a"}]
            found = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            assert template.encode(messages) == found


@pytest.mark.parametrize("asked", [False, True])
def test_special_tokens_in_documents_are_text_unless_asked_for(asked, tmp_path, capsys):
    fallback(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path / "tokenizer.json"), asked)
    texts = ["a</s>b", "true", "</s>"]
    assert [2 in tokenizer.encode(text) for text in texts] == [asked, False, asked]
    assert all((2 in tokenizer.encode_prompt(text)) == ("</s>" in text) for text in texts)
    warn_of_special_tokens("DATA", "the first 100", count_special(tokenizer, texts))
    said = "special tokens in documents: of the first 100 documents: </s> in 2; there they are text"
    assert (said in capsys.readouterr().err) != asked


@pytest.mark.parametrize(
    "text", ['{"pre_tokenizer": {"type": "Split"', "{}", "[]", '"x"', "", "\x00", '{"model": {"type": "BPE"}}']
)
def test_a_file_that_is_no_tokenizer_is_named(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match=r"tokenizer\.json .*give the path of a tokenizer\.json, or bytes"):
        FileTokenizer(epath.Path(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize("pattern", ["(", "[", "(?<n>", "a{99999999}"])
def test_a_bad_regular_expression_is_named(pattern, tmp_path):
    plain_bytes(tmp_path)
    path = tmp_path / "tokenizer.json"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pre_tokenizer": split}))
    with pytest.raises(InputError, match=r"tokenizer\.json .*give the path of a tokenizer\.json, or bytes"):
        FileTokenizer(epath.Path(path))
