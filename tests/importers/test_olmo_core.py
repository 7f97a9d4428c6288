"""Training scripts of OLMo-core."""

from __future__ import annotations

import ast

import pytest

from parcost import ImportFile, ImportOptions
from parcost.language.text import Source
from parcost_formats.imports.translation import translate
from parcost_formats.tools.collector import digits
from parcost_formats.tools.olmo_core import OlmoCore
from parcost_formats.tools.python_code import static_value
from parcost_formats.tools.python_values import UnreadError

from ..rows import try_each
from .translations import assumptions, problems, settings, uses

JOB = """\
import argparse
from olmo_core.config import DType
from olmo_core.data import NumpyDataLoaderConfig, TokenizerConfig
from olmo_core.distributed.parallel import DataParallelType
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import SkipStepAdamWConfig
from olmo_core.train import TrainerConfig
from olmo_core.train.train_module import TransformerDataParallelConfig, TransformerTrainModuleConfig

from olmo_core.nn.transformer import TransformerActivationCheckpointingMode as M

LENGTH = 4096
BATCH = 4096 * 1024

def build_config(opts: argparse.Namespace, overrides: list[str]) -> ExperimentConfig:
    length = opts.sequence_length or LENGTH
    tokenizer = TokenizerConfig.dolma2()
    model = TransformerConfig.olmo2_7B(vocab_size=tokenizer.padded_vocab_size())
    module = TransformerTrainModuleConfig(
        rank_microbatch_size=2 * 4096,
        max_sequence_length=length,
        optim=SkipStepAdamWConfig(lr=3e-4),
        compile_model=True,
        dp_config=TransformerDataParallelConfig(
            name=DataParallelType.fsdp, param_dtype=DType.bfloat16, reduce_dtype=DType.float32,
        ),
    )
    trainer = TrainerConfig(save_folder=opts.save_folder).with_callback("x", Y())
    return ExperimentConfig(
        model=model,
        data_loader=NumpyDataLoaderConfig(global_batch_size=BATCH, seed=1),
        train_module=module,
        trainer=trainer,
    ).merge(overrides)
"""
DATA = "name=DataParallelType.fsdp"
OPTIMIZER = "optim=SkipStepAdamWConfig(lr=3e-4),"
TRAINER = "trainer = TrainerConfig("
MICRO = "training.micro_batch"
CHECKPOINTS = "ac_config=AC(mode=M.selected_modules, modules="


def test_batches_of_tokens_are_sequences() -> None:
    """8,192 tokens of a rank are 2 sequences of 4,096, and 4,194,304 of a step are 1,024."""
    found = OlmoCore().translate("train.py", JOB)
    expected = {
        "model.vocabulary": "100_352",
        "training.sequence": "4096",
        "training.micro_batch": "2",
        "training.global_batch": "1024 sequences",
        "training.recompute": "none",
        "layout.zero": "3",
        "layout.tp": "1",
        "kernels.mode": "compiled",
    }
    assert expected.items() <= settings(found).items()
    assert uses(found) == [
        "frameworks.pytorch_fsdp_flash",
        "models.olmo2_7b",
        "precisions.bf16_fsdp",
    ]
    assert assumptions(found)["training.recompute"] == "OLMo-core 2.3: no ac_config"
    assert not found.questions
    assert not found.unknown


@try_each(
    "old, new, name, value",
    [
        (DATA, "name=DataParallelType.hsdp, shard_degree=16", "sharding.shard", "16"),
        (DATA, "name=DataParallelType.ddp", "layout.zero", "0"),
        ("reduce_dtype=DType.float32", "reduce_dtype=DType.bfloat16", "precision.reduction", "2 B"),
        (OPTIMIZER, f"{OPTIMIZER} ac_config=AC(mode=M.full),", "training.recompute", "full"),
        (OPTIMIZER, f"{OPTIMIZER} ac_config=None,", "training.recompute", "none"),
        (OPTIMIZER, f"{OPTIMIZER} tp_config=None,", "layout.tp", "1"),
        (TRAINER, f"setattr(module, 'rank_microbatch_size', 4096)\n    {TRAINER}", MICRO, "1"),
        (
            OPTIMIZER,
            f"{OPTIMIZER} ac_config=AC(mode=M.selected_blocks, block_interval=2),",
            "recompute.every",
            "2",
        ),
        (OPTIMIZER, f"{OPTIMIZER} {CHECKPOINTS}['blocks.*.feed_forward']),", "recompute.mlp", "on"),
        (OPTIMIZER, f"{OPTIMIZER} tp_config=T(degree=4),", "layout.sequence_parallel", "on"),
        (OPTIMIZER, f"{OPTIMIZER} cp_config=C.ulysses(degree=8),", "context.algorithm", "ulysses"),
        ("olmo2_7B(", "olmo3_32B(", "model.full_every", "4"),
        ("olmo2_7B(", "olmo2_13B(n_layers=20, ", "model.layers", "20"),
    ],
)
def test_arguments_set_attributes(old: str, new: str, name: str, value: str) -> None:
    assert old in JOB
    assert settings(OlmoCore().translate("train.py", JOB.replace(old, new)))[name] == value


