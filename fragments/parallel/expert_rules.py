"""The table from logical axes to the axes of a mesh with experts.

Source: Lepikhin et al. 2020, arXiv 2006.16668, section 3.2.
"""

from generator.language import excludes, requires, setting

requires("experts")
excludes("whole_experts")

# Logical axis -> mesh axes. An axis that is not here (None in a spec) is not split.
RULES = {
    "batch": ("data", "fsdp", "expert"),
    "sequence": ("context",) if setting("context") else (),
    "residual": (),  # the width of an activation
    "embed": ("fsdp", "expert", "context") if setting("context") else ("fsdp", "expert"),  # the width in a parameter
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "expert": ("expert",),
    "expert_embed": ("fsdp", "context") if setting("context") else ("fsdp",),  # the width in a parameter of experts
    "expert_mlp": ("tensor",),
    "vocab": ("tensor",),
}
