"""Rewards by functions of Python, in processes of their own that have a time limit."""

import concurrent.futures
import importlib
import inspect
import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pebble

from generator.language.roles import InputError, end_with_parent

MAX_REWARD = 1e6  # a larger reward is a mistake


def reward(function: Callable, prompt: Any, completion: str, row: dict[str, Any]) -> float | str | None:
    """Calls the function, in a process of its own. Returns the reward, None if there is none, or what went wrong."""
    try:
        result = function(prompt, completion, **row)
        if result is None:
            return None
        if isinstance(result, str) or not abs(number := float(result)) <= MAX_REWARD:
            return f"returned {result!r}, and must return a number of at most {MAX_REWARD:,.0f}, or None"
        return number
    except BaseException as error:  # sys.exit() too
        *_, last = traceback.extract_tb(error.__traceback__)
        return f"{error!r} in {last.filename}:{last.lineno}"


class Rewards:
    """Rewards completions by `call`, several at a time, each within `seconds`."""

    def __init__(self, name: str, seconds: float, flag: str = "--reward", call: Callable = reward):
        self.name = f"{flag} {name}"
        self.seconds = seconds
        self.call = call
        module, _, function = name.partition(":")
        try:
            self.function = getattr(importlib.import_module(module), function)
            if not callable(self.function):
                raise TypeError(f"{function} is not a function")
            pickle.dumps(self.function)  # as other processes get it
            self.signature = inspect.signature(self.function)
        except Exception as error:
            raise InputError(
                f"{self.name}: must be MODULE:FUNCTION, a function at the top of a module: {error!r}: "
                "give one that is here or installed"
            ) from None
        self.pool = self.start_pool()

    def start_pool(self) -> pebble.ProcessPool:
        context = multiprocessing.get_context("spawn")
        return pebble.ProcessPool(os.cpu_count() or 1, context=context, initializer=end_with_parent)

    def check(self, source: str, fields: dict[str, Any], names: Sequence[str] = ("prompt", "completion")) -> None:
        """Raises InputError if the function cannot take the other fields of a row, such as one called completion."""
        try:
            self.signature.bind(*names, **fields)
        except TypeError as error:
            raise InputError(
                f"{source}: {self.name} cannot take the row's fields: {error}: change the row, or the function"
            ) from None

    def __call__(self, completions: Sequence[tuple[Any, Any, dict[str, Any]]]) -> list[Any]:
        """Returns the rewards of prompts, completions and other fields of their rows.

        What takes too long, or ends its process, has None. Raises InputError if the function raises an error, or
        returns no number.
        """
        if not self.pool.active:  # pebble gives a pool up if a process ends before it is known to have begun
            self.pool = self.start_pool()
        futures = [self.pool.schedule(self.call, (self.function, *one), timeout=self.seconds) for one in completions]
        rewards = list[Any]()
        is_warned = False
        for future, one in zip(futures, completions, strict=True):
            prompt, completion, _ = one
            where = f"{self.name}: on the completion {str(completion)[:200]!r} of {str(prompt)[:200]!r}"
            try:
                reward = future.result()
            except (concurrent.futures.TimeoutError, pebble.ProcessExpired, BrokenProcessPool) as error:
                reward = None
                if isinstance(error, BrokenProcessPool) and len(completions) > 1:  # by any of them
                    [reward] = self([one])
                elif not is_warned:
                    print(f"warning: {where}: {error!r}: taken as None", file=sys.stderr)
                    is_warned = True
            except Exception as error:  # the row cannot be sent, for example
                reward = repr(error)
            if isinstance(reward, str):
                for other in futures:
                    other.cancel()
                raise InputError(f"{where}: {reward}: fix the function")
            rewards.append(reward)
        return rewards
