"""Configurations, recipes and commands of NeMo."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.megatron import Megatron
from parcost_formats.tools.nanotron import Nanotron
from parcost_formats.tools.nemo import NeMo

from ..rows import try_each
from .translations import assumptions, names, problems, settings, uses

NEMO_1 = """\
name: megatron_llama
trainer: {devices: 8, num_nodes: 4, precision: bf16, max_steps: 100}
exp_manager:
  name: x
  checkpoint_callback_params:
    model_parallel_size: ${multiply:${model.tensor_model_parallel_size}, 2}
model:
  mcore_gpt: True
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
  sequence_parallel: True
  encoder_seq_length: ${.max_position_embeddings}
  max_position_embeddings: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
  num_query_groups: null
  override_vocab_size: 32000
  hidden_dropout: 0.1
  normalization: rmsnorm
  activation: fast-swiglu
  bias: False
  position_embedding_type: rope
  share_embeddings_and_output_weights: False
  make_vocab_size_divisible_by: 128
  megatron_amp_O2: True
  activations_checkpoint_granularity: full
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: 3
  tokenizer:
    library: sentencepiece
    model: ???
  data:
    data_prefix: ???
    seq_length: ${model.encoder_seq_length}
  optim:
    name: distributed_fused_adam
    lr: 2e-4
    bucket_cap_mb: 200
    overlap_grad_sync: True
"""
NEMO_2 = """\
_partial_: true
_target_: nemo.collections.llm.api.pretrain
data: {_target_: nemo.x.MockDataModule, global_batch_size: 128, micro_batch_size: 1, seq_length: 8192}
model:
  _target_: nemo.collections.llm.gpt.model.llama.LlamaModel
  config:
    _target_: nemo.collections.llm.gpt.model.llama.Llama3Config8B
    cross_entropy_fusion_impl: te
optim:
  config: {_target_: x.OptimizerConfig, lr: 0.0003, use_distributed_optimizer: true}
trainer:
  callbacks:
  - _target_: nemo.utils.exp_manager.TimingCallback
  devices: 8
  num_nodes: 2
  plugins:
    _target_: nemo.lightning.pytorch.plugins.mixed_precision.MegatronMixedPrecision
    first_last_layers_bf16: true
    fp8: hybrid
    fp8_recipe: tensorwise
    grad_reduce_in_fp32: false
    num_layers_at_end_in_bf16: 1
    num_layers_at_start_in_bf16: 2
    precision: bf16-mixed
  strategy:
    _target_: nemo.lightning.pytorch.strategies.megatron_strategy.MegatronStrategy
    context_parallel_size: 2
    ddp: {_target_: x, grad_reduce_in_fp32: true, overlap_grad_reduce: true, overlap_param_gather: false}
    sequence_parallel: false
    tensor_model_parallel_size: 1
    virtual_pipeline_model_parallel_size: null
"""


#: A recipe of SageMaker HyperPod: the parts of the trainer stand at the top.
HYPERPOD = """\
callbacks:
- _target_: nemo.utils.exp_manager.TimingCallback
data:
  global_batch_size: 64
  micro_batch_size: 1
  seq_length: 2048
ddp:
  overlap_param_gather: true
model:
  config:
    vocab_size: 128256
optim:
  config:
    use_distributed_optimizer: true
plugins:
  _target_: nemo.lightning.pytorch.plugins.MegatronMixedPrecision
  precision: bf16-mixed
strategy:
  num_distributed_optimizer_instances: 2
  pipeline_model_parallel_size: 4
  sequence_parallel: true
  tensor_model_parallel_size: 8
trainer:
  devices: 8
  num_nodes: 16
