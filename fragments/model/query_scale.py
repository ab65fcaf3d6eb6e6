"""Scales queries, before `attend` divides scores by the root of the head size."""

from generator.language import requires, splice

requires("multipliers or query_scalar")


@splice("Attention.heads", after="qk_norm rope")
def _(self, q):
    q = q * self.query_scale
