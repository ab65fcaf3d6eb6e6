"""The command line of the server."""

import dataclasses
import gc
import os

import tyro

from generator.language import point, requires
from generator.language.roles import EngineSettings, InputError, ModelSettings, ending_with_messages

requires("serve/serve")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeSettings(ModelSettings):
    """Serves the model of a training run or of a Hugging Face directory with OpenAI's HTTP API."""

    engine: tyro.conf.OmitArgPrefixes[EngineSettings]
    host: str = "127.0.0.1"  # 0.0.0.0: open to other machines
    port: int = 8000  # 0: a free one
    model: str = __package__ or ""  # its name for clients
    api_key: tuple[str, ...] = ()  # keys of clients; default: those of SERVE_API_KEY, comma-separated
    without_key: bool = False  # let other machines in without a key
    allow_host: tuple[str, ...] = ()  # more names of the server that clients may use; *: any
    allow_origin: tuple[str, ...] = ()  # origins of web pages that may send requests, like https://example.org; *: any
    max_body: int = 4 * 2**20  # bytes of a request body
    client_seconds: int = 30  # time limit for a client to send the head or body of a request, or to read
    request_seconds: int = 3600  # time limit of an answer
    step_seconds: int = 600  # time limit of a step, after which the server exits
    drain_seconds: int = 60  # time for running requests to finish after SIGTERM
    point("ServeSettings.fields")

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the keys of clients. Raises InputError for an empty key, or no key if other machines can connect."""
        variable = os.environ.get("SERVE_API_KEY")
        texts = self.api_key or (() if variable is None else variable.split(","))
        keys = tuple(text.strip() for text in texts)
        if not all(keys):
            raise InputError("--api-key or SERVE_API_KEY is empty: give a key, or leave it out")
        if not (keys or self.host in ("localhost", "127.0.0.1", "::1") or self.without_key):
            raise InputError(f"--host {self.host} lets other machines in: set SERVE_API_KEY, or give --without-key")
        return keys


@ending_with_messages()
def main() -> None:
    settings = tyro.cli(ServeSettings, prog=f"python -m {__package__}.serve")
    seconds = {name: getattr(settings, f"{name}_seconds") for name in ("client", "request", "step", "drain")}
    if min(settings.max_body, *seconds.values()) < 1:
        raise InputError(f"--max-body, {', '.join(f'--{name}-seconds' for name in seconds)}: must be at least 1")
    if not settings.model:
        raise InputError("--model: must be a name")
    _ = settings.keys  # checked before loading a model
    # after help and refusals, as they import JAX
    from generator.language.roles import run_server

    gc.freeze()  # modules stay: a full collection would look at them for 0.1 seconds, in which no other thread runs
    run_server(settings)


if __name__ == "__main__":
    main()
