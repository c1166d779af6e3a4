"""The public names with their types; ``__init__.py`` imports each when it is first used."""

from .api import ComparedRuns as ComparedRuns
from .api import Evaluation as Evaluation
from .api import LoadedAnswers as LoadedAnswers
from .api import compare as compare
from .api import load as load
from .api import load_answers as load_answers
from .api import run as run
from .api import score as score
from .cli.main import main as main
from .dataset.selection import Questions as Questions
from .dataset.selection import Selection as Selection
from .error import UserError as UserError
from .grader.base import FreeReply as FreeReply
from .grader.base import Grader as Grader
from .grader.graded_reply import GradedReply as GradedReply
from .grader.graded_reply import grade_reply as grade_reply
from .metric.metric_spec import DETAIL as DETAIL
from .metric.metric_spec import HEADLINE as HEADLINE
from .metric.metric_spec import ComparisonView as ComparisonView
from .metric.metric_spec import MetricSpec as MetricSpec
from .metric.score import Measured as Measured
from .metric.score import Metric as Metric
from .metric.score import Score as Score
from .metric.score import grid as grid
from .metric.score import question_groups as question_groups
from .model.base import Completion as Completion
from .model.base import Item as Item
from .model.base import LanguageModel as LanguageModel
from .model.base import Reply as Reply
from .model.base import Request as Request
from .model.function_model import FunctionModel as FunctionModel
from .model.model_config import ModelConfig as ModelConfig
from .question import QUESTION_TYPES as QUESTION_TYPES
from .question import Question as Question
from .runtime.registry import register as register
from .sampler.base import PrefixGrader as PrefixGrader
from .sampler.base import Sampler as Sampler
from .sampler.repetition import Repetition as Repetition
from .stats.interval import SHARE as SHARE

__version__: str
