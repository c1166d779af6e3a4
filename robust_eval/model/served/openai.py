"""A model behind any server that speaks OpenAI's protocol: OpenAI, vLLM, llama.cpp, the server of an institute."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robust_eval.error import UserError
from robust_eval.model.base import Temperatures
from robust_eval.model.config import ModelConfig
from robust_eval.model.served.settings import ServerSettings
from robust_eval.model.workload import Terms
from robust_eval.runtime.measured_choices import recalled

if TYPE_CHECKING:
    from robust_eval.model.served.served_model import ServedModel


@dataclass
class OpenAI(ServerSettings, ModelConfig):
    """The model that a server names, asked over HTTP; its settings are those of :class:`ServerSettings`."""

    def terms(self) -> Terms:
        """Prices and limits, and how many answers a request brings if the server was asked that today."""
        from robust_eval.model.served.capabilities import MEMORY, Capabilities, today

        known = Capabilities.from_text(recalled(MEMORY, today(self.identity())) or "")
        return Terms(
            chat=self.prompt_style == "chat",
            choices=known.choices if known else None,
            reply_tokens=self.reply_tokens,
            prompt_price=self.prompt_price,
            completion_price=self.completion_price,
            requests_per_minute=None if self.batch else self.requests_per_minute,  # batches have limits of their own
            tokens_per_minute=None if self.batch else self.tokens_per_minute,
            budget=self.budget,
            at_once=self.at_once,
            batch=self.batch,
            batch_price_share=self.batch_price_share,
        )

    def temperatures(self, wanted: float) -> Temperatures | None:
        """Return what the settings say, or the server if it was asked that today; see ModelConfig."""
        if self.takes_temperature is False:
            return Temperatures(greedy=False, own=True)
        from robust_eval.model.served.capabilities import MEMORY, Capabilities, today

        known = Capabilities.from_text(recalled(MEMORY, today(self.identity())) or "")
        if known is None or not known.tells_of(wanted):
            return None
        return known.temperatures(self.highest_temperature)

    def load(self) -> "ServedModel":
        """Return a client of the server, which loads nothing; UserError where the key is missing."""
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else None
        if key == "":
            raise UserError(
                f"the environment variable {self.key_variable} is not set: it holds the key for {self.base_url} "
                "(model.key_variable=null where the server wants none)"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise UserError(f"the environment variable {self.key_variable} holds no key: it has other characters")
        if self.batch:
            from robust_eval.model.served.batched_model import BatchedModel

            return BatchedModel(self, key)
        from robust_eval.model.served.served_model import ServedModel

        return ServedModel(self, key)
