"""A delta rule that can turn what a state holds into its opposite: writes of up to twice the difference.

Source: Grazzi et al. 2024, arXiv 2411.12537, section 4.
"""

from generator.language import proceed, requires, splice

requires("gated_delta_net")


@splice("DeltaNet.read", after="delta_states")
def _(beta):
    beta = 2 * beta
    proceed()


@splice("hf.structure")
def _():
    yield (
        "linear_allow_neg_eigval",
        True,
        "smaller writes, by leaving model/negative_eigenvalues out,",
    )