"""


def nemo(text: str) -> Translation:
    return NeMo().translate("run.yaml", text)


_TIMING = "nemo.utils.exp_manager.TimingCallback"
_OVERLAPS = "nemo.lightning.pytorch.callbacks.megatron_comm_overlap.MegatronCommOverlapCallback"


@try_each(
    "base, old, new, transfers",
    [
        (NEMO_1, "", "", "blocking"),  # the default of its code
        (NEMO_1, "sequence_parallel: True", "overlap_p2p_comm: True", "overlapped"),
        (NEMO_1, "sequence_parallel: True", "overlap_p2p_comm: False", "blocking"),
        (NEMO_1, "virtual_pipeline_model_parallel_size: 4", "overlap_p2p_comm: True", None),
        (NEMO_2, "", "", None),
        (NEMO_2, "cross_entropy_fusion_impl: te", "overlap_p2p_comm: false", "blocking"),
        (NEMO_2, _TIMING, f"{_OVERLAPS}\n    overlap_p2p_comm: false", "blocking"),
    ],
)
def test_messages_of_a_pipeline_of_nemo_wait_unless_overlapped(
    base: str, old: str, new: str, transfers: str | None
) -> None:
    text = base.replace("parallel_size: null", "parallel_size: 2").replace(old, new, 1)
    assert settings(nemo(text)).get("schedule.transfers") == transfers


@try_each(
    "old, new, rule",
    [
        ("", "", None),  # 32 layers, 2 x 4 stages
        ("num_layers: 32", "num_layers: 30", "even"),
        ("num_layers: 32", "num_layers: 30\n  num_layers_in_first_pipeline_stage: 14", None),
        ("num_layers: 32", "num_layers: 31\n  account_for_embedding_in_pipeline_split: True", None),
        ("pipeline_model_parallel_size: 2", "pipeline_model_parallel_size: 3", "even"),
    ],
)
def test_layers_divide_by_the_stages_without_an_option(
    old: str, new: str, rule: str | None
) -> None:
    found = nemo(NEMO_1.replace(old, new, 1))
    assert settings(found).get("schedule.assignment") == rule
    assert not rule or "num_layers_in_last_pipeline_stage" in str(assumptions(found))


def test_a_callback_of_nemo_2_replaces_what_its_model_says_of_messages() -> None:
    text = NEMO_2.replace("parallel_size: null", "parallel_size: 2")
    text = text.replace("cross_entropy_fusion_impl: te", "overlap_p2p_comm: false")
    assert "schedule.transfers" not in settings(nemo(text.replace(_TIMING, _OVERLAPS)))


@try_each(
    "base, old, new, loss",
    [
        (NEMO_1, "", "", "softmax"),
        (NEMO_2, "", "", "gradient"),
        (NEMO_2, "fusion_impl: te", "fusion_impl: native", "softmax"),
        (NEMO_2, "entropy_fusion_impl: te", "entropy_loss_fusion: false", "softmax"),
        (NEMO_2, "entropy_fusion_impl: te", "entropy_loss_fusion: true", None),
    ],
)
def test_the_cross_entropy_of_nemo_keeps_what_its_implementation_keeps(
    base: str, old: str, new: str, loss: str | None
) -> None:
    assert settings(nemo(base.replace(old, new, 1))).get("training.loss") == loss


def test_a_recipe_of_hyperpod_is_one_of_nemo() -> None:
    assert NeMo().recognizes("run.yaml", HYPERPOD)
    assert not Megatron().recognizes("run.yaml", HYPERPOD)
    found = nemo(HYPERPOD)
    assert "precisions.bf16" in uses(found)
    expected = {
        "cluster.devices": "16 * 8",
        "layout.tp": "8",
        "layout.pp": "4",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "overlap.parameters": "on",
        # Optimizer state is sharded over half of the replicas.
        "sharding.shard": "layout.dp * layout.cp / 2",
    }
    assert expected.items() <= settings(found).items()


def test_nemo_1_is_read() -> None:
    found = nemo(NEMO_1)
    assert settings(found) == {
        "cluster.devices": "4 * 8",
        "layout.tp": "4",
        "layout.pp": "2",
        "layout.sequence_parallel": "on",
        "layout.cp": "1",
        "layout.vocabulary_multiple": "128",
        "layout.zero": "1",
        "kernels.attention": "unfused",
        "schedule.chunks": "4",
        "schedule.kind": "interleaved",
        "training.micro_batch": "1",
        "training.sequence": "4096",
        "training.global_batch": "128 sequences",
        "training.dropout": "on",
        "training.recompute": "full",
        "schedule.transfers": "blocking",
        "training.loss": "softmax",
        "recompute.layers": "3",
        "overlap.gradients": "on",
        "overlap.bucket": "200 MiB",
        "sharding.gradient_check": "off",
        "model.layers": "32",
        "model.hidden": "4096",
        "model.heads": "32",
        "model.ffn": "11_008",
        "model.vocabulary": "32_000",
        "model.tied": "off",
        "model.biases": "off",
        "model.gated": "on",
        "model.norm": "rms",
    }
    assert uses(found) == ["frameworks.nemo", "precisions.bf16"]
    assert not found.unknown
    assert not found.missing


@try_each(
    "key, deciding, harmless",
    [
        ("model.fp32_residual_connection", "True", "False"),
        ("model.fp16_lm_cross_entropy", "True", "False"),
        ("model.fp8_wgrad", "False", "True"),
        ("model.apply_rope_fusion", "False", "True"),
        ("model.persist_layer_norm", "False", "True"),
        ("model.deterministic_mode", "True", "False"),
        ("model.enable_cuda_graph", "True", "False"),
        ("model.headscale", "True", "False"),
        ("model.openai_gelu", "True", "False"),
        ("model.optim.store_param_remainders", "True", "False"),
        ("model.optim.distribute_within_nodes", "True", "False"),
        ("model.optim.dtype", "bf16", "fp32"),
        ("exp_manager.ema.enable", "True", "False"),
        ("trainer.accumulate_grad_batches", "4", "1"),
    ],
)
def test_a_key_of_nemo_1_that_decides_is_listed(key: str, deciding: str, harmless: str) -> None:
    section, *middle, name = key.split(".")
    for value, is_listed in ((deciding, True), (harmless, False)):
        text = NEMO_1.replace("  optim:\n", f"  optim:\n    {name}: {value}\n")
        if middle == ["ema"]:
            text = NEMO_1.replace("  name: x\n", f"  name: x\n  ema: {{{name}: {value}}}\n")
        elif section == "trainer":
            text = NEMO_1.replace("max_steps: 100", f"{name}: {value}")
        elif not middle:
            text = f"{NEMO_1}  {name}: {value}\n"
        assert text != NEMO_1
        assert (key in names(nemo(text).missing)) == is_listed


@try_each(
    "key, deciding, harmless",
    [
        ("optimizer", "sgd", "adam"),
        ("main_grads_dtype", "torch.bfloat16", "torch.float32"),
        ("optimizer_cpu_offload", "true", "false"),
        ("overlap_param_gather_with_optimizer_step", "true", "false"),
    ],
)
def test_a_key_of_the_optimizer_of_nemo_2_that_decides_is_listed(
    key: str, deciding: str, harmless: str
) -> None:
    for value, is_listed in ((deciding, True), (harmless, False)):
        found = nemo(NEMO_2.replace("lr: 0.0003", f"{key}: {value}"))
        assert (f"optim.config.{key}" in names(found.missing)) == is_listed


def test_a_callback_of_nemo_2_decides_overlap_and_capacity() -> None:
    last = "TimingCallback\n"
    overlap = f"{last}  - {{_target_: x.MegatronCommOverlapCallback, overlap_grad_reduce: false}}\n"
    found = nemo(NEMO_2.replace(last, overlap))
    assert settings(found)["overlap.gradients"] == "off"
    assert not found.unknown
    drop = f"{last}  - {{_target_: x.TokenDropCallback, moe_expert_capacity_factor: 1.5}}\n"
    assert settings(nemo(NEMO_2.replace(last, drop)))["routing.capacity_factor"] == "1.5"
    lora = f"{last}  - {{_target_: nemo.collections.llm.peft.lora.LoRA, dim: 8}}\n"
    assert settings(nemo(NEMO_2.replace(last, lora)))["adapters.rank"] == "8"


def test_keys_of_checkpoints_and_of_the_trainer_ask_for_nothing(
    run_command: Callable[..., Any],
) -> None:
    text = NEMO_1.replace("  name: x\n", "  name: x\n  callback: {save_top_k: 5}\n")
    text = text.replace("max_steps: 100", "max_steps: 100, limit_val_batches: 32")
    text += "  moe_aux_loss_coeff: 0.01\n"
    done = run_command("import", "run.yaml", files={"run.yaml": text})
    assert done.code == 0, done.err
    assert "save_top_k" not in done.err
    assert "limit_val_batches" not in done.err


def test_ranks_of_a_profile_are_no_devices(run_command: Callable[..., Any]) -> None:
    text = NEMO_1.replace(", num_nodes: 4", "")
    text += "  nsys_profile:\n    enabled: false\n    ranks:\n    - 0\n    - 8\n"
    done = run_command("import", "run.yaml", files={"run.yaml": text})
    assert "devices = 1 * 8" in " ".join(done.out.split()), done.err


def test_nodes_that_a_file_leaves_out_are_assumed() -> None:
    found = nemo(NEMO_1.replace(", num_nodes: 4", ""))
    assert settings(found)["cluster.devices"] == "1 * 8"
    assert assumptions(found)["cluster.devices"] == "Lightning: num_nodes is 1"


@pytest.mark.parametrize(("experts", "code"), [("", 0), ("  num_moe_experts: 8\n", 2)])
def test_experts_of_a_token_are_a_question_where_there_are_experts(
    run_command: Callable[..., Any], experts: str, code: int
) -> None:
    text = f"{NEMO_1}{experts}  strange_top_k: 2\n"
    done = run_command("import", "run.yaml", files={"run.yaml": text})
    assert done.code == code, done.err
    assert ("`model.top_k` is not known" in done.err) == bool(experts)


def test_what_nemo_1_leaves_out_has_its_defaults() -> None:
    lines = [
        line
        for line in NEMO_1.splitlines()
        if not any(
            key in line
            for key in (
                *("normalization", "activation:", "bias:", "share_emb", "embedding_type"),
                *("dropout", "sequence_parallel", "activations_checkpoint", "tensor_model"),
            )
        )
    ]
    found = nemo("\n".join(lines).replace("override_vocab_size: 32000", "seed: 1"))
    values = settings(found)
    assert (values["model.norm"], values["model.gated"]) == ("layer", "off")
    assert (values["model.biases"], values["model.tied"]) == ("on", "on")
    assert values["model.positions"] == "4096"
    assert assumptions(found)["model.norm"] == "NeMo 1: normalization is layernorm"
    expected = {
        "layout.tp": "1",
        "layout.sequence_parallel": "off",
        "training.dropout": "on",
        "training.recompute": "none",
        "kernels.attention": "unfused",
    }
    assert expected.items() <= values.items()
    assert assumptions(found).keys() >= expected.keys()
    fused = nemo(NEMO_1 + "  transformer_engine: True\n")
    assert "kernels.attention" not in settings(fused)
    assert names(found.missing) == {"the vocabulary"}


@try_each(
    "old, new, recipe",
    [
        ("amp_O2: True", "amp_O2: False", "bf16_fsdp"),
        ("precision: bf16", "precision: 16-mixed", "fp16"),
        ("precision: bf16", "precision: 32", "fp32"),
        ("amp_O2: True", "amp_O2: True\n  fp8: True\n  fp8_hybrid: True", "fp8_delayed"),
        ("amp_O2: True", "amp_O2: True\n  fp8: True\n  fp8_params: True", "fp8_param_gather"),
    ],
)
def test_the_precision_of_nemo_1_is_a_recipe(old: str, new: str, recipe: str) -> None:
    assert uses(nemo(NEMO_1.replace(old, new)))[1] == f"precisions.{recipe}"


@pytest.mark.parametrize(("more", "traffic"), [("", "40 B"), ("\n  fp8_params: True", "39 B")])
def test_gradients_of_nemo_1_in_16_bits_stay_so_beside_8_bits(more: str, traffic: str) -> None:
    """A cast of gradients (2 + 4), Adam (4 + 2 x 12), and a cast of the master (4 + 2 or 1)."""
    text = NEMO_1.replace("amp_O2: True", f"amp_O2: True\n  fp8: True{more}")
    found = nemo(text.replace("lr: 2e-4", "lr: 2e-4\n    grad_sync_dtype: bf16"))
    expected = {"precision.gradients": "2 B", "precision.reduction": "2 B"}
    assert expected.items() <= settings(found).items()
    assert settings(found)["precision.update_traffic"] == traffic
    assert "precision.gradients" not in settings(nemo(text))


@pytest.mark.parametrize(
    ("more", "zero"),
    [("", "3"), ("\n  fsdp_sharding_strategy: grad", "2")],
)
def test_fsdp_of_nemo_1_shards_whatever_the_optimizer_is(more: str, zero: str) -> None:
    text = NEMO_1.replace("name: distributed_fused_adam", "name: fused_adam")
    found = nemo(text.replace("mcore_gpt: True", f"fsdp: True{more}"))
    assert settings(found)["layout.zero"] == zero


def test_experts_of_nemo_1_have_their_exchange() -> None:
    more = "num_moe_experts: 8\n  moe_token_dispatcher_type: alltoall\n"
    found = nemo(NEMO_1.replace("mcore_gpt: True", f"{more}  moe_expert_capacity_factor: 1.5"))
    expected = {"model.experts": "8", "routing.dispatcher": "alltoall"}
    assert expected.items() <= settings(found).items()
    assert settings(found)["routing.capacity_factor"] == "1.5"


def test_fsdp_of_nemo_1_reduces_in_the_type_of_its_key() -> None:
    text = NEMO_1.replace("megatron_amp_O2: True", "fsdp: True\n  fsdp_grad_reduce_dtype: bf16")
    found = nemo(text)
    assert uses(found)[1] == "precisions.bf16_fsdp"
    assert settings(found)["precision.reduction"] == "2 B"


@pytest.mark.parametrize(
    ("tokenizer", "vocabulary"),
    [
        ("library: huggingface\n    type: meta-llama/Meta-Llama-3.1-8B", "128_256"),
        ("library: megatron\n    type: GPT2BPETokenizer", "50_257"),
        ("library: sentencepiece\n    type: null", None),
    ],
)
def test_a_known_tokenizer_of_nemo_1_has_the_vocabulary(
    tokenizer: str, vocabulary: str | None
) -> None:
    text = NEMO_1.replace("override_vocab_size: 32000", "seed: 1")
    found = nemo(text.replace("library: sentencepiece", tokenizer))
    assert settings(found).get("model.vocabulary") == vocabulary


def test_nemo_2_is_read() -> None:
    found = nemo(NEMO_2)
    assert settings(found) == {
        "cluster.devices": "2 * 8",
        "layout.tp": "1",
        "layout.cp": "2",
        "training.loss": "gradient",
        "layout.sequence_parallel": "off",
        "layout.zero": "1",
        "sharding.gradient_average": "scaled",
        "training.micro_batch": "1",
        "training.sequence": "8192",
        "training.global_batch": "128 sequences",
        "training.precision": "nemo",
        "overlap.gradients": "on",
        "overlap.parameters": "off",
        "precision.wide_first": "2",
        "precision.wide_last": "1",
    }
    assert uses(found) == ["frameworks.nemo", "models.llama3_8b", "precisions.fp8_current_nemo"]
    assert not found.unknown
    assert not found.missing


def test_a_class_with_other_sizes_is_a_model_of_its_own() -> None:
    found = nemo(NEMO_2.replace("cross_entropy_fusion_impl: te", "num_layers: 16"))
    labels = [block.label for block in found.blocks if block.kind == "model"]
    assert labels == ["nemo extends llama3_8b"]
    assert settings(found)["model.layers"] == "16"
    assert settings(found)["training.model"] == "nemo"


def test_a_class_of_no_table_leaves_the_model_open() -> None:
    found = nemo(NEMO_2.replace("Llama3Config8B", "OursConfig9B"))
    (asked,) = found.questions
    assert (asked.attribute, asked.answers[0]) == ("model", "--use config.json")
    assert "OursConfig9B" in asked.reason


def test_an_encoder_of_nemo_2_is_rejected() -> None:
    (problem,) = nemo(NEMO_2.replace("Llama3Config8B", "BertConfig")).problems
    assert "an encoder or encoder-decoder model is not modeled" in problem.message


def test_what_the_command_line_gives_is_listed() -> None:
    found = nemo(NEMO_1.replace("micro_batch_size: 1\n", "micro_batch_size: ???\n"))
    assert names(found.missing) == {"model.micro_batch_size"}
    assert "training.micro_batch" not in settings(found)


@try_each(
    "old, new, message",
    [
        ("micro_batch_size: 1", "micro_batch_size: ${oc.env:MBS}", "`MBS` of the environment"),
        ("num_layers: 32", "num_layers: ${model.num_layers}", "a whole number"),
        ("name: distributed_fused_adam", "name: lion", "`lion` is not known"),
        ("activation: fast-swiglu", "activation: tanh", "`tanh` is not known"),
        ("sequence_parallel: True", "sequence_parallel: 7", "true or false"),
    ],
)
def test_an_error_of_nemo_stands_at_its_value(old: str, new: str, message: str) -> None:
    (found,) = problems(NeMo(), NEMO_1.replace(old, new), "run.yaml")
    assert message in found[0]
    assert found[1] == new


def test_nothing_of_a_class_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    original = builtins.__import__

    def record(name: str, *arguments: Any, **more: Any) -> Any:
        loaded.append(name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", record)
    nemo(NEMO_2.replace("Llama3Config8B", "antigravity.Fly"))
    assert not [name for name in loaded if name.startswith(("nemo", "antigravity"))]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("gradient_accumulation_fusion", "kernels.fused_accumulation"),
        ("moe_grouped_gemm", "kernels.grouped_experts"),
    ],
)
def test_a_kernel_of_nemo_1_is_that_of_its_key(line: str, path: str) -> None:
    old = NEMO_1.replace("model:\n", f"model:\n  {line}: True\n", 1)
    assert settings(nemo(old))[path] == "on"
    assert path not in settings(nemo(NEMO_1))


@try_each(
    "keys, kernel",
    [
        ("transformer_engine: False", "unfused"),
        ("transformer_engine: False, use_flash_attention: True", None),
        ("transformer_engine: False, use_flash_attention: True, mcore_gpt: True", "unfused"),
        ("transformer_engine: True", None),
    ],
)
def test_layers_of_nemo_1_itself_write_scores_to_memory(keys: str, kernel: str | None) -> None:
    lines = "".join(f"\n  {key}" for key in keys.split(", "))
    text = NEMO_1.replace("  mcore_gpt: True\n", "")
    found = nemo(text.replace("model:", f"model:{lines}", 1))
    assert settings(found).get("kernels.attention") == kernel


def test_a_configuration_of_nemos_launcher_is_none_of_gpt_neox(run_command: Any) -> None:
    """Its checkpoints have a `model_parallel_size`, the word of GPT-NeoX."""
    sizes = "{model_parallel_size: 8}"
    text = f"run: {{name: gpt}}\n{NEMO_1}exp_manager:\n  checkpoint_callback_params: {sizes}\n"
    done = run_command("check", "gpt.yaml", files={"gpt.yaml": text})
    assert "ambiguous-format" not in done.err


@pytest.mark.parametrize("section", ["ddp", "comm_overlap", "mixed_precision"])
def test_a_configuration_of_megatron_bridge_is_none_of_nemo(section: str) -> None:
    """Its sections are those of a ConfigContainer; NeMo has them in a trainer and a strategy."""
    text = f"model:\n  tensor_model_parallel_size: 2\n{section}:\n  a: 1\n"
    assert not NeMo().recognizes("job.yaml", text)
    assert Megatron().recognizes("job.yaml", text)


def test_fp16_of_nemo_1_without_o2_keeps_fp32_weights() -> None:
    found = nemo(
        NEMO_1.replace("precision: bf16", "precision: 16").replace("megatron_amp_O2: True", "")
    )
    assert "precisions.bf16_fsdp" in uses(found)
    assert settings(found)["precision.compute"] == "fp16"


COMMAND = """\
#!/bin/bash
NODES=4
srun python /opt/NeMo/examples/megatron_gpt_pretraining.py --config-path=conf \\
    --config-name=megatron_gpt_config trainer.devices=8 trainer.num_nodes=$NODES \\
    trainer.precision=bf16 ++model.megatron_amp_O2=True model.num_layers=6 \\
    model.optim.name=distributed_fused_adam
