"""Numbers with bounds, for the annotations of fields."""

from typing import Annotated

PositiveInt = Annotated[int, 1, 2**31 - 1]  # least and greatest value
NonNegativeInt = Annotated[int, 0, 2**31 - 1]
PositiveFloat = Annotated[float, 1e-30, 1e30]
NonNegativeFloat = Annotated[float, 0, 1e30]
