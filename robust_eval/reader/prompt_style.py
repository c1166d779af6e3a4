"""The reader that goes with the way in which a model is prompted."""

from dataclasses import dataclass

from robust_eval.reader.base import Reader
from robust_eval.reader.first_line import FirstLine
from robust_eval.reader.reply import Reply


@dataclass
class ByPromptStyle:
    """reader=by_prompt_style: ``reply`` for conversations and recorded answers, ``first_line`` for plain prompts."""

    def of(self, chat: bool) -> Reader:
        """Return the reader of a model that is prompted by conversation (``chat``) or by plain text."""
        return Reply() if chat else FirstLine()