def test_texts_of_a_list_of_numbers_are_read() -> None:
    """Recomputation of some blocks only is a question that names the first of them."""
    value = f"{CHECKPOINTS}[f'blocks.{{i}}.feed_forward' for i in range(4, 9, 2)]),"
    found = OlmoCore().translate("train.py", JOB.replace(OPTIMIZER, OPTIMIZER + value))
    (question,) = found.questions
    assert question.attribute == "training.recompute"
    assert "`blocks.4.feed_forward`" in question.reason


@try_each(
    "old, new, attribute",
    [
        (DATA, "name=DataParallelType.hsdp", "sharding.shard"),
        ("SkipStepAdamWConfig(", "LionConfig(", "precision"),
        (OPTIMIZER, f"{OPTIMIZER} float8_config=Float8Config(enabled=True),", "precision"),
        (OPTIMIZER, f"{OPTIMIZER} ac_config=AC(mode=M.budget),", "training.recompute"),
        (OPTIMIZER, f"{OPTIMIZER} ac_config=AC(mode=pick()),", "training.recompute"),
        (OPTIMIZER, f"{OPTIMIZER} {CHECKPOINTS}['blocks.0.feed_forward']),", "training.recompute"),
        (OPTIMIZER, f"{OPTIMIZER} tp_config=T(degree=pick()),", "layout.tp"),
        (DATA, "name=pick()", "layout.zero"),
        (
            OPTIMIZER,
            f"{OPTIMIZER} ac_config=TransformerActivationCheckpointingConfig(M.budget),",
            "training.recompute",
        ),
        (OPTIMIZER, f"{OPTIMIZER} tp_config=TConfig(4),", "layout.tp"),
        (TRAINER, f"tune(module)\n    {TRAINER}", MICRO),
        (TRAINER, f"tune(module)\n    {TRAINER}", "training.recompute"),
        (OPTIMIZER, f"{OPTIMIZER} pp_config=P(degree=2, split_points=[9]),", "schedule.stages"),
        ("olmo2_7B(", "olmo9_7B(", "model"),
        ("olmo2_7B(", "olmo2_7B(d_model=512, ", "model"),
        ("TokenizerConfig.dolma2()", "TokenizerConfig.from_hf('x')", "model.vocabulary"),
        ("rank_microbatch_size=2 * 4096", "rank_microbatch_size=pick()", "training.micro_batch"),
        ("global_batch_size=BATCH", "global_batch_of_tomorrow=BATCH", "training.global_batch"),
    ],
)
def test_a_value_that_is_not_known_raises_a_question(old: str, new: str, attribute: str) -> None:
    assert old in JOB
    found = OlmoCore().translate("train.py", JOB.replace(old, new))
    assert attribute in {one.attribute for one in found.questions}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-> ExperimentConfig", "-> Job", "no function of the file returns an `ExperimentConfig`"),
        ("2 * 4096", "2 * 4095", "8190 tokens are not a multiple of max_sequence_length = 4096"),
        ("import argparse", "import (", "not Python"),
    ],
)
def test_a_script_that_is_not_followed_is_an_error(old: str, new: str, message: str) -> None:
    found = problems(OlmoCore(), JOB.replace(old, new), "train.py")
    assert any(message in one for one, _ in found)


BUILT = "model = TransformerConfig.olmo2_7B(vocab_size=tokenizer.padded_vocab_size())"


