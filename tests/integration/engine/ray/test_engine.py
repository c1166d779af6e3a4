"""engine=ray: the same answers as here, whatever happens to its processes; as far as they are needed, on a real cluster
of two nodes of this machine."""

import logging
import os
import pickle
import resource
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from experiments import composed, without_figures
from shell import Shell

os.environ["RAY_AUTH_MODE"] = "disabled"  # a token would be written to the home folder

from scripted_model import ScriptedModel, asked, questions
from scripted_server import scripted_server
from tiny_model import plain_settings, save_tiny_model
from waiting_model import Waiting

from robust_eval.aggregator.clusters import Forms, clustered
from robust_eval.config.checks import to_config
from robust_eval.config.groups import PROJECT
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.engine.local import Local
from robust_eval.engine.ray import engine as engine_module
from robust_eval.engine.ray.engine import Ray
from robust_eval.error import UserError
from robust_eval.experiment import run as experiment
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.model.local.transformers import Transformers
from robust_eval.model.model_config import ModelConfig
from robust_eval.model.served.openai import OpenAI
from robust_eval.model.served.probe import Capabilities
from robust_eval.model.served.served_model import ServedModel
from robust_eval.runtime.parallel import run_parts
from robust_eval.runtime.process import Stopwatch
from robust_eval.sampler.exact import Exact
from robust_eval.sampler.temperature_sweep import TemperatureSweep
from robust_eval.stats import agreement, interval
from robust_eval.store.base import NoStore, Store
from robust_eval.store.parquet import ParquetEntries, ParquetStore
from robust_eval.store.stored_model import StoredModel

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
    pytest.mark.filterwarnings("ignore:(?s).*logs/ray-data"),  # files that Ray Data leaves open
]
FACTS = PROJECT / "robust_eval" / "dataset" / "builtin" / "facts.jsonl"
CAN = Capabilities("max_tokens", True, True, {}, 2.0, 0, False, 1, True)
FEW_PROCESSES = {"RAY_prestart_worker_first_driver": "0"}
"""Ray starts none that nobody has asked for."""


def ask(engine: Local | Ray, model: ModelConfig, requests: Sequence[Request], store: Store | None = None) -> pa.Table:
    with (store or NoStore()).open() as entries, engine.open():
        return StoredModel(model, engine, entries, Stopwatch()).answers(requests, "test").table


# --------------------------------------------------------------------------------------------- in this process


def test_more_requests_at_once_than_files_may_be_open_are_refused_before_ray_has_actors(
    monkeypatch: pytest.MonkeyPatch,
):
    Ray.import_quietly()
    from robust_eval.engine.ray.actors import Actors

    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    served = OpenAI(model="m", name="m", base_url="http://127.0.0.1:9/v1", api_key_env=None, max_concurrency=200)
    with pytest.raises(UserError, match=r"model\.max_concurrency=200 needs .* the hard limit is 64 \(ulimit -Hn\)"):
        Actors(Ray(), served)


