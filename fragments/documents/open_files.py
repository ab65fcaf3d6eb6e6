"""The number of files that a process may have open."""

import contextlib
import resource


def allow_open_files() -> None:
    """Raises this process's limit of open files to the most that it may have."""
    with contextlib.suppress(ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