def changed(*statements: str, model: str = "olmo2_7B") -> str:
    """Return the job with statements that change its model."""
    lines = "".join(f"\n    model.{one}" for one in statements)
    return JOB.replace(BUILT, BUILT.replace("olmo2_7B", model) + lines)


def window(pattern: str, more: str = "") -> str:
    return f"block.attention.sliding_window = SlidingWindowAttentionConfig(pattern={pattern}{more})"


@try_each(
    "statement, attributes",
    [
        ("block.attention.n_kv_heads = 8", {"model.kv_heads": "8"}),
        ("block.sequence_mixer.n_kv_heads = 8", {"model.kv_heads": "8"}),
        ("block.feed_forward.hidden_size = 16384", {"model.ffn": "16_384"}),
        ("block.attention.use_head_qk_norm = True", {"model.qk_norm_whole": "off"}),
        (
            window("[512, 512, 512, -1]", ", force_full_attention_on_first_layer=False"),
            {"model.window": "512", "model.full_every": "4"},
        ),
        (  # the pattern starts behind the first layer, and the last one is full as well
            window(f"{[512] * 15 + [-1]}"),
            {"model.window": "512", "model.full_layers": "[0, 16, 31]"},
        ),
    ],
)
def test_a_statement_changes_a_part_of_the_model(
    statement: str, attributes: dict[str, str]
) -> None:
    found = OlmoCore().translate("train.py", changed(statement))
    assert attributes.items() <= settings(found).items()
    assert not found.questions


def test_the_width_of_an_mlp_is_a_multiple_of_a_part_of_the_model() -> None:
    """1.2 x 10,922 is 13,106, and 13,312 as a multiple of 1,024."""
    both = "hidden_size_multiplier=1.2, hidden_size_multiple_of=1024"
    text = JOB.replace("olmo2_7B(", f"olmo2_7B(n_kv_heads=8, {both}, ")
    found = OlmoCore().translate("train.py", text)
    assert {"model.ffn": "13_312", "model.kv_heads": "8"}.items() <= settings(found).items()
    one = OlmoCore().translate("train.py", JOB.replace("olmo2_7B(", f"olmo2_7B({both[:26]}, "))
    assert "model" in {question.attribute for question in one.questions}


def test_a_function_that_code_chooses_has_no_name() -> None:
    text = JOB.replace("rank_microbatch_size=2 * 4096", "rank_microbatch_size=pick()()")
    found = OlmoCore().translate("train.py", text)
    (why,) = (one.reason for one in found.questions if one.attribute == MICRO)
    assert "``" not in why


def test_a_size_that_code_computes_is_a_question() -> None:
    found = OlmoCore().translate("train.py", changed("block.attention.n_kv_heads = pick()"))
    assert "model.kv_heads" in {one.attribute for one in found.questions}


def test_a_window_that_a_statement_takes_away_is_none() -> None:
    text = changed("block.attention.sliding_window = None", model="olmo3_7B")
    assert settings(OlmoCore().translate("train.py", text))["model.window"] == "0"


@try_each(
    "statement",
    [
        window("[512, 1024, -1]"),
        window("pick()"),
        "block.attention.qk_norm = None",
        "block.name = TransformerBlockType.default",
        "block_overrides = {0: other}",
    ],
)
def test_a_statement_that_changes_the_model_otherwise_is_a_question(statement: str) -> None:
    found = OlmoCore().translate("train.py", changed(statement))
    assert "model" in {one.attribute for one in found.questions}


@pytest.mark.parametrize(
    "statement",
    [
        "block.attention.use_flash = True",
        "block.attention.backend = AttentionBackendName.flash_2",
        "block.attention.rope = RoPEConfig(theta=8000000)",
    ],
)
def test_a_statement_without_a_cost_changes_nothing(statement: str) -> None:
    plain, found = (OlmoCore().translate("train.py", one) for one in (JOB, changed(statement)))
    assert settings(found) == settings(plain)
    assert not found.questions


def test_a_fused_loss_is_listed() -> None:
    text = changed("lm_head.loss_implementation = LMLossImplementation.fused_linear")
    more = "from olmo_core.nn.lm_head import LMLossImplementation\n"
    found = OlmoCore().translate("train.py", more + text)
    assert "model.lm_head.loss_implementation" in {one.name for one in found.missing}


PARSER = """
def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", "--sequence-length", type=int, default=8192)
    parser.add_argument("--float8", action="store_false")
    parser.add_argument("--shard", default=SHARD)
    return parser.parse_args()
"""


