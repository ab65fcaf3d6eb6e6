"""Tokenizers of the kinds that checkpoints come with, made for tests."""

import json

import pytest
from etils import epath
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from generator.language.roles import ByteTokenizer, FileTokenizer

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
    """Returns a vocabulary that falls back to bytes, like Llama 2's."""
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
    model = models.BPE(byte_level("Ġtext", "æĹ¥", "ðŁĺ"), [])
    added = ["<call>", "<tool> x", "日本語"]
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


def begin(*tokens):
    """Returns what makes a post-processor that begins a text with these tokens."""
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
CHECKPOINTS = {  # class, vocabulary, settings, post-processor in tokenizer.json, more of tokenizer_config.json
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


def save_as_transformers_does(kind, folder):
    """Saves a tokenizer of this kind, with truncation and padding left on; returns that of transformers."""
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
    made.save_pretrained(folder)
    saved = folder / "tokenizer_config.json"
    saved.write_text(json.dumps(json.loads(saved.read_text()) | written))
    return transformers.AutoTokenizer.from_pretrained(folder)
