"""An engine that serves many requests at a time: a step takes a token of every text, or a part of some prompts.

Source: Yu et al. 2022, OSDI, "Orca", section 3.2 (a step of all requests); Kwon et al. 2023, arXiv 2309.06180 (pages;
texts that are computed again when these run out); Agrawal et al. 2024, arXiv 2403.02310, section 4 (prompts in parts).
"""

import collections
import math
from collections.abc import Iterator, Sequence

import jax
from jax.sharding import Mesh

from generator.language import point
from generator.language.roles import (
    BIASES,
    TOP,
    Config,
    Decoder,
    Device,
    EngineSettings,
    InputError,
    PagePool,
    QueueFull,
    Request,
    Sampling,
    StepInput,
    StepOutput,
    field_problems,
    guess,
    pages_that_fit,
)


class Engine:
    """Requests in the order of their arrival; tokens of `ends` end their texts. For one thread."""

    def __init__(
        self, config: Config, model: Decoder, ends: set[int], settings: EngineSettings, mesh: Mesh | None = None
    ):
        longest = settings.max_length or config.context_length
        bounds = dict.fromkeys(("max_length", "cache_tokens"), (0, 2**31 - 1))
        bounds |= dict.fromkeys(("max_rows", "page_size", "chunk"), (1, 2**16))
        problems = field_problems(settings, bounds | {"guesses": (0, 64)})
        if longest > config.context_length:
            problems.append(f"--max-length {longest}: must be at most the context, {config.context_length}")
        if longest == 1:
            problems.append("--max-length 1: must be at least 2: a prompt has a token, and so has an answer")
        if problems:
            raise InputError("\n".join(problems))
        self.config, self.ends, self.settings, self.longest = config, ends, settings, longest
        of_texts = settings.max_rows * self.pages_for(longest)
        pages = 1 + (self.pages_for(settings.cache_tokens) or pages_that_fit(of_texts, config, settings, mesh))
        try:
            if (config.layers + 1) * pages >= 2**31:
                raise MemoryError("32 bits count fewer in all layers")
            self.device = Device(config, model, settings, mesh, pages, longest)
            self.pool = PagePool(pages)
            point("Engine.pool", config, settings)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            reason, flags = str(error).partition("\n")[0], "--cache-tokens, --max-rows or --max-length"
            raise InputError(f"{flags}: no room for {pages:,} pages: give a lower one: {reason}") from None
        self.free_slots = list(range(settings.max_rows))
        self.waiting: collections.deque[Request] = collections.deque()
        self.rows: list[Request] = []  # requests that run, in the order of arrival
        # steps that the device has not done, or nobody has read; and whether what follows each token was scored
        self.under_way: collections.deque[tuple[StepOutput, list[Request], StepInput, bool]] = collections.deque()
        self.changed: dict[Request, None] = {}  # since the last step
        self.prefix_hits = self.prefix_queries = 0  # tokens of prompts: those found in pages; all

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
    def room(self) -> int:
        """Tokens that a text may have, with its prompt."""
        return min(self.longest, self.pages * self.settings.page_size)

    @property
    def pages_used(self) -> int:
        return self.pages - len(self.pool.free)

    def warm_up(self) -> Iterator[str]:
        """Compiles all that steps can be, and says after each what it was."""
        return self.device.warm_up()

    def add(self, prompt: Sequence[int], sampling: Sampling, salt: bytes = b"") -> Request:
        """A request, which waits for its turn. InputError: it can never be served. QueueFull: not now.

        Args:
            salt: only requests of the same one share pages.
        """
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
        named = {"the prompt has": prompt, "logit_bias names": sampling.logit_bias}
        for what, tokens in (named | {"stop_token_ids has": sampling.stop_token_ids}).items():
            if foreign := [token for token in tokens if not 0 <= token < self.config.vocab_size]:
                whose = f"token {foreign[0]} of another tokenizer: the vocabulary has {self.config.vocab_size}"
                problems.append(f"{what} {whose}")
        if not problems and self.pages_for(length + most) > self.pages:
            problems.append(f"the pages hold {self.pages * self.settings.page_size} tokens, not {length} + {most}")
        request = Request(list(prompt), sampling, root=salt)
        request.biases = [(token, bias, most) for token, bias in sampling.logit_bias.items()]
        if sampling.min_tokens:
            request.biases += [(token, -math.inf, sampling.min_tokens) for token in request.all_ends(self.ends)]
        if len(request.biases) > BIASES:
            problems.append(f"{len(request.biases)} tokens have a bias or end the text: at most {BIASES} may")
        if problems:
            raise InputError("\n".join(problems))
        if len(self.waiting) >= self.settings.queue:
            raise QueueFull(f"{len(self.waiting)} requests wait")
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
        if self.settings.guesses:
            self.take_in(len(self.under_way))  # guesses go on from what is known
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
            point("Engine.admit", request, text)
            request.cached = request.cached if request.tokens else 0
            self.share_pages(request)
            if self.pages_for(len(text) + 1) - len(request.pages) > len(self.pool.free):
                self.pool.give_back(request.pages)
                request.pages, request.digests = [], []
                point("Engine.turned_away", request)
                return
            self.waiting.popleft()
            self.rows.append(request)
            request.slot, request.reading = self.free_slots.pop(), True
            self.prefix_queries += len(text)
            self.grow(request, len(text))
            self.device.write_text(request.slot, text)
            if request.biases:
                self.device.write_biases(request.slot, request.biases)

    def share_pages(self, request: Request) -> None:
        """Gives a request the pages of its prompt that there are by now, in the place of its own."""
        size, text = self.settings.page_size, request.text
        if request.sampling.prompt_logprobs:
            return  # computed anew, as its scores are wanted
        with point("Engine.share", request, text):
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
        point("Engine.left", request)
        if not request.tokens:  # else the prompt is not scored again
            request.prompt_logprobs, request.prompt_top_logprobs = [], []

    def end(self, request: Request, why: str) -> None:
        if request in self.rows:
            self.leave(request)
        else:
            self.waiting.remove(request)
        request.finish = why
        self.changed[request] = None

    def continue_texts(self) -> int:
        """Starts a step of the next token of each text that was read, and another of texts with guesses. How many."""

        def ready(request):
            goes_on = request.drawn - len(request.prompt) < request.sampling.max_tokens
            return request in self.rows and not request.reading and goes_on

        for request in [request for request in self.rows if ready(request)]:
            point("Engine.continue", request)
            while ready(request) and self.pages_for(request.drawn) > len(request.pages) + len(self.pool.free):
                self.take_in(len(self.under_way))  # some may have ended
                if ready(request) and not self.pool.free:
                    latest = self.rows[-1]
                    self.leave(latest)  # to be computed again
                    self.waiting.appendleft(latest)
            if ready(request):
                self.grow(request, request.drawn)
        parts = [(request, 1, self.guess(request)) for request in self.rows if ready(request)]
        kinds = [part for part in parts if not part[2]], [part for part in parts if part[2]]
        for length, alike in zip((1, 1 + self.settings.guesses), kinds, strict=True):
            if alike:
                self.start(self.device.rows_for(len(alike)), length, alike, whole=length > 1)
        return sum(map(bool, kinds))

    def guess(self, request: Request) -> list[int]:
        """Tokens that may follow, if the request may still have them, and there are pages for their keys."""
        room = (len(request.pages) + len(self.pool.free)) * self.settings.page_size - request.drawn
        left = request.sampling.max_tokens - len(request.tokens) - 1
        with point("Engine.guesses", request):
            guesses = guess(request, most) if (most := min(self.settings.guesses, room, left)) > 0 else []
        self.grow(request, request.drawn + len(guesses))
        return guesses

    def read_prompts(self) -> int:
        """Starts a step of the next part of the first prompt, and of others with parts of that kind. As above."""
        reading = [request for request in self.rows if request.reading]
        if not reading:
            return 0
        for request in reading:
            self.skip_shared(request)
        left = [request.drawn - request.computed for request in reading]
        scored = [request.sampling.prompt_logprobs and not request.tokens for request in reading]
        kinds = list(zip(map(self.device.part_length, left), scored, strict=True))
        length, whole = kinds[0]
        most = self.device.parts[length]
        alike = [place for place, kind in enumerate(kinds) if kind == kinds[0]][:most]
        parts = [(reading[place], min(left[place], length), []) for place in alike]
        self.start(most if whole or len(parts) > 1 else 1, length, parts, whole)
        return 1

    def skip_shared(self, request: Request) -> None:
        """Passes over what others have read of a prompt since it was let in."""
        self.share_pages(request)
        skipped = len(request.digests) * self.settings.page_size - request.computed
        if skipped > 0:
            request.computed += skipped
            request.cached += 0 if request.tokens else skipped
            self.prefix_hits += skipped

    def start(self, rows: int, length: int, parts: list[tuple[Request, int, list[int]]], whole: bool) -> None:
        """Gives the device a step: so many more tokens of each of these requests, and those guessed to follow."""
        parts = sorted(parts, key=lambda part: len(part[0].pages))  # texts of like lengths side by side
        step = self.device.nothing(rows, len(parts[-1][0].pages), length - 1 if parts[0][2] else 0)
        for row, (request, count, guesses) in enumerate(parts):
            step.slots[row], step.starts[row], step.counts[row] = request.slot, request.computed, count + len(guesses)
            step.guesses[row, : len(guesses)] = guesses
            with point("Engine.tables", step, row, request, count, guesses):
                step.tables[row, : len(request.pages)] = request.pages
            step.top[...] |= request.sampling.logprobs > 0
            own = {"prompt": len(request.prompt), "biases": len(request.biases)}
            for name, column in step.sampling._asdict().items():
                column[row] = own[name] if name in own else getattr(request.sampling, name)
            request.computed += count
            self.name_pages(request)
            if request.computed == request.drawn:
                step.draws[row], request.reading = True, False
                request.drawn += 1
        requests, scored = [request for request, *_ in parts], whole and not parts[0][2]
        self.under_way.append((self.device.run(step, length, whole), requests, step, scored))

    def name_pages(self, request: Request) -> None:
        """Lets other texts find its full pages: their tokens are known here, their keys are there or to come."""
        size = self.settings.page_size
        known = min(request.computed, len(request.prompt) + len(request.tokens))
        while (len(request.digests) + 1) * size <= known:
            digest = request.next_digest(request.text, size)
            self.pool.name(request.pages[len(request.digests)], digest)
            point("Engine.name", request, digest)
            request.digests.append(digest)

    def take_in(self, steps: int) -> None:
        """Waits for the oldest steps under way, and gives their requests what they brought."""
        for _ in range(steps):
            output, requests, step, scored = self.under_way.popleft()
            scores, tokens, *top = (x.tolist() for x in jax.device_get(output))
            for row, request in enumerate(requests):
                if request.finish:
                    continue  # since the step was started
                tops = [dict(zip(*pair, strict=True)) for pair in zip(*(x[row] for x in top), strict=True)]
                tops = [dict(list(x.items())[: request.sampling.logprobs]) for x in tops]
                guesses, first = step.guesses[row, : step.counts[row] - 1].tolist(), 0
                if scored:
                    first = int(step.counts[row] - step.draws[row])  # token that was drawn
                    request.prompt_logprobs += scores[row][:first]
                    request.prompt_top_logprobs += tops[:first]
                if step.draws[row]:
                    right = [guess == token for guess, token in zip(guesses, tokens[row], strict=False)]
                    end = first + [*right, False].index(False) + 1
                    point("Engine.drawn", request, row, scores, tokens, end)
                    why = request.add(tokens[row][first:end], scores[row][first:end], tops[first:end], self.ends)
                    self.name_pages(request)
                    self.changed[request] = None
                    if why:
                        self.end(request, why)
