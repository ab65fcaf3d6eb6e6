"""The table from logical axes to the axes of the mesh."""

from generator.language import excludes, setting

excludes("experts")

# Logical axis -> mesh axes. An axis that is not here (None in a spec) is not split.
RULES = {
    "batch": ("data", "fsdp"),
    "sequence": ("context",) if setting("context") else (),
    "residual": (),  # the width of an activation
    "embed": ("fsdp", "context") if setting("context") else ("fsdp",),  # the width in a parameter
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "vocab": ("tensor",),
}
