"""Evaluation on tasks, by the Language Model Evaluation Harness.

Source: Gao et al. 2024, doi 10.5281/zenodo.12608602 (lm-eval).
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from generator.language import splice
from generator.language.roles import (
    AnyTokenizer,
    ByteTokenizer,
    ChatTemplate,
    Engine,
    InputError,
    NonNegativeInt,
    Request,
    SamplingParams,
    TemplateError,
)

CERTAIN = 1e9  # a bias with which a token is sampled, whatever its logit


@splice("SamplingParams.fields")
def _():
    scored_from: NonNegativeInt = 0  # where in the prompt prompt_logprobs begin; what is before may be cached


@splice("Engine.scored")
def _(request, sequence):
    if request.sampling.prompt_logprobs:
        sequence = sequence[: request.sampling.scored_from]


class EngineModel:
    """Answers what lm-eval asks a language model as its `hf` model does, by an engine."""

    # set for each model, in place of properties of lm-eval's class
    eot_token_id = prefix_token_id = 0
    tokenizer_name = ""

    def __init__(self, engine: Engine, tokenizer: AnyTokenizer, template: ChatTemplate | None):
        super().__init__()
        self.engine, self.reader, self.template = engine, tokenizer, template
        self.max_length = engine.room - 1  # tokens that are read to predict the last one
        self.bos = ""
        self.eot_token_id, self.prefix_token_id = tokenizer.eos, tokenizer.eos
        if isinstance(tokenizer, ByteTokenizer):
            self.prefix_token_id = tokenizer.bos
        elif "bos_token" in tokenizer.names:
            self.bos = tokenizer.names["bos_token"]
            self.prefix_token_id = tokenizer.tokenizer.token_to_id(self.bos)
        self.tokenizer_name = tokenizer.digest  # for caches of requests

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Tokenizes a text with the tokenizer's prefix, unless it begins with bos, as a chat template's may."""
        if add_special_tokens is None:
            add_special_tokens = not (self.bos and string.startswith(self.bos))
        tokens = self.reader.encode_prompt(string)
        start = len(self.reader.prefix)
        end = len(tokens) - len(getattr(self.reader, "suffix", ()))
        return tokens if add_special_tokens else tokens[start:end]

    def run(self, prompts: list[tuple[list[int], SamplingParams]]) -> Iterator[tuple[int, Request]]:
        """Yields requests with their places in `prompts` whenever they have new tokens; queues few at a time."""
        # by their tokens, so that those with a common prefix follow each other
        waiting = iter(sorted(range(len(prompts)), key=lambda place: prompts[place][0]))
        most_queued = min(self.engine.settings.max_sequences, self.engine.settings.queue)
        places: dict[Request, int] = {}
        while True:
            while len(self.engine.queued) < most_queued:
                if (place := next(waiting, None)) is None:
                    break
                places[self.engine.add(*prompts[place])] = place
            if not places:
                return
            for request in self.engine.step():
                if request in places:
                    yield places[request], request
                    if request.finish:
                        del places[request]

    def _loglikelihood_tokens(self, requests: list[Any], **_: Any) -> list[tuple[float, bool]]:
        """Scores continuations: by the log-probabilities of a prompt, but the last token as if it were sampled."""
        prompts = []
        answers = [(0.0, False)] * len(requests)
        for _, context, continuation in requests:
            if not 1 <= len(continuation) <= self.max_length:
                raise InputError(f"a continuation has {len(continuation)} tokens: must be 1 to {self.max_length}")
            tokens = [*(context or [self.prefix_token_id]), *continuation][-self.max_length - 1 :]
            forced = {tokens[-1]: CERTAIN}
            several = len(continuation) > 1
            scores = {"prompt_logprobs": several, "scored_from": len(tokens) - len(continuation), "logprobs": 1}
            prompts.append((tokens[:-1], SamplingParams(max_tokens=1, logit_bias=forced, **scores)))
        for place, request in self.run(prompts):
            if request.finish:
                tokens = requests[place][2]
                scores = (request.prompt_logprobs + request.logprobs)[-len(tokens) :]
                tops = (request.prompt_top_logprobs + request.top_logprobs)[-len(tokens) :]
                answers[place] = sum(scores), all(token in top for token, top in zip(tokens, tops, strict=True))
        return answers

    def loglikelihood_rolling(self, requests: list[Any], **_: Any) -> list[float]:
        """Scores whole texts, in windows that follow each other."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        bounds, windows = [0], []
        for request in requests:
            tokens = self.tok_encode(request.args[0])
            rolling = get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, 1)
            windows += [(None, *make_disjoint_window(window)) for window in rolling]
            bounds.append(len(windows))
        scores = [score for score, _ in self._loglikelihood_tokens(windows)]
        return [sum(scores[start:end]) for start, end in itertools.pairwise(bounds)]

    def sampling(self, settings: dict[str, Any], seed: int) -> tuple[SamplingParams, list[str]]:
        """Returns the sampling and the stop strings for generation_kwargs of a task."""
        from lm_eval.models.utils import normalize_gen_kwargs

        options = {name: value for name, value in normalize_gen_kwargs(settings).items() if value is not None}
        most, until, sampled = (options.pop(name) for name in ("max_gen_toks", "until", "do_sample"))
        if not 1 <= most < self.max_length:
            raise InputError(
                f"max_gen_toks {most}: must be less than {self.max_length}, the longest text: "
                "give --gen-kwargs max_gen_toks=NUMBER"
            )
        temperature = options.pop("temperature", 1.0)
        if others := options.keys() - {"top_k", "top_p", "min_p", "repetition_penalty"}:
            raise InputError(f"generation_kwargs {', '.join(sorted(others))}: not supported: remove them from the task")
        stops = [stop for stop in [*until, self.reader.special.get(self.reader.eos)] if stop]
        return SamplingParams(max_tokens=most, temperature=temperature if sampled else 0.0, seed=seed, **options), stops

    def generate_until(self, requests: list[Any], **_: Any) -> list[str]:
        """Continues texts up to a stop string, which is not in the answer."""
        prompts = []
        stops = []
        answers = [""] * len(requests)
        for place, request in enumerate(requests):
            sampling, until = self.sampling(request.args[1], place)
            tokens = self.tok_encode(request.args[0]) or [self.prefix_token_id]
            prompts.append((tokens[sampling.max_tokens - self.max_length :], sampling))
            stops.append(until)
        for place, request in self.run(prompts):
            last = max(len(stop.encode()) for stop in [*stops[place], ""]) + 4  # tokens that a stop string may take
            tail = self.reader.decode(request.tokens[-last:])
            if any(stop in tail for stop in stops[place]):
                self.engine.cancel(request)
            if request.finish:
                answers[place] = self.reader.decode(request.tokens)
                for stop in stops[place]:
                    answers[place] = answers[place].partition(stop)[0]
        return answers

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Returns the text of a chat; without a generation prompt, the last message can be continued."""
        if self.template is None:
            raise InputError("the tokenizer has no chat template: leave out --apply-chat-template")
        try:
            text = self.template.render(chat_history, None, None, add_generation_prompt)
        except TemplateError:
            others = [message for message in chat_history if message["role"] != "system"]
            if others == chat_history:
                raise
            return self.apply_chat_template(others, add_generation_prompt)  # as templates may take no system message
        last = chat_history[-1]["content"].strip()
        return text if add_generation_prompt else text[: text.rindex(last) + len(last)]