@dataclass
class InThisProcess(Ray):
    """The engine whose two actors are of this process, one after the other."""

    def _connect(self) -> None:
        self.import_quietly()

    def room(self) -> int:
        return 2


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The questions whose actors are lost with all that they have been given; the others work in this process."""
    from robust_eval.engine.ray import actors, worker

    lost: set[str] = set()

    def streamed(kind: type, arguments: tuple[Any, ...], asked: Sequence[bytes], *_: Any) -> Iterator[bytes]:
        actor = kind(*arguments)
        for each in asked:
            if not lost & {request.question_id for block in pickle.loads(each) for request in block.requests}:
                yield from actor(pa.table({worker.INPUT: [each]}))[worker.OUTPUT].to_pylist()

    monkeypatch.setattr(actors, "streamed", streamed)
    return lost


@pytest.mark.usefixtures("losing")
def test_every_block_is_asked_once_and_the_table_is_that_of_the_local_engine(tmp_path: Path):
    expected = ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), questions(5))
    assert ask(InThisProcess(block_size=3), ScriptedModel(str(tmp_path / "ray")), questions(5)).equals(expected)
    assert [names for _, names in asked(tmp_path / "ray")] == [["q0", "q1"], ["q2", "q3"], ["q4"]]


def test_a_block_that_fails_everywhere_becomes_errors_that_the_next_run_asks_again(
    losing: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    requests, store = questions(10), ParquetStore(str(tmp_path / "store"))
    expected = ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), requests)
    engine = InThisProcess(block_size=4)
    losing.add("q8")
    with caplog.at_level(logging.INFO, "robust_eval"):
        table = ask(engine, ScriptedModel(str(tmp_path / "ray"), raises=("q3",)), requests, store)
    lost = ["q3", "q8", "q9"]
    failed = pc.is_in(table["question_id"], pa.array(lost))
    assert table.filter(pc.invert(failed)).equals(expected.filter(pc.invert(failed)))
    errors = table.filter(failed)
    assert errors["question_id"].to_pylist() == [name for name in lost for _ in range(4)]
    assert (set(errors["outcome"].to_pylist()), set(errors["text"].to_pylist())) == ({"error"}, {""})
    assert caplog.messages[-1] == (
        "Ray: 3 of 10 prompts failed 3 times: RuntimeError: no more; its process or machine was lost"
    )
    begun = [names for _, names in asked(tmp_path / "ray")]
    assert [begun.count(names) for names in (["q2", "q3"], ["q3"], ["q6", "q7"])] == [1, 2, 1]  # q2 is kept
    losing.clear()
    assert ask(engine, ScriptedModel(str(tmp_path / "again")), requests, store).equals(expected)
    assert [names for _, names in asked(tmp_path / "again")] == [["q3"], ["q8", "q9"]]


@pytest.mark.usefixtures("losing")
@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"raises": ("q0", "q2")}, "Ray: every prompt failed 3 times: RuntimeError: no more"),
        ({"unusable": "there is no such model"}, "there is no such model"),
    ],
)
def test_a_run_whose_every_question_fails_says_why(problem: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(UserError, match=f"^{message}$"):
        ask(InThisProcess(), ScriptedModel(str(tmp_path / "ray"), **problem), questions(4))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a real model, two questions of which make a block."""
    folder = save_tiny_model(tmp_path_factory.mktemp("model"))
    return {"name": "tiny", "path": str(folder), "prompt_style": "plain", "batch_size": 60}


@pytest.mark.usefixtures("losing")
def test_draws_and_curves_of_a_real_model_are_the_same_whatever_the_size_of_blocks(tiny: dict[str, Any]):
    facts = JsonLines("facts", str(FACTS)).load()[:8]
    sweep, exact = (
        sampler.requests(facts, Matching(), seed=3) for sampler in (TemperatureSweep(trials=3), Exact(nodes=8))
    )
    tables = []
    for engine in (Local(1), InThisProcess(block_size=1), InThisProcess(block_size=5)):
        with NoStore().open() as entries, engine.open():
            model = StoredModel(Transformers(**tiny), engine, entries, Stopwatch())
            drawn, enumerated = model.answers(sweep, "test"), model.answers(exact, "test")
            tables.append((drawn.table, enumerated.table, enumerated.exact_curves))
    for table in tables[0]:
        assert len(set(table["question_id"].to_pylist())) == 8
    for each in tables[1:]:
        assert all(table.equals(of_local) for table, of_local in zip(each, tables[0], strict=True))


def test_nothing_is_started_where_the_store_has_everything(tmp_path: Path):
    store = ParquetStore(str(tmp_path / "store"))
    ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), questions(4), store)
    assert ask(Ray(address="nowhere:1"), ScriptedModel(str(tmp_path / "ray")), questions(4), store).num_rows == 16


