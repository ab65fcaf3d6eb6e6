"""The installed JAX computes on CPUs what NumPy does, in the products that packages have, at odd sizes.

jax 0.10.2 does not (jax issue 39103): it fails here at a width of 3.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# heads of that size, experts of that width, norms of that width
WIDTHS = [1, 3, 5, 7, 12, 33]
PRODUCTS = {
    "rows": ("OI,RI->OR", (0, 0), (40_000, 0)),
    "heads": ("BNCH,BNHS->BNCS", (2, 3, 50, 0), (2, 3, 0, 70)),
    "experts": ("ERI,EIO->ERO", (4, 1001, 0), (4, 0, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_their_sums_are_those_of_numpy(name):
    """Sums of squares of a product, by its first axis, and both gradients of their total."""
    equation, *shapes = PRODUCTS[name]

    @jax.jit
    def squares(x, kernel):
        return jnp.sum(jnp.einsum(equation, x, kernel) ** 2, axis=0)

    gradients = jax.jit(jax.grad(lambda *factors: jnp.sum(squares(*factors)), argnums=(0, 1)))
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        x, kernel = (rng.normal(size=[size or width for size in shape]).astype(np.float32) for shape in shapes)
        y = np.einsum(equation, x.astype(np.float64), kernel)
        np.testing.assert_allclose(
            squares(x, kernel), (y**2).sum(axis=0), rtol=1e-4, atol=1e-4, err_msg=f"width {width}"
        )
        (a, b), c = equation.split("->")[0].split(","), equation.split("->")[1]
        for gradient, backward, other in zip(
            gradients(x, kernel), (f"{c},{b}->{a}", f"{c},{a}->{b}"), (kernel, x), strict=True
        ):
            exact = np.einsum(backward, 2 * y, other)
            np.testing.assert_allclose(gradient, exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max(), err_msg=f"{width}")
