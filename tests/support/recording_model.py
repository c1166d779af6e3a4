"""A sentence model or a cross-encoder that writes down what it is asked."""

from typing import Any


class RecordingModel:
    """Stands in for a model, and answers as it does."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.calls: list[list[Any]] = []
        """What each call is about: texts, or pairs of them."""

    @property
    def texts(self) -> list[Any]:
        return [text for texts in self.calls for text in texts]

    def encode(self, texts: list[str], **options: Any) -> Any:
        self.calls.append(texts)
        return self.model.encode(texts, **options)

    def predict(self, pairs: list[tuple[str, str]], **options: Any) -> Any:
        self.calls.append(pairs)
        return self.model.predict(pairs, **options)