@pytest.mark.parametrize(
    "address", ["127.0.0.1:{closed}", "ray://127.0.0.1:{closed}", "127.0.0.1:none", "127.0.0.1:99999"]
)
def test_an_address_at_which_nothing_listens_is_refused_before_ray_waits_for_it(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Ray, "import_quietly", lambda _: pytest.fail("Ray waits"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there = address.format(closed=closed.getsockname()[1])
        with pytest.raises(UserError, match=f"^engine.address={there}: no Ray cluster answers .*: start one with ray "):
            ask(Ray(address=there), ScriptedModel(str(tmp_path / "ray")), questions(2))


def test_an_address_that_takes_no_connection_in_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waited = []

    def silent(place: tuple[str, int], seconds: float) -> None:
        waited.append(seconds)
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", silent)
    with pytest.raises(UserError, match="no Ray cluster answers"):
        ask(Ray(address="10.0.0.1:6379"), ScriptedModel(str(tmp_path / "ray")), questions(2))
    assert waited == [engine_module.CONNECT_TIMEOUT]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """The resources of each machine of a cluster."""
    import ray

    machines: list[dict[str, float]] = []
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": each} for each in machines])
    return machines


def test_an_actor_that_no_machine_has_room_for_is_refused(
    machines: list[dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Ray, "_connect", lambda _: None)
    machines += [{"CPU": 2.0}, {"CPU": 2.0, "memory": 1.0}]
    with pytest.raises(UserError) as refused:
        ask(Ray(num_cpus=3, num_gpus=0.5), ScriptedModel(str(tmp_path / "ray")), questions(2))
    assert str(refused.value) == (
        "no machine has room for an actor with engine.num_cpus=3 and engine.num_gpus=0.5; machines have 2 CPU, 0 GPU; "
        "2 CPU, 0 GPU"
    )


@pytest.mark.parametrize(("num_gpus", "room"), [(0.1, 16), (0.2, 10), (0.4, 4), (1.0, 2), (2.0, 1)])
def test_there_is_room_for_as_many_actors_as_each_machine_can_hold(
    machines: list[dict[str, float]], num_gpus: float, room: int
):
    machines += [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 4.0}]
    assert Ray(num_gpus=num_gpus).room() == room


def test_parts_for_which_no_machine_has_room_are_done_here(
    machines: list[dict[str, float]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(engine_module, "MIN_PARTS", 2)
    machines.append({"CPU": 2.0})
    with InThisProcess(num_cpus=64).open():
        assert run_parts("powers", pow, 2, [2, 3]) == [4, 8]
    assert [line.startswith("powers: no machine has room") for line in said(caplog)] == [True]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this project warned of, without Ray's own messages."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("robust_eval")]


# ------------------------------------------------------------------------------------------------ on a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with two processors each, whose processes find the tests' own modules; all tests are one job."""
    node = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT), str(PROJECT / "tests" / "support")]))
        for name, value in FEW_PROCESSES.items():
            patch.setenv(name, value)
        Ray.import_quietly()
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        cluster.add_node(**node)
        Ray(str(cluster.address)).load(ScriptedModel(""))
        yield cluster
        import ray

        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def address(cluster: Any) -> str:
    return str(cluster.address)


def test_a_block_whose_process_ends_or_fails_is_tried_again_by_another(address: str, tmp_path: Path):
    expected = ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), questions(7))
    model = ScriptedModel(str(tmp_path / "ray"), times=1, raises=("q2",), exits=("q5",))
    assert ask(Ray(address, actors=2, block_size=2), model, questions(7)).equals(expected)
    begun = asked(tmp_path / "ray")
    assert os.getpid() not in {process for process, _ in begun}
    for block in (["q2", "q3"], ["q4", "q5"]):
        (first, again) = [process for process, names in begun if names == block]
        assert first != again
    assert sorted(names for _, names in begun if names[0] in ("q0", "q6")) == [["q0", "q1"], ["q6"]]


