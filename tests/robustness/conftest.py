from compiling import compiled_once  # noqa: F401

from robustness.programs import data_file  # noqa: F401