def test_options_have_the_defaults_of_the_file() -> None:
    """A parser that makes 8,192 tokens, and 8 bits unless a flag turns them off."""
    text = JOB.replace("opts.sequence_length or LENGTH", "opts.sequence_length")
    text = text.replace(OPTIMIZER, f"{OPTIMIZER} float8_config=F() if opts.float8 else None,")
    found = OlmoCore().translate("train.py", text + PARSER)
    assert settings(found)["training.sequence"] == "8192"
    assert "precision" in {one.attribute for one in found.questions}


@pytest.mark.parametrize("option", ["shard", "shards"])
def test_an_option_without_a_known_default_raises_a_question(option: str) -> None:
    """Its default is a name, or the file does not declare it: it decides the sharding."""
    kind = f"name=DataParallelType.fsdp if opts.{option} else DataParallelType.ddp"
    found = OlmoCore().translate("train.py", JOB.replace(DATA, kind) + PARSER)
    assert "layout.zero" in {one.attribute for one in found.questions}


COOKBOOK = """\
from olmo_core.internal import cookbook
from olmo_core.internal.experiment import CliContext, ExperimentConfig

def build(context: CliContext) -> ExperimentConfig:
    module = cookbook.configure_train_module(
        max_sequence_length=8192,
        rank_microbatch_size=8192 * 2,
        learning_rate=2e-4,
        scheduler=Linear(),
        MORE
    )
    return ExperimentConfig(
        model=TransformerConfig.olmo3_7B(vocab_size=100352),
        data_loader=NumpyDataLoaderConfig(global_batch_size=2**21),
        train_module=module,
    )
"""
WHY = "OLMo-core 2.3: configure_train_module of the cookbook"


@try_each(
    "more, asked, stated",
    [
        ("activation_memory_budget=0.5,", {"layout.zero", "training.recompute"}, {}),
        (
            "activation_memory_budget=1.0, cp_degree=4,",
            {"layout.zero"},
            {"training.recompute": "none", "layout.cp": "4", "context.algorithm": "allgather"},
        ),
        ("", {"layout.zero", "training.recompute"}, {"layout.cp": "1"}),
        ("float8_enabled=True,", {"layout.zero", "training.recompute", "precision"}, {}),
        (
            "activation_memory_budget=1, dp_shard_degree=64,",
            {"layout.zero", "sharding.shard"},
            {},
        ),
    ],
)
def test_a_module_of_the_cookbook_is_read(
    more: str, asked: set[str], stated: dict[str, str]
) -> None:
    """2 sequences of 8,192 a rank and 256 a step, and the weights are in bf16.

    A release has FSDP, another replicas of 32 shards; a release recomputes unless told otherwise.
    """
    text = COOKBOOK.replace("MORE", more)
    assert OlmoCore().recognizes("mid.py", text)
    found = OlmoCore().translate("mid.py", text)
    expected = {
        "training.sequence": "8192",
        "training.micro_batch": "2",
        "training.global_batch": "256 sequences",
        "kernels.mode": "compiled",
        **stated,
    }
    assert expected.items() <= settings(found).items()
    assert {one.attribute for one in found.questions} == asked
    assert not found.unknown
    types = [one for one in found.uses if one.value.endswith(".bf16_fsdp")]
    assert [one.assumption for one in types] == [WHY]


def test_one_of_several_functions_is_chosen() -> None:
    body = JOB[JOB.index("def build_config") :]
    text = f"{JOB}\n{body.replace('build_config', 'long').replace('or LENGTH', 'or 8192')}"
    (problem,) = OlmoCore().translate("train.py", text).problems
    assert "--recipe build_config | --recipe long" in problem.help
    chosen = OlmoCore().read(ImportFile("train.py", text, ImportOptions(recipe="long")))
    assert settings(chosen)["training.sequence"] == "8192"