def test_actors_keep_the_limit_of_a_server_and_the_budget_together(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def capabilities(model: ServedModel, *_: object) -> Capabilities:
        model._capabilities = CAN
        return CAN

    monkeypatch.setattr(ServedModel, "capabilities", capabilities)
    under_way, most = [], []

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        under_way.append(body)
        most.append(len(under_way))
        time.sleep(0.05)  # so that others come meanwhile, if they are let
        under_way.pop()
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Paris"}}
        return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}

    asked, store = [replace(each, temperatures=(1.0,), trials=1) for each in questions(40)], ParquetStore(str(tmp_path))
    with scripted_server(answer) as server:
        settings = {"base_url": server.url, "api_key_env": None, "prompt_price": 0, "completion_price": 1_000_000}

        def run(engine: Local | Ray, budget: float) -> pa.Table:
            """The answers, each of which costs 5."""
            return ask(engine, OpenAI("served", "served", **settings, max_concurrency=3, budget=budget), asked, store)

        with pytest.raises(
            UserError, match=r"could exceed model\.budget=100 USD \(100\.0000 USD so far\): .* in the store$"
        ):
            run(Ray(address, actors=2, block_size=5), 100)
        assert len(server.received) == 20
        assert run(Local(), 1000)["text"].to_pylist() == ["Paris"] * 40
        assert len({body["messages"][-1]["content"] for body in server.bodies}) == len(server.bodies) == 40
    assert max(most) == 3


