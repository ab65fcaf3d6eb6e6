"""Learned positions behind two rows that no token has: those of padding.

Source: Zhang et al. 2022, arXiv 2205.01068 (its released code).
"""

from generator.language import requires, splice

requires("learned_positions")


@splice("Embedding.position_rows")
def _(config, rows):
    rows = 2 + config.context_length


@splice("Embedding.position_row")
def _(positions, row):
    row = 2 + positions