PARTS = """
from olmo_core.config import DType
from olmo_core.distributed.parallel import DataParallelType as D
from olmo_core.internal.experiment import main

def model(common):
    return TransformerConfig.olmo2_1B(vocab_size=common.tokenizer.padded_vocab_size()%s)

def module(common):
    return TransformerTrainModuleConfig(
        rank_microbatch_size=16384, max_sequence_length=common.dataset.effective_sequence_length,
        optim=AdamWConfig(), dp_config=%s,
    )

def trainer(common):
    return TrainerConfig(rank_microbatch_size=8192).with_callback("x", Y())

def optimizer(common):
    return AdamWConfig(lr=1e-4)

main(global_batch_size=2**21, model_config_builder=model, trainer_config_builder=trainer, %s)
"""
SHARDS = "DP(name=D.fsdp, param_dtype=DType.bfloat16)"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (PARTS % ("", SHARDS, "train_module_config_builder=module"), 16_384),
        (PARTS % (f", dp_config={SHARDS}", "None", "optim_config_builder=optimizer"), 8_192),
    ],
    ids=["OLMo-core 2", "OLMo-core 1, without a training module"],
)
def test_functions_given_to_main_build_the_job(text: str, tokens: int) -> None:
    """2,097,152 tokens are 512 sequences of 4,096; 18 layers are those of olmo2_1B."""
    stated = text.replace("global_batch_size", "sequence_length=4096, global_batch_size")
    values = settings(OlmoCore().translate("train.py", stated.replace("2**21", "512 * 4096")))
    assert values["training.global_batch"] == "512 sequences"
    assert values["training.micro_batch"] == str(tokens // 4096)
    found = OlmoCore().translate("train.py", text.replace("2**21", "512 * 4096"))
    expected = {
        "model.layers": "18",
        "training.sequence": "4096",
        "training.micro_batch": f"{digits(tokens)} / training.sequence",
        "training.global_batch": "2_097_152 tokens",
        "training.recompute": "none",
        "layout.zero": "3",
    }
    assert OlmoCore().recognizes("train.py", text)
    assert expected.items() <= settings(found).items()
    assert "precisions.bf16_fsdp" in uses(found)
    assert not found.questions


@pytest.mark.parametrize(
    ("sizes", "micro_batch", "batch"),
    [
        ("global_batch_size=1024, microbatch_size=4", "4", "1024 sequences"),  # of 1.0
        ("global_batch_size=2**22, rank_microbatch_size=8192", "2", "1024 sequences"),  # of 1.1
    ],
)
def test_batch_sizes_of_the_trainer_are_read(sizes: str, micro_batch: str, batch: str) -> None:
    """OLMo-core 1.0 counts sequences, and 1.1 tokens: 2**22 of them are 1,024 sequences of 4,096."""
    text = PARTS % (f", dp_config={SHARDS}", "None", "optim_config_builder=optimizer")
    text = text.replace("rank_microbatch_size=8192", sizes).replace("global_batch_size=2**21, ", "")
    for given in ("", "sequence_length=4096, "):
        found = OlmoCore().translate("train.py", text.replace("main(", f"main({given}"))
        values = settings(found)
        assert not found.questions
        if given or "rank" not in sizes:  # tokens of an assumed length stay tokens
            assert values["training.micro_batch"] == micro_batch
            assert values["training.global_batch"] == batch


@pytest.mark.parametrize(
    ("given", "sequence", "vocabulary"),
    [
        ("", "OLMo-core 2.3: sequence_length is 4096", "OLMo-core 2.3: tokenizer is dolma2"),
        ("sequence_length=4096", None, "OLMo-core 2.3: tokenizer is dolma2"),
        ("tokenizer=TokenizerConfig.dolma2()", "OLMo-core 2.3: sequence_length is 4096", None),
    ],
)
def test_what_main_is_not_given_is_assumed(
    given: str, sequence: str | None, vocabulary: str | None
) -> None:
    """A default of OLMo-core is listed as one, and what the file states is not."""
    text = PARTS % ("", SHARDS, f"train_module_config_builder=module, {given}")
    found = OlmoCore().translate("train.py", text)
    assert (settings(found)["training.sequence"], settings(found)["model.vocabulary"]) == (
        "4096",
        "100_352",  # 100,278 tokens, up to a multiple of 128
    )
    why = assumptions(found)
    assert why.get("training.sequence") == sequence
    assert why.get("model.vocabulary") == vocabulary


@try_each(
    "size, micro_batch",
    [
        *(("2 * L", "2"), ("L * 2", "2"), ("L + L", "2"), ("3 * L - L", "2"), ("8 * L // 4", "2")),
        *(
            ("int(L * 4 / 2)", "2"),
            ("max(L, 2 * L)", "2"),
            ("12288 - L", "2"),
            ("2 * (L + 0)", "2"),
        ),
    ],
)
def test_arithmetic_on_a_default_length_is_assumed(size: str, micro_batch: str) -> None:
    """4,096 tokens are the default of a sequence, and 8,192 two of them."""
    text = PARTS % ("", SHARDS, "train_module_config_builder=module")
    length = size.replace("L", "common.dataset.effective_sequence_length")
    found = OlmoCore().translate("train.py", text.replace("=16384", f"={length}"))
    assert settings(found)["training.micro_batch"] == micro_batch
    why = "OLMo-core 2.3: sequence_length is 4096"
    assert assumptions(found)["training.micro_batch"] == why


def test_the_default_of_an_option_is_an_assumption() -> None:
    text = JOB.replace("opts.sequence_length or LENGTH", "opts.sequence_length")
    found = OlmoCore().translate("train.py", text + PARSER)
    why = assumptions(found)["training.sequence"]
    assert why == "`sequence_length` has this default in the file"


def test_a_batch_that_grows_raises_a_question() -> None:
    """Sequences of 4096 tokens: 512 and then 1024 of them."""
    callback = "BatchSizeSchedulerCallback(batch_sizes=[2**21, 2 * 2**21], schedule=[tokens(0), tokens(9)])"
    plain = PARTS % ("", SHARDS, "train_module_config_builder=module")
    grows = plain.replace("Y()", callback)
    assert "training.global_batch" not in questions_of(plain)
    assert questions_of(grows)["training.global_batch"] == (
        "--set 'training.global_batch=512 sequences'",
        "--set 'training.global_batch=1024 sequences'",
    )
    once = plain.replace("Y()", "BatchSizeSchedulerCallback(batch_sizes=[3 * 2**21])")
    found = settings(OlmoCore().translate("train.py", once))
    assert found["training.global_batch"] == "6_291_456 tokens"


@try_each(
    "old, new, attribute",
    [
        ("sequence_length=8192", "sequence_lenght=8192", "training.sequence"),
        ("train_module_config_builder", "train_modul_config_builder", "layout.zero"),
        ("batch_sizes", "batch_size", "training.global_batch"),
    ],
)
def test_a_misspelled_argument_raises_a_question(old: str, new: str, attribute: str) -> None:
    """The length was 4,096, the training module was missing, and the batch was that of `main`."""
    given = "sequence_length=8192, train_module_config_builder=module"
    text = PARTS % ("", SHARDS, given)
    text = text.replace("Y()", "BatchSizeSchedulerCallback(batch_sizes=[3 * 2**21])")
    assert not translate(OlmoCore(), Source("train.py", text)).questions
    found = translate(OlmoCore(), Source("train.py", text.replace(old, new, 1)))
    assert attribute in [one.attribute for one in found.questions]


def test_a_scheduler_of_batch_sizes_may_be_off() -> None:
    """2**21 tokens are the batch of `main`."""
    scheduler = "BatchSizeSchedulerCallback(batch_sizes=[3 * 2**21], enabled=%s)"
    plain = PARTS % ("", SHARDS, "train_module_config_builder=module")
    for state, batch in (("True", "6_291_456 tokens"), ("False", "2_097_152 tokens")):
        found = OlmoCore().translate("train.py", plain.replace("Y()", scheduler % state))
        assert settings(found)["training.global_batch"] == batch
        assert not found.questions


def test_functions_that_build_the_data_and_finish_the_job_are_followed() -> None:
    """The loader has half of the batch of `main`; the last function takes data parallelism away."""
    given = "train_module_config_builder=module, data_config_builder=data, finalize_config=finish"
    functions = (
        "def data(common):\n"
        "    loader = NumpyDataLoaderConfig(global_batch_size=common.global_batch_size // 2)\n"
        "    return DataComponents(dataset=X(), data_loader=loader)\n"
        "def finish(config):\n    config.train_module.dp_config = None\n"
    )
    text = PARTS % ("", SHARDS, given)
    found = OlmoCore().translate("train.py", functions + text)
    assert settings(found)["training.global_batch"] == "1_048_576 tokens"
    assert settings(found)["layout.zero"] == "0"
    found = OlmoCore().translate("train.py", text.replace("=finish", "=other.finish"))
    assert "finalize_config" in [one.name for one in found.missing]


def test_a_power_is_computed_and_a_vast_one_raises_a_question() -> None:
    text = PARTS % ("", SHARDS, "train_module_config_builder=module")
    found = settings(OlmoCore().translate("train.py", text))
    assert found["training.global_batch"] == "2_097_152 tokens"
    assert "training.global_batch" in questions_of(text.replace("2**21", "2**10**9"))


def questions_of(text: str) -> dict[str, tuple[str, ...]]:
    """Return the answers of each question, by attribute."""
    found = OlmoCore().translate("train.py", text)
    return {one.attribute: tuple(one.answers) for one in found.questions}


@try_each(
    "new, missing",
    [
        ("optim=SkipStepAdamWConfig(lr=3e-4, dtype=DType.float32),", []),
        ("optim=SkipStepAdamWConfig(lr=3e-4, dtype=DType.bfloat16),", ["train_module.optim.dtype"]),
        (f"{OPTIMIZER} pp_config=P(degree=2, schedule='1F1B', style=M.loop),", []),
        (
            f"{OPTIMIZER} pp_config=P(degree=2, schedule='1F1B', style=M.v),",
            ["train_module.pp_config.style"],
        ),
    ],
)
def test_arguments_that_no_attribute_has_are_listed(new: str, missing: list[str]) -> None:
    found = OlmoCore().translate("train.py", JOB.replace(OPTIMIZER, new))
    assert [one.name for one in found.missing] == missing
    assert not found.unknown


def test_types_of_the_model_and_degrees_of_another_release_raise_a_question() -> None:
    narrow = JOB.replace("olmo2_7B(", "olmo2_7B(dtype=DType.bfloat16, ")
    (question,) = OlmoCore().translate("train.py", narrow).questions
    assert question.attribute == "precision"
    later = JOB.replace(OPTIMIZER, f"{OPTIMIZER} tp_config=T(degree=4, width=2),")
    (question,) = OlmoCore().translate("train.py", later).questions
    assert question.attribute == "layout.tp"


def test_asynchronous_tensor_parallelism_overlaps() -> None:
    text = JOB.replace(OPTIMIZER, f"{OPTIMIZER} tp_config=T(degree=4, enable_async=True),")
    assert settings(OlmoCore().translate("train.py", text))["overlap.tensor"] == "pipelined"


@pytest.mark.parametrize("text", ["(-8) ** 0.5", "2 * (-8) ** (1 / 3)"])
def test_a_root_of_a_negative_number_in_a_file_has_no_value(text: str) -> None:
    """Python gives a complex number, which no setting can be."""
    with pytest.raises(UnreadError):
        static_value(ast.parse(text, mode="eval").body, {})
    assert static_value(ast.parse("(-8) ** 2", mode="eval").body, {}) == 64


FIRST = """\
from olmo_core.config import DType
from olmo_core.data import MemMapDatasetConfig, TokenizerConfig
from olmo_core.distributed.parallel import DataParallelConfig, DataParallelType
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.train import TrainerConfig

def build_config(run_name: str) -> ExperimentConfig:
    tokens = TokenizerConfig.dolma2()
    shards = DataParallelConfig(name=DataParallelType.fsdp, param_dtype=DType.bfloat16)
    return ExperimentConfig(
        run_name=run_name,
        model=TransformerConfig.llama2_7B(
            vocab_size=tokens.padded_vocab_size(), compile=True, dp_config=shards
        ),
        optim=AdamWConfig(lr=3e-4),
        dataset=MemMapDatasetConfig.from_data_mix(MIX, tokenizer=tokens, sequence_length=4096),
        trainer=TrainerConfig(global_batch_size=1024, microbatch_size=2).with_callback("a", b()),
    )
"""


def test_a_job_of_the_first_release_has_no_training_module() -> None:
    """A file without one was a program of no tool."""
    assert OlmoCore().recognizes("train.py", FIRST)
    found = OlmoCore().translate("train.py", FIRST)
    expected = {
        "training.sequence": "4096",
        "training.micro_batch": "2",
        "training.global_batch": "1024 sequences",
        "layout.zero": "3",
        "kernels.mode": "compiled",
    }
    assert expected.items() <= settings(found).items()
    assert not found.questions
    assert not found.unknown


OWN = """
TOKENIZER = TokenizerConfig.dolma2()

@dataclass
class StudyConfig(Config):
    model: TransformerConfig
    trainer: TrainerConfig

def build_config("""


def test_a_job_may_be_a_class_of_the_file_with_objects_of_its_module() -> None:
    """The class has another name, and the tokenizer is made outside the function."""
    text = JOB.replace("ExperimentConfig", "StudyConfig").replace("\ndef build_config(", OWN)
    text = text.replace("tokenizer.padded", "TOKENIZER.padded")
    found = OlmoCore().translate("train.py", text)
    assert settings(found) == settings(OlmoCore().translate("train.py", JOB))
    assert not found.problems


def test_a_data_set_has_the_length_that_it_states() -> None:
    data = "data = NumpyDatasetConfig(name=N.fsl, sequence_length=2048)\n    module ="
    text = JOB.replace("module =", data).replace("=length,", "=data.effective_sequence_length,")
    assert settings(OlmoCore().translate("train.py", text))["training.sequence"] == "2048"


def test_a_program_without_a_job_says_what_is_read_in_its_place() -> None:
    (problem,) = (
        OlmoCore().translate("train.py", JOB.replace("-> ExperimentConfig", "-> Job")).problems
    )
    assert "no function of the file returns an `ExperimentConfig`" in problem.message
    assert "parcost eval config.json" in problem.help


def test_a_function_without_an_annotation_makes_the_job() -> None:
    plain = OlmoCore().translate("train.py", JOB)
    found = OlmoCore().translate("train.py", JOB.replace(" -> ExperimentConfig", ""))
    assert settings(found) == settings(plain)
    assert not found.problems


def test_a_model_that_an_option_names_has_the_default_of_the_option() -> None:
    option = '    parser.add_argument("--model-factory", default=FACTORY)\n'
    option += '    parser.add_argument("--sequence-length", type=int, default=2 * 2048)\n'
    option += '    parser.add_argument("--save-folder", default=None)\n'
    text = JOB.replace(BUILT, f"factory = getattr(TransformerConfig, opts.factory)\n    {BUILT}")
    text = text.replace("TransformerConfig.olmo2_7B(vocab", "factory(vocab")
    head = 'FACTORY = "olmo2_7B"\n\n\ndef parse():\n    parser = argparse.ArgumentParser()\n'
    text = text.replace("def build_config", f"{head}{option}\n\ndef build_config", 1)
    text = text.replace("opts.factory", "opts.model_factory")
    found = OlmoCore().translate("train.py", text)
    assert "models.olmo2_7b" in uses(found)
    assert settings(found)["training.sequence"] == "4096"
    assert assumptions(found)["training.sequence"].startswith("`sequence_length` has this default")
    assert not found.questions


@try_each(
    "statement, micro_batch",
    [
        ("assert isinstance(module, TransformerTrainModuleConfig)", "2"),
        ("print(len(module), hasattr(module, 'x'), type(module))", "2"),
        ("module.rank_microbatch_size = 4096 * len([1, 2, 3])", "3"),
        ("if hasattr(module, 'dp_config'): module.rank_microbatch_size = 4096", "1"),
        # conditions that the file does not decide, and changes that are not followed
        ("if hasattr(module, 'other'): module.rank_microbatch_size = 4096", None),
        ("if isinstance(module, X): module.rank_microbatch_size = 4096", None),
        ("if len(overrides) > 1: module.rank_microbatch_size = 4096", None),
        ("module.rank_microbatch_size = len(module)", None),
        ("setattr(module, opts.name, 4096)", None),
        ("getattr(module, opts.name).x = 4096", None),
        ("module.__dict__['rank_microbatch_size'] = 4096", None),
        ("module.update(rank_microbatch_size=4096)", None),
        ("x = isinstance(change(module), int)", None),
    ],
)
def test_a_check_of_an_object_changes_nothing_and_another_call_may(
    statement: str, micro_batch: str | None
) -> None:
    """8,192 tokens of a rank are 2 sequences of 4,096."""
    text = JOB.replace("    return Exp", f"    {statement}\n    return Exp")
    found = OlmoCore().translate("train.py", text)
    assert settings(found).get(MICRO) == micro_batch
    asked = [one.attribute for one in found.questions]
    assert (MICRO in asked) is (micro_batch is None)
    assert asked if micro_batch is None else not asked
