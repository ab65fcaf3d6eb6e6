"""An engine with continuous batching: a step decodes a token of every sequence, or prefills chunks of prompts.

Source: Yu et al. 2022, OSDI, "Orca", section 3.2 (continuous batching); Kwon et al. 2023, arXiv 2309.06180 (paged
attention, preemption by recomputation); Agrawal et al. 2024, arXiv 2403.02310, section 4 (chunked prefill).
"""

import collections
import dataclasses
from collections.abc import Iterator, Sequence

import jax
from jax.sharding import Mesh

from generator.language import point
from generator.language.roles import (
    BIASES,
    Config,
    Decoder,
    Device,
    EngineSettings,
    InputBatch,
    InputError,
    PagePool,
    QueueFull,
    Request,
    RequestError,
    RequestStatus,
    SamplingParams,
    StepInFlight,
    check_settings,
    fold_seed,
    likeliest_tokens,
    pages_that_fit,
    sampling_problems,
)


class Engine:
    """Serves requests, first come first served; tokens of `ends` end a sequence. For use by one thread."""

    def __init__(
        self, config: Config, model: Decoder, ends: set[int], settings: EngineSettings, mesh: Mesh | None = None
    ):
        longest = check_settings(settings, config.context_length)
        self.config = config
        self.ends = frozenset(ends)
        self.settings = settings
        self.longest = longest
        of_sequences = settings.max_sequences * self.pages_for(longest)
        pages = 1 + (self.pages_for(settings.kv_cache_tokens) or pages_that_fit(of_sequences, config, settings, mesh))
        point("Engine.pages", pages)
        try:
            if (config.layers + 1) * pages >= 2**31:
                raise MemoryError("32 bits cannot count those of all layers")
            self.device = Device(config, model, settings, mesh, pages, longest)
            self.pool = PagePool(pages)
            point("Engine.pool", config, settings, model)
        except (jax.errors.JaxRuntimeError, MemoryError) as error:
            reason = str(error).partition("\n")[0]
            flags = "--kv-cache-tokens, --max-sequences or --max-length"
            raise InputError(f"{flags}: no room for {pages:,} pages: lower one of them: {reason}") from None
        self.batch = InputBatch(settings.max_sequences, self.device.shapes.widths[-1])
        self.free_slots = list(range(settings.max_sequences))
        self.queued: collections.deque[Request] = collections.deque()
        self.running: dict[Request, None] = {}  # by arrival
        # steps whose output has not been read: with their requests, and whether every token is scored
        self.in_flight: list[StepInFlight] = []
        self.changed: dict[Request, None] = {}  # since the last call of `step`
        self.prefix_hits = self.prefix_queries = 0  # prompt tokens: found in the cache; all
        point("Engine.made")

    @property
    def pages(self) -> int:
        return self.pool.pages - 1

    @property
    def room(self) -> int:
        """Returns how many tokens a sequence can have, with its prompt."""
        return min(self.longest, self.pages * self.settings.page_size)

    @property
    def pages_used(self) -> int:
        return self.pages - len(self.pool.free_pages)

    def warm_up(self) -> Iterator[str]:
        return self.device.warm_up()

    def add(self, prompt: Sequence[int], sampling: SamplingParams, salt: bytes = b"") -> Request:
        """Queues a request, which shares pages only with those of the same salt.

        Raises RequestError if it can never be served, QueueFull if it cannot be queued now.
        """
        problems = sampling_problems(sampling, prompt, self.config.vocab_size)
        length = len(prompt)
        most = sampling.max_tokens
        if length + most > self.longest:
            sizes = f"the prompt has {length} tokens, the context {self.longest}"
            problems.append(("max_tokens", f"max_tokens {most}: {sizes}: lower it, or shorten the prompt"))
        if not problems and self.pages_for(length + most) > self.pages:
            cached = f"the KV cache holds {self.pages * self.settings.page_size} tokens, not {length} + {most}"
            problems.append(("max_tokens", cached))
        sampling = dataclasses.replace(sampling, seed=fold_seed(sampling.seed, 0, 0))
        ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self.ends)
        with point("Engine.root", self, salt):
            root = salt
        request = Request(list(prompt), sampling, root=root, ends=ends, max_length=length + most)
        point("Engine.request", self, sampling, request, problems)
        request.biases = request.logit_biases()
        if len(request.biases) > BIASES:
            biased = f"{len(request.biases)} tokens have a bias or end the sequence: at most {BIASES} may"
            problems.append(("logit_bias", biased))
        if problems:
            fields, messages = zip(*problems, strict=True)
            raise RequestError("\n".join(messages), fields[0])
        if len(self.queued) >= self.settings.queue:
            raise QueueFull(f"{len(self.queued)} requests wait already: try again")
        self.queued.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Ends a request, unless it has ended already."""
        if request.finish is None:
            self.end(request, "cancelled")

    def step(self) -> list[Request]:
        """Starts a decode step and a prefill step, then collects the steps that were in flight before.

        So the device works while the host reads its last output. Returns what has changed since the last call.
        """
        self.admit()
        point("Engine.admitted")
        started = self.decode() + self.prefill()
        self.collect()
        self.in_flight = started
        changed, self.changed = self.changed, {}
        return list(changed)

    def generate(self, prompts: Sequence[Sequence[int]], sampling: SamplingParams) -> list[Request]:
        """Runs prompts to their end, each with a seed of its own, and returns their requests."""
        requests = []
        for place, prompt in enumerate(prompts):
            while len(self.queued) >= self.settings.queue:
                self.step()
            requests.append(self.add(prompt, dataclasses.replace(sampling, seed=fold_seed(sampling.seed, place, 0))))
        while self.queued or self.running:
            self.step()
        return requests

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.settings.page_size)

    def admit(self) -> None:
        """Admits requests by arrival, while there are a slot and pages for their tokens and one more."""
        while self.queued and self.free_slots:
            request = self.queued[0]
            sequence = request.sequence
            request.computed = 0
            request.length = len(sequence)
            point("Engine.admit", request, sequence)
            request.cached = request.cached if request.tokens else 0
            self.share_pages(request)
            if self.pages_for(len(sequence) + 1) - len(request.pages) > len(self.pool.free_pages):
                self.pool.free(request.pages)
                request.pages, request.digests = [], []
                point("Engine.not_admitted", request)
                return
            self.queued.popleft()
            self.running[request] = None
            request.slot = self.free_slots.pop()
            request.status = RequestStatus.PREFILL
            self.prefix_queries += len(sequence)
            values = {"prompt": len(request.prompt), "biases": len(request.biases)}
            point("Engine.own", self, values, request)
            self.batch.add(request, values)
            self.grow(request, len(sequence))
            self.device.write(request.slot, sequence, request.biases)

    def share_pages(self, request: Request) -> None:
        """Replaces pages of a request by cached ones with the same tokens, as far as its prefix is cached by now."""
        size = self.settings.page_size
        sequence = request.sequence
        with point("Engine.scored", request, sequence):
            if request.sampling.prompt_logprobs:
                return  # computed anew, for its log-probabilities
        with point("Engine.share", request, sequence):
            while len(request.digests) < (len(sequence) - 1) // size:  # at least one token has to be computed
                digest = request.next_digest(sequence, size)
                place = len(request.digests)
                page = self.pool.share(digest)
                if page is None:
                    break
                self.pool.free(request.pages[place : place + 1])
                request.pages[place : place + 1] = [page]
                request.digests.append(digest)

    def grow(self, request: Request, tokens: int) -> None:
        while len(request.pages) < self.pages_for(tokens):
            page = self.pool.allocate()
            self.batch.block_tables[request.slot, len(request.pages)] = page
            request.pages.append(page)

    def release(self, request: Request) -> None:
        """Frees the slot and pages of a request. Steps in flight may still write to them, but before any later step."""
        point("Engine.release", self, request)
        del self.running[request]
        self.free_slots.append(request.slot)
        self.pool.free(request.pages)
        request.pages, request.digests = [], []
        point("Engine.released", request)
        if not request.tokens:  # otherwise the prompt is not scored again
            request.prompt_logprobs, request.prompt_top_logprobs = [], []

    def preempt(self, request: Request) -> None:
        """Moves a running request to the front of the queue, to be recomputed."""
        self.release(request)
        request.status = RequestStatus.WAITING
        self.queued.appendleft(request)

    def end(self, request: Request, why: str) -> None:
        if request.status is RequestStatus.WAITING:
            self.queued.remove(request)
        else:
            self.release(request)
        request.status = RequestStatus.FINISHED
        request.finish = why
        self.changed[request] = None

    def decode(self) -> list[StepInFlight]:
        """Starts a step for the next token of each sequence."""

        def ready(request):
            return request.status is RequestStatus.DECODE and request.length < request.max_length

        for request in list(filter(ready, self.running)):
            point("Engine.decode", request)
            if request.length <= len(request.pages) * self.settings.page_size:
                continue
            while ready(request) and self.pages_for(request.length) > len(request.pages) + len(self.pool.free_pages):
                self.collect()  # some may have ended
                if ready(request) and not self.pool.free_pages:
                    self.preempt(next(reversed(self.running)))
            if ready(request):
                self.grow(request, request.length)
        batch = list(filter(ready, self.running))
        point("Engine.scheduled", batch, request)
        steps = [self.start(self.device.rows_for(len(batch)), 1, batch, score_all=False)] if batch else []
        point("Engine.decoded", steps)
        return steps

    def prefill(self) -> list[StepInFlight]:
        """Starts a step of the first prompt's next chunk, and of others of that length."""
        requests = [request for request in self.running if request.status is RequestStatus.PREFILL]
        if not requests:
            return []
        for request in requests:  # skips tokens that others have prefilled since it was admitted
            self.share_pages(request)
            self.batch.set_pages(request)
            skipped = max(len(request.digests) * self.settings.page_size - request.computed, 0)
            request.computed += skipped
            request.cached += 0 if request.tokens else skipped
            self.prefix_hits += skipped
        scored = [request.sampling.prompt_logprobs and not request.tokens for request in requests]
        with point("Engine.lengths", self, requests):
            lengths = [self.device.chunk_length(request.length - request.computed) for request in requests]
        kinds = list(zip(lengths, scored, strict=True))
        length, score_all = kinds[0]
        most = self.device.shapes.chunks[length]
        batch = [request for request, kind in zip(requests, kinds, strict=True) if kind == kinds[0]][:most]
        return [self.start(most if score_all or len(batch) > 1 else 1, length, batch, score_all)]

    def start(self, rows: int, length: int, requests: list[Request], score_all: bool) -> StepInFlight:
        """Starts a step of requests for up to `length` tokens of each."""
        step = self.batch.step(requests, rows, self.device.width_for(max(len(x.pages) for x in requests)))
        point("Engine.step", self, requests, step, length)
        for row, request in enumerate(requests):
            with point("Engine.count", self, request, length):
                count = min(request.length - request.computed, length)
            step.starts[row] = request.computed
            step.counts[row] = count
            point("Engine.row", step, row, request)
            point("Engine.block_tables", step, row, request)
            request.computed += count
            self.register_pages(request)
            if request.computed == request.length:
                step.samples[row] = True
                request.status = RequestStatus.DECODE
                request.length += 1
        return StepInFlight(self.device.run(step, length, score_all), requests, step, score_all)

    def register_pages(self, request: Request) -> None:
        """Lets other requests share its full pages, even if a step in flight is still to write them."""
        size = self.settings.page_size
        known = min(request.computed, len(request.prompt) + len(request.tokens))
        while (len(request.digests) + 1) * size <= known:
            digest = request.next_digest(request.sequence, size)
            self.pool.register(request.pages[len(request.digests)], digest)
            point("Engine.register", request, digest)
            request.digests.append(digest)

    def collect(self) -> None:
        """Waits for the steps in flight, and adds their output to their requests."""
        in_flight, self.in_flight = self.in_flight, []
        for output, requests, step, score_all in in_flight:
            scores, tokens = (x.tolist() for x in jax.device_get((output.scores, output.tokens)))
            top = jax.device_get((output.top_tokens, output.top_logprobs)) if step.top else ()
            point("Engine.collected", self, output, requests, step)
            for row, request in enumerate(requests):
                if request.finish:
                    continue  # since the step was started
                tops = likeliest_tokens(top, row, request.sampling.logprobs) or [{} for _ in tokens[row]]
                first = int(step.counts[row] - step.samples[row]) if score_all else 0  # those of a prompt come before
                end = first + 1
                point("Engine.verified", step, row, tokens, first, end)
                request.prompt_logprobs += scores[row][:first]
                request.prompt_top_logprobs += tops[:first]
                if step.samples[row]:
                    point("Engine.sampled", request, row, scores, tokens, first, end)
                    why = request.add(tokens[row][first:end], scores[row][first:end], tops[first:end])
                    self.register_pages(request)
                    self.changed[request] = None
                    if why:
                        self.end(request, why)
