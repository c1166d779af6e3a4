"""A model behind any server that speaks OpenAI's protocol: OpenAI, vLLM, llama.cpp, the server of an institute."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robust_eval.error import UserError
from robust_eval.model.served.server_settings import ServerSettings

if TYPE_CHECKING:
    from robust_eval.model.served.served_model import ServedModel


@dataclass
class OpenAI(ServerSettings):
    """The model that a server names, asked over HTTP; its settings are those of :class:`ServerSettings`."""

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
