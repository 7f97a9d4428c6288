"""Layouts per second beside other tools from PyPI, on the same layouts of one model.

    python benchmarks/peers.py [FOLDER]

Each peer lives in an environment of its own below FOLDER, made on the first run. What
cannot be installed is said and left out. All get Llama 3 70B on 1,024 H100: the legal
combinations of tp, pp, micro-batch, ZeRO stage and recomputation. The peers price less
than we do: neither has a pipeline replay, and llm-analysis models neither the bubble nor the
gradients' traffic; the ratio is of layouts per second, whatever is known of each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from itertools import product
from pathlib import Path
from time import perf_counter

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster {{ devices = 1024 }}
layout {{ tp = {tp}, pp = {pp}, zero = {zero} }}
training {{
  sequence = 8192, global_batch = 2048 sequences
  micro_batch = {micro}, recompute = {recompute}
}}
"""
TP, PP, MICRO, ZERO = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4), (0, 1, 2, 3)
RECOMPUTE = ("none", "full")
_FIRST = 1.0  # seconds that a peer is timed for, at least

MLSYSIM = """
from mlsysim import Models, Systems
from mlsysim.solvers import DistributedModel
solver, model = DistributedModel(), Models.Language.Llama3_70B
node = Systems.Nodes.DGX_H100
fleet = Systems.Clusters.Training_1K.model_copy(update={"node": node, "count": 128})
def one(tp, pp, micro, zero, recompute):
    m = 2048 * tp * pp // (1024 * micro)
    return solver.solve(model, fleet, batch_size=2048, seq_len=8192, tp_size=tp, pp_size=pp,
                        microbatch_count=m, zero_stage=zero, overlap_comm=True,
                        activation_recomputation=recompute == "full")
"""
LLM_ANALYSIS = """
import logging
logging.disable(logging.CRITICAL)
from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import (ModelConfig, ParallelismConfig, get_dtype_config_by_name,
                                 get_gpu_config_by_name)
model = ModelConfig(name="llama3_70b", num_layers=80, n_head=64, hidden_dim=8192,
                    vocab_size=128256, max_seq_len=8192, num_key_value_heads=8,
                    ffn_embed_dim=32768)  # takes multiples of the hidden size only
gpu, dtype = get_gpu_config_by_name("h100-sxm-80gb"), get_dtype_config_by_name("w16a16e16")
def one(tp, pp, micro, zero, recompute):
    parallel = ParallelismConfig(tp_size=tp, pp_size=pp, dp_size=1024 // (tp * pp))
    analysis = LLMAnalysis(model, gpu, dtype, parallel, flops_efficiency=0.6,
                           hbm_memory_efficiency=0.8)
    kind = ActivationRecomputation.FULL if recompute == "full" else ActivationRecomputation.NONE
    return analysis.training(batch_size_per_gpu=micro, global_batch_size=2048, seq_len=8192,
                             total_num_tokens=10**12, ds_zero=DSZeRO(zero),
                             activation_recomputation=kind, mlp_gated_linear_units=True)
"""
TIMING = """
import contextlib, io, json, sys, time
layouts = json.loads(sys.stdin.read())
def is_rejected(layout):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            one(*layout)
        except Exception:  # peers raise what they like for a layout that they lack
            return True
    return False
known = [layout for layout in layouts if not is_rejected(layout)]
count, start = 0, time.perf_counter()
while known and time.perf_counter() - start < {first}:
    for layout in known:
        one(*layout)
    count += len(known)
print(json.dumps([len(known), count / (time.perf_counter() - start)]))
"""
#: A program that defines ``one``, and what it takes from PyPI, without and with dependencies.
PEERS = {
    "mlsysim": (MLSYSIM, [["mlsysim"]]),
    # Its dependency on transformers serves to look models up, which is not asked of it.
    "llm-analysis": (LLM_ANALYSIS, [["--no-deps", "llm-analysis"], ["fire<0.6"]]),
}


def layouts() -> list[tuple[int, int, int, int, str]]:
    """Return the layouts; all of them are legal."""
    every = product(TP, PP, MICRO, ZERO, RECOMPUTE)
    return [x for x in every if x[2] * 1024 <= 2048 * x[0] * x[1]]


def ours() -> tuple[float, float]:
    """Return our layouts per second in a search, and one by one from a text for each."""
    import parcost
    from parcost.search.best_first import SearchRequest, search
    from parcost.search.space import space

    text = SPEC.format(tp=1, pp=1, zero=0, micro=1, recompute="none")
    (scenario,) = parcost.load_text(text)
    scenario.evaluate()
    rates = []
    for _ in range(2):  # the first imports
        start = perf_counter()
        found = search(space(scenario, {}, []), SearchRequest(budget_seconds=1e9))
        rates.append(found.legal / (perf_counter() - start))
    some = layouts()[::8]
    start = perf_counter()
    for tp, pp, micro, zero, recompute in some:
        text = SPEC.format(tp=tp, pp=pp, zero=zero, micro=micro, recompute=recompute)
        for one in parcost.load_text(text):
            one.studies()[0].evaluate()
    return max(rates), len(some) / (perf_counter() - start)


def peer(name: str, folder: Path) -> tuple[int, float]:
    """Return how many layouts a peer takes, and how many a second.

    Raises:
        OSError: It cannot be installed, or does not run.
    """
    program, packages = PEERS[name]
    home = folder / name
    python = home / "bin" / "python"
    ready = home / "ready"
    if not ready.exists():
        venv.create(home, with_pip=True, clear=True)
        for wanted in packages:
            command = [str(python), "-m", "pip", "install", "-q", *wanted]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            if run.returncode:
                raise OSError(run.stderr.strip().splitlines()[-1] if run.stderr else "pip failed")
        ready.touch()
    source = program + TIMING.replace("{first}", str(_FIRST))
    command = [str(python), "-c", source]
    given = json.dumps(layouts())
    run = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OSError(run.stderr.strip().splitlines()[-1])
    known, rate = json.loads(run.stdout.splitlines()[-1])
    return known, rate


def main() -> None:
    """Measure and print."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".peers").resolve()
    searched, single = ours()
    print(f"{'parcost, search':24} {searched:12,.0f} layouts a second")
    print(f"{'parcost, one spec each':24} {single:12,.0f} layouts a second")
    for name in PEERS:
        try:
            known, rate = peer(name, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name:24} left out: {error}")
            continue
        if not known:
            print(f"{name:24} left out: it takes none of the {len(layouts())} layouts")
            continue
        print(
            f"{name:24} {rate:12,.0f} layouts a second: {searched / rate:,.0f} times fewer than a "
            f"search, {single / rate:.2g} times one spec each ({known} of {len(layouts())} layouts)"
        )


if __name__ == "__main__":
    main()
