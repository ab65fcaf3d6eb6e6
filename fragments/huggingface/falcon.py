"""Settings of Falcon in config.json, of which its later sizes ignore some and its earlier sizes others."""

from generator.language import splice


@splice("hf.complete", before="grouped_queries")
def _(hf):
    hf.setdefault("ffn_hidden_size", 4 * hf["hidden_size"])
    if hf["new_decoder_architecture"]:
        hf["multi_query"] = True  # which says nothing then
        hf.setdefault("num_ln_in_parallel_attn", 2)
    else:
        hf["num_ln_in_parallel_attn"] = 1
        hf.pop("num_kv_heads", None)


@splice("hf.export")
def _(hf):
    del hf["head_dim"]