def test_heavy_work_is_done_on_ray_with_the_same_numbers_and_here_where_it_fails_there(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(interval, "_PART", 2**15)
    monkeypatch.setattr(agreement, "_PART", 2**15)
    generator, here = np.random.default_rng(0), os.getpid()
    values, counts = generator.random((50, 3)), generator.integers(0, 4, (20, 5))
    vectors = generator.normal(size=(4, 60, 384)) + 2
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    forms = [Forms(f"q{k}", "when?", {f"form {n}": n for n in range(60)}, list(of)) for k, of in enumerate(vectors)]

    def figures() -> list[object]:
        return [
            interval.bootstrap_draws(np.mean, values, groups=np.arange(50) // 3).tolist(),
            agreement.remapped_kappa(counts, [6] * 20),
            run_parts("clusters", clustered, 0.2, [forms[:2], forms[2:]]),
        ]

    def work(shared: int, part: int) -> tuple[int, bool, int]:
        if part == 1 and os.getpid() != here:
            raise ValueError("not on this machine")
        return shared + part, os.getpid() == here, torch.get_num_threads()

    def of_no_model(shared: str, part: int) -> None:
        raise UserError(shared)

    with Ray(address, num_cpus=2).open():
        expected = figures()
        assert run_parts("sums", work, 10, [0, 1]) == [(10, True, 2), (11, True, 2)]  # too few to be worth it
        monkeypatch.setattr(engine_module, "MIN_PARTS", 2)
        with monkeypatch.context() as patch:
            patch.setattr(engine_module, "run_sequentially", lambda *_: pytest.fail("it is done here"))
            assert figures() == expected
        assert said(caplog) == []
        assert run_parts("sums", work, 10, [0, 1, 2]) == [(10, False, 2), (11, True, 2), (12, False, 2)]
        assert said(caplog) == [
            "sums: 1 of 3 parts failed on Ray, and will be recomputed in this process: ValueError: not on this machine"
        ]
        with pytest.raises(UserError, match=r"^there is no such model$"):
            run_parts("nothing", of_no_model, "there is no such model", [0, 1])


def test_an_experiment_survives_a_machine_that_is_lost_in_its_middle(
    cluster: Any, tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The last test of the cluster, which has one machine afterwards."""
    waiting, put, kept = tmp_path / "waiting", ParquetEntries.put, []
    waiting.mkdir()

    def keep(entries: ParquetEntries, came: Mapping[bytes, bytes], *merge: Any) -> None:
        put(entries, came, *merge)
        kept.append(came)

    def lose_a_machine() -> None:
        """Once a first block is in the store, and its actor has begun another: it may have taken those of both."""
        while not kept or not any(waiting.iterdir()):
            time.sleep(0.01)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        (waiting / "go").touch()

    folders = []
    for engine in (Local(2), Ray(cluster.address, num_cpus=2, block_size=1)):
        mlruns = tmp_path / type(engine).__name__
        fixed = ["dataset.limit=8", "sampler.temperature_sweep.selection=none", "sampler.temperature_sweep.trials=3"]
        chosen = f"engine={type(engine).__name__.lower()}"  # and with it the store
        settings = composed(*fixed, chosen, "tracking=none", f"paths.mlruns={mlruns}")
        config = to_config(settings)
        config.engine, config.model = engine, Transformers(**tiny)
        if isinstance(engine, Ray):
            config.model = Waiting(**tiny, waiting=str(waiting))
            monkeypatch.setattr(ParquetEntries, "put", keep)
            threading.Thread(target=lose_a_machine, daemon=True).start()
        (mlruns / "run").mkdir(parents=True)
        with without_figures():
            experiment.run(config, settings, mlruns / "run")
        folders.append(mlruns / "run")
    assert (waiting / "go").exists()
    for name in ("answers", "graded"):
        here, there = (pq.read_table(folder / f"{name}.parquet") for folder in folders)
        assert there.equals(here), name


# ------------------------------------------------------------------------------------------- on the command line

WITHOUT_RAY = """
import runpy, sys
assert "ray" not in sys.modules, "Ray is imported"
class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] != "ray", "Ray is imported"
from importlib import util
found = util.find_spec
util.find_spec = lambda name, package=None: None if name == "ray" else found(name, package)
sys.meta_path.insert(0, Refuse())
sys.argv[0] = "run.py"
runpy.run_path("run.py", run_name="__main__")
"""
MARK = "STARTED_BY_A_TEST"
"""In the environment of every process that comes of a run; its value is the number of this process."""


def run_settings(model: Path, mlruns: Path) -> list[str]:
    fixed = [*plain_settings(model), "dataset.limit=4", "sampler.selection=none", "sampler.trials=2", "tracking=none"]
    return [*fixed, f"paths.mlruns={mlruns}", f"hydra.run.dir={mlruns / 'run'}"]


def test_a_run_starts_ray_for_itself_ends_it_and_leaves_the_terminal_alone_and_none_needs_ray(
    shell: Shell, tmp_path: Path
):
    model = save_tiny_model(tmp_path / "model")
    of_here = [*run_settings(model, tmp_path / "here"), "engine.threads=1"]
    of_there = [*run_settings(model, tmp_path / "there"), "engine=ray", "engine.actors=1"]
    refused = shell.python(["-c", WITHOUT_RAY, *of_there])
    assert (refused.returncode, refused.stdout) == (1, "")
    install = "pip install 'robust_eval[ray]'"
    assert refused.stderr == f"error: engine: Ray is not installed: {install}, or choose engine=local\n"
    here = shell.python(["-c", WITHOUT_RAY, *of_here], figures=False)
    surroundings = {"RAY_AUTH_MODE": "disabled", MARK: str(os.getpid())} | FEW_PROCESSES
    there = shell.python(["run.py", *of_there], figures=False, **surroundings)
    assert (here.returncode, there.returncode) == (0, 0), here.stderr + there.stderr

    def lines(text: str) -> list[str]:
        kept = [line for line in text.splitlines() if not line.startswith(("torch threads", "store:"))]
        return [line.replace("/there", "/here") for line in kept]

    blocks = tmp_path / "there" / "store" / "blocks"
    assert f"MB in {len(list(blocks.glob('*.parquet')))} blocks in {blocks}" in there.stdout
    assert lines(there.stdout) == lines(here.stdout)
    assert lines(there.stderr) == lines(here.stderr)
    for name in ("answers", "graded"):
        tables = [pq.read_table(tmp_path / where / "run" / f"{name}.parquet") for where in ("here", "there")]
        assert tables[0].equals(tables[1]), name
    started = [process for process in psutil.process_iter(["environ"]) if MARK in (process.info["environ"] or {})]
    own = [process for process in started if process.info["environ"][MARK] == str(os.getpid())]
    _, left = psutil.wait_procs(own, timeout=30)  # an actor ends when it finds that nobody is there any more
    assert left == []
