"""Shared fixtures: golden files, and short ways to bind and evaluate a text."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from attrs import evolve
from hypothesis import settings

from parcost import Formula, KernelModel, Op, Schedule, Study, formula, hookimpl
from parcost.binding import modules
from parcost.binding.modules import Loader, Module
from parcost.contract.plugin import Plugin
from parcost.engine.session import Session
from parcost.language.parse import parse
from parcost.language.text import Source
from parcost.plugins import discovery
from parcost.plugins.discovery import load
from parcost.plugins.registry import Registry
from parcost_apps.cli import main
from parcost_plugins.vocabulary import Stream

# Laws try the same examples each time, so that a run can be repeated. `--hypothesis-profile
# explore` tries others.
settings.register_profile("fast", max_examples=10, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=300, deadline=None, derandomize=True)
settings.register_profile("explore", max_examples=1000, deadline=None)

CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,900",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files")
    parser.addoption("--full", action="store_true", help="run slow tests and try all examples")


class _DocumentedExamples:
    """Examples in docstrings: of 1,200 files, those without any are not imported to find none."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[Any], list[Any]]:
        return [
            one
            for one in (yield)
            if not isinstance(one, DoctestModule) or ">>>" in file_path.read_text(encoding="utf-8")
        ]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_DocumentedExamples())
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("full" if config.getoption("full") else "fast")


def pytest_terminal_summary(config: pytest.Config, terminalreporter: Any) -> None:
    """Run tests that failed again, so as to show the values in their assertions.

    Whole runs do not take these values: preparing 12,000 assertions for that takes longer, in each
    process, than a tenth of the fast tests.
    """
    failed = [one.nodeid for one in terminalreporter.stats.get("failed", ()) if one.when == "call"]
    shown = config.getoption("assertmode") != "plain" or config.getoption("tbstyle") == "no"
    if failed and not shown:
        terminalreporter.section("the first failures again, with their values")
        options = ["-q", "--assert=rewrite", *(["--full"] if config.getoption("full") else [])]
        command = [sys.executable, "-m", "pytest", *options, *failed[:5]]
        done = subprocess.run(
            command, cwd=config.rootpath, capture_output=True, text=True, check=False
        )
        terminalreporter.write(done.stdout + done.stderr)