def import_lm_eval() -> ModuleType:
    try:
        import lm_eval.api.model
        import lm_eval.tasks
        import lm_eval.utils

        return lm_eval
    except ImportError:
        raise InputError("evaluation on tasks needs lm-eval: pip install 'lm-eval>=0.4.12'") from None


def find_tasks(tasks: str, folder: str = "") -> Any:
    """Returns lm-eval's table of tasks, with those of a folder. Raises InputError if one of `tasks` is not there."""
    if folder and not Path(folder).is_dir():
        raise InputError(f"--include-path {folder}: there is no such folder: give one of .yaml files")
    table = import_lm_eval().tasks.TaskManager(include_path=folder or None)
    for name in tasks.split(","):
        if name not in table.all_tasks and not (name.endswith(".yaml") and Path(name).is_file()):
            raise InputError(f"task {name!r}: lm-eval has none of this name, nor is it a file: see `lm_eval ls tasks`")
    return table


def evaluate_tasks(
    engine: Engine, tokenizer: AnyTokenizer, template: ChatTemplate | None, tasks: str, table: Any, **settings: Any
) -> dict[str, Any]:
    """Returns the results of lm-eval on tasks (comma-separated) of a table; `settings` are those of simple_evaluate.

    Raises InputError if a task cannot be evaluated.
    """
    lm_eval = import_lm_eval()
    model = type("EngineLM", (EngineModel, lm_eval.api.model.TemplateLM), {})(engine, tokenizer, template)
    try:
        return lm_eval.simple_evaluate(model, tasks=tasks.split(","), task_manager=table, **settings)
    except InputError:
        raise
    except Exception as error:  # tasks may raise anything
        problem = " ".join(f"{type(error).__name__} {error}".split())
        raise InputError(f"tasks {tasks}: {problem}: mend the task or its data") from error
