import runpy
import sys

import pytest

MODULES = {
    "robust_eval.report": "compare",
    "robust_eval.plot": "plot",
    "robust_eval.ask": "ask",
    "robust_eval.answer_lists": "import",
    "robust_eval.question_type.train": "train-question-types",
}


@pytest.mark.filterwarnings("ignore:.* found in sys.modules")  # another test may have imported it
@pytest.mark.parametrize("module", MODULES)
def test_the_commands_are_modules_as_before(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["robust-eval", "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: robust-eval {MODULES[module]} ")
