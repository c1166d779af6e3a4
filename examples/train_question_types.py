"""Fine-tune a text encoder on the question types of TREC, as Fastowski et al. do, and test it.

python examples/train_question_types.py train_5500.label TREC_10.label FOLDER
python run.py question_types=FOLDER
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import classification_report, confusion_matrix

from robust_eval.question import QUESTION_TYPES
from robust_eval.question_type.classifier import TypeClassifier, from_encoder

SORTED_TOGETHER = 8
"""Batches whose questions are sorted by length together, which saves padding."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", type=Path, help="train_5500.label of TREC")
    parser.add_argument("test", type=Path, help="TREC_10.label")
    parser.add_argument("output", type=Path, help="folder of the classifier")
    parser.add_argument("--encoder", default="distilbert/distilbert-base-uncased", help="folder, hub id or embedded:…")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    (texts, types), (test_texts, test_types) = read_trec(options.training), read_trec(options.test)
    torch.manual_seed(options.seed)
    classifier = from_encoder(options.encoder)
    fine_tune(classifier, texts, types, options)
    predicted = classifier.predict(test_texts)
    print(confusion_matrix(test_types, predicted, labels=list(QUESTION_TYPES)))
    print(classification_report(test_types, predicted, digits=3, zero_division=0))
    classifier.save(options.output)


def read_trec(file: Path) -> tuple[list[str], list[str]]:
    """Return the questions and their coarse types; a line reads ``DESC:manner How did serfdom develop ?``."""
    lines = [line.partition(" ") for line in file.read_text(encoding="latin-1").split("\n") if line.strip()]
    return [text.strip() for _, _, text in lines], [label.partition(":")[0] for label, _, _ in lines]


def fine_tune(classifier: TypeClassifier, texts: list[str], types: list[str], options: argparse.Namespace) -> None:
    """Train with AdamW, a learning rate that falls linearly to 0, and gradients clipped at norm 1."""
    model, names = classifier.model, list(QUESTION_TYPES)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": 0.01},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, fused=True)
    steps = options.epochs * -(-len(texts) // options.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    lengths, generator = np.array([len(text) for text in texts]), np.random.default_rng(options.seed)
    model.train()
    for epoch in range(1, options.epochs + 1):
        total = 0.0
        for batch in batches(lengths, options.batch_size, generator):
            targets = torch.tensor([names.index(types[place]) for place in batch], device=model.device)
            logits = model(**classifier.inputs([texts[place] for place in batch])).logits
            loss = torch.nn.functional.cross_entropy(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch} of {options.epochs}: mean loss {total / len(texts):.4f}")


def batches(lengths: np.ndarray, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the places of all questions once, in random batches of questions of similar length."""
    order = generator.permutation(len(lengths))
    stretch = size * SORTED_TOGETHER
    pieces = [order[start : start + stretch] for start in range(0, len(order), stretch)]
    order = np.concatenate([piece[np.argsort(lengths[piece], kind="stable")] for piece in pieces])
    made = [order[start : start + size] for start in range(0, len(order), size)]
    for place in generator.permutation(len(made)):
        yield made[place]


if __name__ == "__main__":
    main()