"""


def read_script(text: str, **neighbors: str) -> Translation:
    beside = {f"{name}.yaml": text for name, text in neighbors.items()}
    assert NeMo().recognizes("run.sh", text)
    return NeMo().read(ImportFile("run.sh", text, neighbor=beside.get))


def test_a_command_of_nemo_1_replaces_values_of_its_configuration() -> None:
    found = read_script(COMMAND)
    expected = {
        "cluster.devices": "4 * 8",
        "model.layers": "6",
        "model.hidden": "768",
        "layout.zero": "1",
        "training.global_batch": "8 sequences",
    }
    assert expected.items() <= settings(found).items()
    assert assumptions(found)["model.hidden"] == "NeMo 1: megatron_gpt_config.yaml"
    assert "model.layers" not in assumptions(found)
    assert "precisions.bf16" in uses(found)


def test_files_of_a_tokenizer_keep_its_type() -> None:
    files = " model.tokenizer.vocab_file=a.json model.tokenizer.merge_file=b.txt"
    found = read_script(f"{COMMAND.rstrip()}{files}\n")
    assert settings(found)["model.vocabulary"] == settings(read_script(COMMAND))["model.vocabulary"]
    assert not found.questions


def test_a_configuration_beside_a_command_of_nemo_1_is_read() -> None:
    text = COMMAND.replace("megatron_gpt_config", "mine")
    assert "`mine.yaml` has the other keys" in read_script(text).problems[0].message
    found = settings(read_script(text, mine=NEMO_1))
    assert (found["model.layers"], found["model.hidden"]) == (
        "6",
        settings(nemo(NEMO_1))["model.hidden"],
    )


@try_each(
    "word, attribute",
    [
        ("model.fp8=$FP8", "precision"),
        ("model.tensor_model_parallel_size=$TP", "layout.tp"),
        ("model.hidden_size=$H", "model.hidden"),
        ("model.activations_checkpoint_granularity=$AC", "training.recompute"),
    ],
)
def test_a_variable_without_a_value_in_a_command_of_nemo_1_raises_a_question(
    word: str, attribute: str
) -> None:
    found = read_script(COMMAND.replace("model.num_layers=6", word))
    assert [one.attribute for one in found.questions] == [attribute]


def test_a_command_of_the_launcher_replaces_values_of_the_training_that_it_names() -> None:
    command = (
        "python3 ${L:-/opt/l}/launcher_scripts/main.py training=gpt3/5b stages=[training] "
        "training.trainer.num_nodes=4 training.model.global_batch_size=96\n"
    )
    assert NeMo().recognizes("run.sh", command)
    found = NeMo().read(ImportFile("run.sh", command, ImportOptions(), {"5b.yaml": NEMO_1}.get))
    values, plain = settings(found), settings(nemo(NEMO_1))
    assert values["training.global_batch"] == "96 sequences"
    assert values["cluster.devices"].startswith("4 * ")
    assert values["model.layers"] == plain["model.layers"]
    (problem,) = NeMo().read(ImportFile("run.sh", command)).problems
    assert "`gpt3/5b.yaml` has the other keys" in problem.message


def test_adapters_of_nemo_1_are_rejected() -> None:
    text = NEMO_1.replace("mcore_gpt: True", "peft: {peft_scheme: lora}")
    assert "adapters" in nemo(text).problems[0].message


@pytest.mark.parametrize("tool", ["accelerate", "nanotron", "nemo"])
def test_a_file_is_recognized_by_one_importer(tool: str) -> None:
    from parcost_formats.tools.accelerate import Accelerate

    importers = {"accelerate": Accelerate(), "nanotron": Nanotron(), "nemo": NeMo()}
    texts = {
        "accelerate": "distributed_type: FSDP\n",
        "nanotron": "parallelism: {dp: 1}\nmodel: {model_config: {}}\ntokens: {}\n",
        "nemo": NEMO_1,
    }
    assert [n for n, one in importers.items() if one.recognizes("a.yaml", texts[tool])] == [tool]


@pytest.mark.parametrize(
    ("strategy", "zero"), [("no_shard", "0"), ("optim_grads", "2"), ("optim_grads_params", "3")]
)
def test_fsdp_of_nemo_2_has_the_stage_of_its_strategy(strategy: str, zero: str) -> None:
    ddp = "ddp: {_target_: x, "
    text = NEMO_2.replace(ddp, f"{ddp}data_parallel_sharding_strategy: {strategy}, ")
    plain = settings(nemo(text))["layout.zero"]
    fsdp = text.replace("    sequence_parallel", "    fsdp: megatron\n    sequence_parallel")
    found = nemo(fsdp)
    assert (plain, settings(found)["layout.zero"]) == ("1", zero)
    assert not found.problems


def test_fsdp_of_nemo_2_without_a_strategy_asks_for_the_stage() -> None:
    fsdp = NEMO_2.replace("    sequence_parallel", "    fsdp: megatron\n    sequence_parallel")
    found = nemo(fsdp)
    assert "layout.zero" in {one.attribute for one in found.questions}
    assert "layout.zero" not in settings(found)


@pytest.mark.parametrize(("kind", "is_open"), [("rope", True), ("learned_absolute", False)])
def test_unfused_rotary_embeddings_need_rotary_embeddings(kind: str, is_open: bool) -> None:
    text = NEMO_1.replace("position_embedding_type: rope", f"position_embedding_type: {kind}")
    found = NeMo().translate(
        "run.yaml", text.replace("  bias: ", "  apply_rope_fusion: False\n  bias: ")
    )
    assert any("rope_fusion" in one.name for one in found.missing) == is_open


def test_sharding_of_fsdp_that_is_off_changes_nothing() -> None:
    own = "  fsdp: False\n  fsdp_sharding_strategy: full\n  dist_ckpt_parallel_load: True\n  bias: "
    found = NeMo().translate("run.yaml", NEMO_1.replace("  bias: ", own))
    assert settings(found) == settings(NeMo().translate("run.yaml", NEMO_1))
    assert not found.unknown


@try_each("activation, squares", [("squared-relu", "on"), ("gelu", None), ("fast-swiglu", None)])
def test_a_squared_relu_is_read(activation: str, squares: str | None) -> None:
    text = NEMO_1.replace("fast-swiglu", activation)
    assert settings(NeMo().translate("run.yaml", text)).get("model.squared_relu") == squares
