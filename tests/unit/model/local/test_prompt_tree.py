from hypothesis import given
from hypothesis import strategies as st

from robust_eval.model.local.batching import MAX_DEPTH, MIN_SHARED_TOKENS, PASS_COST, PromptTree

RUNS = st.lists(
    st.lists(st.integers(0, 1), min_size=1, max_size=3).map(lambda run: run * MIN_SHARED_TOKENS), max_size=4
)
SEQUENCES = st.lists(RUNS.map(lambda runs: [token for run in runs for token in run]), min_size=1, max_size=12)
PASSAGE, OTHER = [1] * 200, [2] * 200


def sequences_of(tree: PromptTree) -> list[list[int]]:
    """Put each sequence together again from the runs that lead to its leaf."""
    runs: list[list[int]] = [[]]
    for stage in tree.stages:
        runs = [runs[parent] + own for parent, own in zip(stage.parents, stage.tokens, strict=True)]
    return [runs[leaf] for leaf in tree.leaves]


def tokens_of(tree: PromptTree) -> int:
    return sum(len(run) for stage in tree.stages for run in stage.tokens)


@given(SEQUENCES)
def test_every_sequence_is_the_runs_that_lead_to_its_leaf(sequences: list[list[int]]):
    for cheapest in (True, False):
        tree = PromptTree.of(sequences, cheapest)
        assert sequences_of(tree) == sequences
        assert len(tree.stages) <= MAX_DEPTH


@given(SEQUENCES)
def test_a_tree_is_never_dearer_than_a_row_for_each_sequence(sequences: list[list[int]]):
    tree = PromptTree.of(sequences)
    cost = sum(len(stage.tokens) * stage.width + PASS_COST for stage in tree.stages)
    assert cost <= len(sequences) * max(map(len, sequences)) + PASS_COST


def test_a_passage_is_evaluated_once_with_all_of_its_questions():
    questions = [passage + [n] * 9 for passage in (PASSAGE, OTHER) for n in range(3, 7)]
    tree = PromptTree.of(questions)
    assert [(len(stage.tokens), stage.width) for stage in tree.stages] == [(2, 200), (8, 9)]
    assert tokens_of(tree) == 2 * 200 + 8 * 9


def test_passages_of_one_kind_share_their_exemplars_as_well():
    exemplars = [[9] * 300, [8] * 300]
    questions = [kind + [passage] * 200 + [n] * 9 for kind in exemplars for passage in (1, 2) for n in range(3, 7)]
    tree = PromptTree.of(questions)
    assert [(len(stage.tokens), stage.width) for stage in tree.stages] == [(2, 300), (4, 200), (16, 9)]


def test_prompts_that_share_little_have_a_row_each():
    tree = PromptTree.of([[n, *range(3, 50)] for n in range(8)])
    assert [(len(stage.tokens), stage.width) for stage in tree.stages] == [(8, 48)]
    assert tree.leaves == list(range(8))


def test_what_is_asked_twice_is_evaluated_once():
    tree = PromptTree.of([PASSAGE, OTHER, PASSAGE])
    assert [stage.tokens for stage in tree.stages] == [[PASSAGE, OTHER]]
    assert tree.leaves == [0, 1, 0]