def pytest_collection_finish() -> None:
    """Keep what collecting has made out of every later search for garbage; search seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, unless all are expected or a file or test is named."""
    if config.getoption("full"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    named = any(".py" in argument for argument in config.invocation_params.args)
    if slow and not named:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session", autouse=True)
def forgetful() -> Iterator[None]:
    """Keep results of one test from another, and from the cache and terminal of whoever runs them.

    pytest-xdist sets ``COLUMNS`` for its workers.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        patch.setenv("PARCOST_NO_CACHE", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def catalogue_trees() -> Iterator[None]:
    """Parse each file of a catalogue once, however many sets of plugins read it."""
    sources: dict[tuple[str, str], Source] = {}
    module, parse_once = Loader._module, cache(parse)

    def shared_module(self: Loader, source: Source, *more: Any, **options: Any) -> Module:
        if options.get("catalogue"):
            source = sources.setdefault((source.name, source.text), source)
        return module(self, source, *more, **options)

    def tree(source: Source) -> Any:
        shared = sources.get((source.name, source.text)) is source
        return parse_once(source) if shared else parse(source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loader, "_module", shared_module)
        patch.setattr(modules, "parse", tree)
        yield


@pytest.fixture(scope="session", autouse=True)
def known_plugins() -> Iterator[None]:
    """Look for installed plugins, and ask what each offers, only where something has changed."""
    found: dict[Any, Any] = {}
    entry_points, register = discovery.entry_points, discovery.register

    def find(**chosen: str) -> Any:
        folders = (Path(folder) for folder in sys.path)
        times = tuple(f.stat().st_mtime_ns if f.exists() else 0 for f in folders)
        key = (*sys.path, *times, *chosen.items())
        if key not in found:
            found[key] = entry_points(**chosen)
        return found[key]

    def ask_once(plugins: Sequence[Plugin]) -> Registry:
        if not all(p.distribution and isinstance(p.module, ModuleType) for p in plugins):
            return register(plugins)
        members = [value for plugin in plugins for value in vars(plugin.module).values()]
        key = (*map(str, plugins), *map(id, members))
        if key not in found:
            found[key] = (members, register(plugins))  # members live on, so no id is used again
        return found[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "entry_points", find)
        patch.setattr(discovery, "_origin", cache(discovery._origin))
        patch.setattr(discovery, "register", ask_once)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare text with a file; ``pytest --update`` rewrites the file, for review."""

    def compare(path: Path, actual: str) -> None:
        if request.config.getoption("update"):
            path.write_text(actual, encoding="utf-8")
        assert actual == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, on paper of the usual width without colours."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], own_folder: Path) -> Callable[..., Any]:
    """Run a command in a folder of its own, which *files* are written into first.

    They stand there by their names; *specs* by theirs without `.par`.
    """

    def do(*arguments: str, files: Mapping[str, str] | None = None, **specs: str) -> Any:
        named = {f"{name}.par": text for name, text in specs.items()}
        for name, text in {**(files or {}), **named}.items():
            path = own_folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do


# A study of round numbers: 8 devices on one link of 1 GB/s without latency.
_PLAIN = """
device plain {
  memory = 80 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 0.5
}
fabric wire { level net { bandwidth = 1 GB/s per_direction, latency = 0 s } }
precision mixed {
  compute = bf16, weights = 2 B, gradients = 4 B, optimizer = 12 B, activation = 2 B
  update_traffic = 30 B, norm_traffic = 0 B
}
model small { layers = 8, hidden = 1024, heads = 8, vocabulary = 1000, qkv_biases = off }
cluster { devices = 8 }
training { sequence = 1024 tokens, global_batch = 8 sequences }
overlap {
  gradients = off, parameters = off, tensor = off
  bucket = 1 GB @assumed("round"), multiprocessors = 0 @assumed("round")
}
memory { usable = 1, context = 0 B, communicator = 0 B, fragmentation = 0 }
kernels { memory_bound = off }
"""
_SHIPPED = {
    "catalogue": "parcost_specs",
    **{
        name: f"parcost_plugins.{name}"
        for name in (
            "analysis.advice",
            "analysis.figures",
            "collectives.direct",
            "collectives.pairwise",
            "collectives.ring",
            "custom_terms",
            "frameworks.features",
            "memory.figures",
            "memory.fit",
            "memory.offload",
            "memory.overheads",
            "memory.state",
            "optimizer",
            "parallelism.data",
            "parallelism.pipeline",
            "rules",
            "topology",
            "vocabulary",
        )
    },
}
_LEFT_OUT = ("topology.checks", "topology.details", "topology.views")


class _OneForwardOneBackward(Schedule):
    """The 1F1B order, written down from its definition."""

    name = "one_f_one_b"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        orders = []
        for s in range(stages):
            warm = min(stages - 1 - s, micro_batches)
            ops = [Op("F", j, s) for j in range(warm)]
            for j in range(micro_batches - warm):
                ops += [Op("F", warm + j, s), Op("BW", j, s)]
            ops += [Op("BW", j, s) for j in range(micro_batches - warm, micro_batches)]
            orders.append(ops)
        return orders


class _Streams(KernelModel):
    """A model that knows streams alone: 1 TB/s, and 1 us for each kernel."""

    name = "tiled"

    def price(self, operator: Any, study: Study) -> Formula | None:  # noqa: ARG002
        if not isinstance(operator, Stream):
            return None
        return formula("n / B + k / 1e6", n=operator.bytes_, B=1e12, k=operator.kernels)


@pytest.fixture(scope="session")
def bind() -> Callable[..., Study]:
    """Bind a text with a stand-in for the plugins that describe and price a model.

    ``bind({"layout.tp": 2}, parameters=[...], terms=[...])`` changes values of the plain
    study above. What is given by keyword stands for what those plugins would answer, so
    that sizes and times can be round numbers; all else comes from what is shipped.
    """
    schedule, kernels = _OneForwardOneBackward(), _Streams()

    given_to: dict[int, Mapping[str, Any]] = {}  # by id of plugins, of studies alive

    def answer(hook: str, study: Study) -> Any:
        given = given_to[id(study.plugins)][hook]
        return given(study) if callable(given) else given

    @cache
    def session_with(schedules: Sequence[Any], *hooks: str) -> Session:
        stand_in = SimpleNamespace(
            kernels=hookimpl(lambda: [kernels]),
            schedules=hookimpl(lambda: [schedule, *schedules]),
            **{hook: hookimpl(lambda study, hook=hook: answer(hook, study)) for hook in hooks},
        )
        shipped = [(name, import_module(module)) for name, module in _SHIPPED.items()]
        return Session(load(*shipped, ("stand_in", stand_in), without=_LEFT_OUT, installed=False))

    def make(
        values: Mapping[str, Any] | None = None,
        text: str = "",
        schedules: Sequence[Any] = (),
        **answers: list[Any] | Callable[[Study], list[Any]],
    ) -> Study:
        shared = session_with(tuple(schedules), *answers)
        plugins = evolve(shared.plugins)  # with answers of its own
        object.__setattr__(plugins, "registry", shared.plugins.registry)
        given_to[id(plugins)] = answers
        session = copy(shared)
        object.__setattr__(session, "plugins", plugins)
        (scenario,) = session.load_text(_PLAIN + text)
        return scenario.replace(values or {}).studies()[0]

    return make


class Cluster:
    """A Dask scheduler and two workers, each a process, on loopback."""

    def __init__(self, folder: Path) -> None:
        file = folder / "scheduler.json"
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.processes = [self._process("scheduler", *options, "--scheduler-file", str(file))]
        until = time.monotonic() + 90
        while not file.exists():
            assert time.monotonic() < until, "no scheduler"
            time.sleep(0.05)
        options = ["--scheduler-file", str(file), "--host", "127.0.0.1", "--no-dashboard"]
        options += ["--no-nanny", "--nthreads", "1", "--local-directory", str(folder)]
        self.workers = [self._process("worker", *options) for _ in range(2)]
        self.processes += self.workers
        from distributed import Client

        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=90)
            self.address = client.scheduler.address.removeprefix("tcp://")

    def _process(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        code = f"from distributed.cli.dask_{kind} import main; main()"
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, "-c", code, *options], **silent)  # type: ignore[call-overload,no-any-return]

    def close(self) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):  # it has ended
                process.kill()
            process.wait(30)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Start a cluster that a test may harm."""
    pytest.importorskip("distributed")
    made = Cluster(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return Chromium, which a machine that says so must have."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        missing = "chromium and chromium-driver are not installed"
        if os.environ.get("PARCOST_BROWSER") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()
