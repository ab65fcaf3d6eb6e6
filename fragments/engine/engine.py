"""An engine that serves many requests at a time: a step takes a token of every text, or a part of some prompts.

Source: Yu et al. 2022, OSDI, "Orca", section 3.2 (a step of all requests); Kwon et al. 2023, arXiv 2309.06180 (pages;
texts that are computed again when these run out); Agrawal et al. 2024, arXiv 2403.02310, section 4 (prompts in parts).
"""

import collections
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from generator.language import point
from generator.language.roles import (
    TOP,
    Config,
    Decoder,
    Draws,
    EngineSettings,
    InputError,
    PagePool,
    QueueFull,
    Request,
    Sampling,
    StepInput,
    StepOutput,
    empty_pages,
    field_problems,
    numbered_layers,
    pages_at_a_time,
    run,
    write,
    write_text,
)


class Engine:
    """Requests in the order of their arrival. For one thread."""

    def __init__(self, config: Config, model: Decoder, eos: int, settings: EngineSettings):
        longest = settings.max_length or config.context_length
        size, rows = settings.page_size, settings.max_rows
        problems = field_problems(settings, dict.fromkeys(("max_length", "cache_tokens"), (0, 2**31 - 1)))
        if longest > config.context_length:
            problems.append(f"--max-length {longest}: must be at most the context, {config.context_length}")
        if problems:
            raise InputError("\n".join(problems))
        point("Engine.model", model)
        self.config, self.model, self.eos, self.settings, self.longest = config, model, eos, settings, longest
        self.pool = PagePool(1 + -(-(settings.cache_tokens or rows * longest) // size))
        self.layers = numbered_layers(config)
        self.key, self.value = jax.jit(lambda: empty_pages(config, self.pool.pages, size))()
        self.table_width = -(-longest // (size * pages_at_a_time(size))) * pages_at_a_time(size)
        self.texts = jnp.zeros((rows + 1, longest + 2), jnp.int32)  # nobody reads the last row and the last place
        self.free_slots = list(range(rows))
        self.waiting: collections.deque[Request] = collections.deque()
        self.rows: list[Request] = []  # requests that run, in the order of arrival
        # steps that the device has not done, or nobody has read: requests with their tokens, which draw, whether whole
        self.under_way: collections.deque[tuple[StepOutput, list[tuple[Request, int]], np.ndarray, bool]]
        self.under_way = collections.deque()
        self.changed: dict[Request, None] = {}  # since the last step
        self.prefix_hits = self.prefix_queries = 0  # tokens of prompts: those found in pages; all
        self.decode_shapes = sorted({(min(4**i, rows), 1) for i in range(16)})
        parts = {max(settings.chunk // share, 1) for share in (1, 4, 16)}
        self.prompt_shapes = sorted({(n, T) for T in parts for n in (1, min(settings.chunk // T, rows))})

    @property
    def queued(self) -> int:
        return len(self.waiting)

    @property
    def running(self) -> int:
        return len(self.rows)

    @property
    def pages(self) -> int:
        return self.pool.pages - 1

    @property
    def pages_used(self) -> int:
        return self.pages - len(self.pool.free)

    def warm_up(self) -> Iterator[str]:
        """Compiles all that steps can be, and says after each what it was."""
        self.texts = write_text(self.texts, self.settings.max_rows, np.zeros(self.texts.shape[1], np.int32))
        for rows, length in sorted({*self.decode_shapes, *self.prompt_shapes}):
            jax.block_until_ready(self.run(self.nothing(rows), length, whole=False))
            yield f"{rows} x {length} tokens"
        jax.block_until_ready(self.run(self.nothing(1), self.settings.chunk, whole=True))
        yield f"1 x {self.settings.chunk} tokens, each scored"

    def add(self, prompt: Sequence[int], sampling: Sampling) -> Request:
        """A request, which waits for its turn. InputError: it can never be served. QueueFull: not now."""
        bounds = {"top_p": (1e-6, 1), "min_p": (0, 1), "top_k": (0, self.config.vocab_size), "seed": (0, 2**32 - 1)}
        bounds |= {"logprobs": (0, TOP), "repetition_penalty": (1e-3, 1e3)}
        bounds |= dict.fromkeys(("presence_penalty", "frequency_penalty"), (-100, 100))
        problems = field_problems(sampling, bounds)
        length, most = len(prompt), sampling.max_tokens
        if not prompt:
            problems.append("a prompt is empty: begin it with bos")
        if length + most > self.longest:
            sizes = f"the prompt has {length} tokens, the context {self.longest}"
            problems.append(f"--max-tokens {most}: {sizes}: lower it, or shorten the prompt")
        if foreign := [token for token in prompt if not 0 <= token < self.config.vocab_size]:
            whose = f"token {foreign[0]} of another tokenizer: the vocabulary has {self.config.vocab_size}"
            problems.append(f"the prompt has {whose}")
        if not problems and self.pages_for(length + most) > self.pages:
            problems.append(f"--cache-tokens {self.settings.cache_tokens}: {length} + {most} tokens need more")
        if problems:
            raise InputError("\n".join(problems))
        if len(self.waiting) >= self.settings.queue:
            raise QueueFull(f"{len(self.waiting)} requests wait")
        request = Request(list(prompt), sampling)
        self.waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Ends a request, unless it has ended."""
        if request.finish is None:
            self.end(request, "cancelled")

    def step(self) -> list[Request]:
        """Starts a step of the texts that go on and one of prompts, then reads what was under way before.

        So the device has its next work before the host waits for the last. Returns the requests of which something is
        new since the last call; none, when there is nothing to do.
        """
        self.admit()
        started = self.continue_texts() + self.read_prompts()
        self.take_in(len(self.under_way) - started)
        changed, self.changed = list(self.changed), {}
        return changed

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Request]:
        """All requests, ended."""
        requests = []
        for prompt in prompts:
            while len(self.waiting) >= self.settings.queue:
                self.step()
            requests.append(self.add(prompt, sampling))
        while self.waiting or self.rows:
            self.step()
        return requests

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.settings.page_size)

    def admit(self) -> None:
        """Lets requests in by arrival, while there are a row, and pages for what they came with and one token more."""
        while self.waiting and self.free_slots:
            request = self.waiting[0]
            text = request.text
            request.computed, request.drawn = 0, len(text)
            request.cached = request.cached if request.tokens else 0
            self.share_pages(request)
            if self.pages_for(len(text) + 1) - len(request.pages) > len(self.pool.free):
                self.pool.give_back(request.pages)
                request.pages, request.digests = [], []
                return
            self.waiting.popleft()
            self.rows.append(request)
            request.slot, request.reading = self.free_slots.pop(), True
            self.prefix_queries += len(text)
            self.grow(request, len(text))
            padded = np.zeros(self.texts.shape[1], np.int32)
            padded[: len(text)] = text
            self.texts = write_text(self.texts, request.slot, padded)

    def share_pages(self, request: Request) -> None:
        """Gives a request the pages of its prompt that there are by now, in the place of its own."""
        size, text = self.settings.page_size, request.text
        if request.sampling.prompt_logprobs:
            return  # computed anew, as its scores are wanted
        while len(request.digests) < (len(text) - 1) // size:  # a token at least has to be computed
            digest, place = request.next_digest(text, size), len(request.digests)
            page = self.pool.share(digest)
            if page is None:
                break
            self.pool.give_back(request.pages[place : place + 1])
            request.pages[place : place + 1] = [page]
            request.digests.append(digest)

    def grow(self, request: Request, tokens: int) -> None:
        while len(request.pages) < self.pages_for(tokens):
            request.pages.append(self.pool.take())

    def leave(self, request: Request) -> None:
        """Takes a request off the device. Steps under way may still write to its pages: they come before all others."""
        self.rows.remove(request)
        self.free_slots.append(request.slot)
        self.pool.give_back(request.pages)
        request.pages, request.digests = [], []
        if request.reading:
            request.prompt_logprobs, request.prompt_top_logprobs = [], []

    def end(self, request: Request, why: str) -> None:
        if request in self.rows:
            self.leave(request)
        else:
            self.waiting.remove(request)
        request.finish = why
        self.changed[request] = None

    def continue_texts(self) -> int:
        """Starts a step of the next token of each text that was read. The number of steps started: 1 or 0."""

        def ready(request):
            goes_on = request.drawn - len(request.prompt) < request.sampling.max_tokens
            return request in self.rows and not request.reading and goes_on

        for request in [request for request in self.rows if ready(request)]:
            while ready(request) and self.pages_for(request.drawn) > len(request.pages) + len(self.pool.free):
                self.take_in(len(self.under_way))  # some may have ended
                if ready(request) and not self.pool.free:
                    latest = self.rows[-1]
                    self.leave(latest)  # to be computed again
                    self.waiting.appendleft(latest)
            if ready(request):
                self.grow(request, request.drawn)
        parts = [(request, 1) for request in self.rows if ready(request)]
        if parts:
            rows = next(rows for rows, _ in self.decode_shapes if rows >= len(parts))
            self.start(rows, 1, parts, whole=False)
        return bool(parts)

    def read_prompts(self) -> int:
        """Starts a step of the next part of the first prompt, and of others with parts of that length. As above."""
        reading = [request for request in self.rows if request.reading]
        if not reading:
            return 0
        for request in reading:
            self.skip_shared(request)
        first = reading[0]
        if whole := first.sampling.prompt_logprobs and not first.tokens:
            length, most, alike = self.settings.chunk, 1, reading[:1]
        else:
            length = self.part_length(first)
            most = max(rows for rows, other in self.prompt_shapes if other == length)
            alike = [request for request in reading if self.part_length(request) == length]
            alike = [request for request in alike if request is first or not request.sampling.prompt_logprobs]
        parts = [(request, min(request.drawn - request.computed, length)) for request in alike[:most]]
        self.start(most if len(parts) > 1 else 1, length, parts, whole)
        return 1

    def skip_shared(self, request: Request) -> None:
        """Passes over what others have read of a prompt since it was let in."""
        self.share_pages(request)
        skipped = len(request.digests) * self.settings.page_size - request.computed
        if skipped > 0:
            request.computed += skipped
            request.cached += 0 if request.tokens else skipped
            self.prefix_hits += skipped

    def part_length(self, request: Request) -> int:
        """The length of the next part of a prompt: one that it fills, or of which it leaves a quarter over at most."""
        left = request.drawn - request.computed
        lengths = sorted({length for _, length in self.prompt_shapes})
        shortest = next((length for length in lengths if left <= length), lengths[-1])
        filled = [length for length in lengths if length <= left]
        return filled[-1] if filled and left < 3 / 4 * shortest else shortest

    def start(self, rows: int, length: int, parts: list[tuple[Request, int]], whole: bool) -> None:
        """Gives the device a step: so many more tokens of each of these requests."""
        step = self.nothing(rows)
        for row, (request, count) in enumerate(parts):
            step.slots[row], step.starts[row], step.counts[row] = request.slot, request.computed, count
            step.tables[row, : len(request.pages)] = request.pages
            step.top[...] |= request.sampling.logprobs > 0
            for name, column in step.sampling._asdict().items():
                column[row] = len(request.prompt) if name == "prompt" else getattr(request.sampling, name)
            request.computed += count
            self.name_pages(request)
            if request.computed == request.drawn:
                step.draws[row], request.reading = True, False
                request.drawn += 1
        self.under_way.append((self.run(step, length, whole), parts, step.draws, whole))

    def nothing(self, rows: int) -> StepInput:
        """The input of a step in which nothing is to be done."""
        types = {"prompt": np.int32, "top_k": np.int32, "seed": np.uint32}
        sampling = Draws(**{name: np.zeros(rows, types.get(name, np.float32)) for name in Draws._fields})
        sampling.top_p[:] = sampling.repetition_penalty[:] = 1
        slots, zeros = np.full(rows, self.settings.max_rows, np.int32), np.zeros(rows, np.int32)
        tables = np.zeros((rows, self.table_width), np.int32)
        return StepInput(slots, zeros, zeros.copy(), np.zeros(rows, bool), tables, np.array(False), sampling)

    def run(self, step: StepInput, length: int, whole: bool) -> StepOutput:
        arrays = self.key, self.value, self.texts
        output, cache, self.texts = run(self.model, *arrays, self.layers, step, length, whole)
        self.key, self.value = write(self.key, self.value, cache, step, length)
        return output

    def name_pages(self, request: Request) -> None:
        """Lets other texts find its full pages: their tokens are known here, their keys are there or to come."""
        size = self.settings.page_size
        known = min(request.computed, len(request.prompt) + len(request.tokens))
        while (len(request.digests) + 1) * size <= known:
            digest = request.next_digest(request.text, size)
            self.pool.name(request.pages[len(request.digests)], digest)
            request.digests.append(digest)

    def take_in(self, steps: int) -> None:
        """Waits for the oldest steps under way, and gives their requests what they brought."""
        for _ in range(steps):
            output, parts, draws, whole = self.under_way.popleft()
            scores, tokens, *top = (x.tolist() for x in jax.device_get(output))
            for row, (request, count) in enumerate(parts):
                if request.finish:
                    continue  # since the step was started
                tops = [dict(zip(*pair, strict=True)) for pair in zip(*(x[row] for x in top), strict=True)]
                tops = [dict(list(x.items())[: request.sampling.logprobs]) for x in tops]
                if whole:
                    places = count - bool(draws[row])
                    request.prompt_logprobs += scores[row][:places]
                    request.prompt_top_logprobs += tops[:places]
                if draws[row]:
                    place = count - 1 if whole else 0
                    request.tokens.append(tokens[row][place])
                    request.logprobs.append(scores[row][place])
                    request.top_logprobs.append(tops[place])
                    self.name_pages(request)
                    self.changed[request] = None
                    if request.tokens[-1] == self.eos and not request.sampling.ignore_eos:
                        self.end(request, "stop")
                    elif len(request.tokens) == request.sampling.max_tokens:
                        self.end(request, "length")
