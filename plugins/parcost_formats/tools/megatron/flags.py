"""Flags of a command line, and of its launcher."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from parcost import ImportFile, ImportProblem, did_you_mean
from parcost_formats.tools.collector import TRUTHS
from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.keys import keys_of
from parcost_formats.tools.shell.launches import open_words
from parcost_formats.tools.shell.script_files import help_to_choose, read_script_file
from parcost_formats.tools.shell.scripts import (
    ARGUMENTS,
    Script,
    ScriptCall,
    ShellField,
    read_arguments,
)
from parcost_formats.tools.tables import is_ignored, table

_EMPTY = re.compile(r"""[ \t=]*["']?\$\{?([A-Za-z_]\w*|\d+)(?=[}\s"']|$)""")
_MANY_WORDS = re.compile(r"\$\{?\w+(?:\[[@*]\])?\}?|\$\(.*\)|`.*`", re.DOTALL)
_OF_ROCM = re.compile(r"\b(?:HSA_|RCCL_|HIP_|HIPBLAS|TE_HIPBLASLT|NVTE_CK_)|\brocm\b")
_Namer: TypeAlias = "Callable[[str], str]"
_CLOSE = 20  # number of unknown flags with a suggestion
NO_FLAG = "a value without a flag"
_VARIABLES_OF_SWIFT = {"NPROC_PER_NODE": "nproc-per-node", "NNODES": "nnodes"}
# Options of `torchrun` that a file of arguments may have.
_OF_TORCHRUN = (
    *("nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port"),
    *("rdzv_id", "rdzv_backend", "rdzv_endpoint", "rdzv_conf"),
)
_LAUNCHERS = {"torchrun", "srun", "python", "python3", "mpirun", "mpiexec", "deepspeed"}


class CommandLine(NamedTuple):
    """The flags by name, the flags of the *launcher*, and errors.

    *strays* are words that belong to no flag, and *repeated* flags occur twice. *conditional* flags
    are set in branches whose test is undecided. *entry* is the training script. A *partial* file
    has only a model. A *swift* command starts ms-swift.
    """

    options: Mapping[str, Option]
    launcher: Mapping[str, Option]
    strays: Sequence[Option]
    repeated: Sequence[Option]
    problems: Sequence[ImportProblem]
    script: Script | None = None
    conditional: Sequence[Option] = ()
    entry: Option | None = None
    partial: bool = False
    swift: bool = False


def command_line(file: ImportFile) -> CommandLine:
    """Return the flags of a script, or of a bare list of arguments.

    Raises:
        ShellTextError: The text is neither a script nor a list of arguments.
    """
    if _is_list(file.text):
        return _without_command(_read(read_arguments(file.text), ()))
    script = read_script_file(file)
    calls = [call for call in script.commands if _is_launch(call)]
    if not calls:  # a file of variables, for another one to use
        names = [name for name in script.variables if name not in dict(file.options.environment)]
        line = _read(_stored_flags(script, names), (), ordered=False)
        partial = not _OF_TRAINING.intersection(line.options)
        conditional = _conditional(script.conditional)
        line = _without_command(line)
        return line._replace(script=script, conditional=conditional, partial=partial)
    words = open_words(calls[0].words)
    swift = _is_swift(words)
    line = _read(*_split(words, calls[0].conditional), valued=swift)
    others = [
        call
        for call in calls[1:]
        if [word.text for word in open_words(call.words)] != [word.text for word in words]
    ]
    answers = dict.fromkeys(
        answer for call in calls if call.decision for answer in call.decision.answers
    )
    help = help_to_choose(file, [calls[0], *others])
    help = f"choose one: {' | '.join(answers)}" if answers else help
    twice = [
        ImportProblem(
            message="an earlier command also has arguments of Megatron-LM",
            start=start,
            end=end,
            help=help,
        )
        for start, end in dict.fromkeys(call.place for call in others)
    ]
    line = _with_empty_variables(line, script, file.text)
    script = script.start_from(calls[0].written, calls[0].folder)
    return line._replace(
        launcher={**(_ranks(script, calls[0]) if swift else {}), **line.launcher},
        script=script,
        problems=[*line.problems, *twice],
        conditional=_conditional([word for call in calls for word in call.conditional]),
        entry=_entry(words),
        swift=swift,
    )


def _without_command(line: CommandLine) -> CommandLine:
    """Return a line in which options of `torchrun` are those of the launcher."""
    launcher = {name: one for name, one in line.options.items() if name in _OF_TORCHRUN}
    options = {name: one for name, one in line.options.items() if name not in launcher}
    moved = {name.replace("_", "-"): one for name, one in launcher.items()}
    return line._replace(options=options, launcher={**line.launcher, **moved})


def _stored_flags(script: Script, names: Iterable[str]) -> Sequence[ShellField]:
    """Return the flags in variables, each with the words after it; repeated flags once."""
    found: list[ShellField] = []
    seen: set[tuple[int, int, str]] = set()
    for name in names:
        is_new = False
        for field in script.fields(name):
            if _is_flag(field):
                place = (field.start, field.end, field.text)
                is_new = place not in seen
                seen.add(place)
            if is_new:
                found.append(field)
    return found


def _with_empty_variables(line: CommandLine, script: Script, text: str) -> CommandLine:
    """Return the line with a reason for each flag whose value is an empty variable."""
    switches = switch_names()

    def ask(option: Option) -> Option:
        found = _EMPTY.match(text, option.end) if not option.texts and option.end else None
        if found is None or option.unread or option.name in switches:
            return option
        name = found[1]
        if name in script.variables and script.fields(name):
            return option  # a switch, and a variable with other flags
        why = f"`{name}` has no value in the file" if not name.isdigit() else ""
        return option.evolve(
            unread=why or f"argument {name} of the script has no value",
            answers=(f"--set-env {name}=VALUE",),
        )

    options = {name: ask(option) for name, option in line.options.items()}
    attention = options.get("attention_backend")
    if attention is not None and attention.texts == ("fused",) and _OF_ROCM.search(text):
        options["attention_backend"] = attention.evolve(texts=("auto",))  # not cuDNN there
    launcher = {name: ask(option) for name, option in line.launcher.items()}
    return line._replace(options=options, launcher=launcher)


def _ranks(script: Script, call: ScriptCall) -> dict[str, Option]:
    """Return the variables with which ms-swift starts ranks, as launcher options."""
    found: dict[str, Option] = {}
    for variable, name in _VARIABLES_OF_SWIFT.items():
        field = call.environment.get(variable)
        stored = script.variables.get(variable)
        if field is None and stored is not None and stored.exported:
            field = next(iter(script.fields(variable)), None)
        if field is not None:
            found[name] = variable_option(name, variable, field)
    return found


def variable_option(name: str, variable: str, field: ShellField) -> Option:
    """Return the option *name*, which a variable of the environment sets to *field*."""
    return Option(
        name=name,
        key=variable,
        texts=(field.text,),
        start=field.start,
        end=field.end,
        unread=field.unread,
        assumption=field.assumption,
        answers=field.answers,
    )


def _conditional(fields: Sequence[ShellField]) -> Sequence[Option]:
    """Return the flags that a script sets in branches whose test is undecided."""
    flags, _ = _flags(fields, _name)
    return flags


def _is_launch(call: ScriptCall) -> bool:
    return any(map(_is_known, [*open_words(call.words), *call.conditional]))


def _is_swift(command: Sequence[ShellField]) -> bool:
    """Return whether a command starts ms-swift, such as ``megatron sft``."""
    return any(
        one.text.rpartition("/")[2] == "megatron" and two.text in ("sft", "pt", "rlhf")
        for one, two in pairwise(command)
    )


def _entry(command: Sequence[ShellField]) -> Option | None:
    """Return the training script in a command."""
    field = next((one for one in command if one.text.endswith(".py")), None)
    if field is None or field.text.startswith("-"):
        return None
    shown = field.text.rpartition("/")[2]
    return Option(name="", key=shown, texts=(field.text,), start=field.start, end=field.end)


def similar(options: Iterable[Option]) -> Mapping[str, str]:
    """Return the known flag that each unknown flag resembles, by name."""
    known = [f"--{name.replace('_', '-')}" for name in sorted(known_flags())]
    few = list(options)[:_CLOSE]
    found = {option.name: did_you_mean(option.key[:60], known) for option in few}
    return {name: hint for name, hint in found.items() if hint}


@cache
def switch_names() -> frozenset[str]:
    """Return the names of flags that take no value, of Megatron-LM and of MindSpeed."""
    own = table("megatron_tools")["mindspeed"]["switches"]
    return frozenset([*table("megatron")["switches"]["names"], *own])


def list_unread(draft: Draft, option: Option, rule: str | Mapping[str, Any]) -> None:
    """Record an unsupported flag, or ignore it if ``keep`` of *rule* lists its value."""
    if isinstance(rule, str):
        draft.leave(option, rule)
    elif option.text in rule["keep"]:
        draft.ignore(option)
    else:
        draft.leave(option, str(rule["why"]))


@cache
def known_flags() -> frozenset[str]:
    """Return the names of all flags in the table."""
    tables = table("megatron")
    lists = (tables["switches"]["names"], tables["reasons"], tables["unread"], tables["rejected"])
    plain = [name for name in tables["ignored"]["names"] if not name.endswith("*")]
    return frozenset([*_NUMBERS, *plain, *(name for one in lists for name in one)])


def is_known(name: str) -> bool:
    """Return whether any tabulated release has a flag."""
    return name in known_flags() or name in keys_of("megatron") or is_ignored("megatron", name)


# Flags that a file of a model alone does not have.
_OF_TRAINING = frozenset(
    ("tensor_model_parallel_size", "micro_batch_size", "global_batch_size", "seq_length", "bf16")
)
#: Flags with several values.
_LISTS = frozenset(
    [
        *("cp_comm_type", "recompute_modules", "hierarchical_context_parallel_sizes"),
        *("window_size", "cuda_graph_scope", "data_path", "train_data_path", "split"),
    ]
)
#: Flags whose value is one word, also if it is a list.
PATTERNS = ("moe_layer_freq", "window_attn_skip_freq", "linear_attention_freq")
# Flags with values that modules of this package read.
_NUMBERS = (
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels"),
    *("ffn_hidden_size", "vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by"),
    *("tokenizer_type", "normalization", "position_embedding_type", "max_position_embeddings"),
    *("window_size", "window_attn_skip_freq", "softmax_type", "mtp_num_layers", "q_lora_rank"),
    *("activation_func_clamp_value", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim"),
    *("v_head_dim", "num_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq"),
    *("moe_shared_expert_intermediate_size", "moe_token_dispatcher_type", "moe_deepep_num_sms"),
    *("moe_flex_dispatcher_backend", "moe_hybridep_num_sms", "moe_expert_capacity_factor"),
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("expert_model_parallel_size", "expert_tensor_parallel_size", "cp_comm_type"),
    *("data_parallel_sharding_strategy", "num_distributed_optimizer_instances"),
    *("hierarchical_context_parallel_sizes", "pipeline_model_parallel_layout"),
    *("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage"),
    *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
    *("microbatch_group_size_per_virtual_pipeline_stage", "fp8_format", "fp8_recipe"),
    *("fp4_format", "fp4_recipe", "main_grads_dtype", "main_params_dtype", "exp_avg_dtype"),
    *("exp_avg_sq_dtype", "optimizer", "num_layers_at_start_in_bf16", "seq_length"),
    *("num_layers_at_end_in_bf16", "micro_batch_size", "global_batch_size", "hidden_dropout"),
    *("attention_dropout", "recompute_granularity", "recompute_method", "recompute_num_layers"),
    *("recompute_modules", "ddp_bucket_size", "cpu_offloading_num_layers", "attention_backend"),
    *("optimizer_offload_fraction", "flash_attention_version", "cuda_graph_impl"),
    *("cuda_graph_scope", "cross_entropy_fusion_impl", "zero_stage", "pp_partition_method"),
    *("expert_interval", "schedules_method", "attention_head_type", "glu_activation"),
)


def _is_list(text: str) -> bool:
    """Return whether a text consists of arguments only."""
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words:
            return words[0].startswith("--")
    return False


def _is_known(field: ShellField) -> bool:
    return field.text.startswith("--") and _name(field.text) in _NUMBERS


def _split(
    command: Sequence[ShellField], conditional: Sequence[ShellField]
) -> tuple[Sequence[ShellField], Sequence[ShellField]]:
    """Return the arguments of the training script, and the words before it."""
    for place, (one, two) in enumerate(pairwise(command)):
        if _is_swift((one, two)):
            return command[place + 2 :], command[: place + 2]
    for place, field in enumerate(command):
        if field.text.endswith(".py") and not field.text.startswith("-"):
            return command[place + 1 :], command[:place]
    names = known_flags()
    found = (place for place, field in enumerate(command) if _name(field.text) in names)
    first = next(found, 0 if conditional else len(command))
    return command[first:], command[:first]


def read_launcher(words: Sequence[ShellField]) -> dict[str, Option]:
    """Return the flags ahead of a program by name, and the launchers among the words."""
    flags, _ = _flags(words, _launcher_name)
    found = {option.name: option for option in flags}
    for field in words:  # which launcher it is
        name = field.text.rpartition("/")[2]
        if name in _LAUNCHERS and name not in found:
            found[name] = Option(name=name, key=name, start=field.start, end=field.end)
    return found


def _read(
    words: Sequence[ShellField],
    ahead: Sequence[ShellField],
    *,
    ordered: bool = True,
    valued: bool = False,
) -> CommandLine:
    """Return the flags of *words*; the last of repeated flags wins, as in Megatron-LM.

    Words that are not *ordered* come from several variables, so no flag is the last. Switches that
    are *valued* are followed by a word.
    """
    launcher = read_launcher(ahead)
    flags, strays = _flags(words, _name, valued=valued)
    options: dict[str, Option] = {}
    repeated: list[Option] = []
    problems: list[ImportProblem] = []
    for option in flags:
        first = options.setdefault(option.name, option)
        if first is option:
            continue
        if first.texts == option.texts or _has_no_effect(option.name):
            repeated.append(option.evolve(assumption="it is set twice"))
        elif ordered and first.key == option.key:
            one, other = (" ".join(it.texts)[:40] or "set" for it in (first, option))
            why = (
                f"`{first.key}` is set twice, first {one} and then {other}: the last value is used"
            )
            repeated.append(first.evolve(assumption=why))
            options[option.name] = option
        else:
            repeated.append(first.evolve(assumption="it is set twice"))
            problems += _conflict(first, option)
    return CommandLine(options, launcher, strays, repeated, problems)


def _has_no_effect(name: str) -> bool:
    return is_ignored("megatron", name) or name in table("megatron")["reasons"]


def _conflict(first: Option, second: Option) -> Iterator[ImportProblem]:
    """Yield an error at both occurrences of a flag with two values."""
    one, other = (" ".join(option.texts)[:40] or "set" for option in (first, second))
    for here, place, there in ((one, first, other), (other, second, one)):
        yield ImportProblem(
            message=f"`{place.key}` is {here} here, but {there} elsewhere in the file",
            start=place.start,
            end=place.end,
            help="keep only one of them",
        )


def _name(key: str) -> str:
    """Return the name of a flag as in the table.

    >>> _name("--encoder-num-layers=4")
    'num_layers'
    """
    name = key.partition("=")[0].lstrip("-").replace("-", "_")
    return str(table("megatron")["aliases"].get(name, name))


def _launcher_name(key: str) -> str:
    return key.partition("=")[0].lstrip("-").replace("_", "-")


def _flags(
    words: Sequence[ShellField], name: _Namer, *, valued: bool = False
) -> tuple[Sequence[Option], Sequence[Option]]:
    """Return the flags with their values, and the words that belong to no flag.

    Switches that are *valued*, as in ms-swift, are followed by a word, known or not.
    """
    switches = switch_names()
    flags: list[Option] = []
    strays: list[Option] = []
    run: list[ShellField] = []

    def finish() -> None:
        if run:
            flags.append(_option(run, name))
            run.clear()

    for word in words:
        if _is_flag(word):
            finish()
            run.append(word)
        elif (
            run
            and word.unread != ARGUMENTS  # which follow the flags of the script
            and not (len(run) > 1 and _is_variable(word) and name(run[0].text) not in _LISTS)
            and (
                name is not _name
                or _name(run[0].text) not in switches
                or (len(run) == 1 and _is_truth(word, valued=valued))
            )
        ):
            run.append(word)
        else:
            finish()
            why = word.unread or NO_FLAG
            key = word.text[:60]
            place = Option(name="", key=key, start=word.start, end=word.end, unread=why)
            strays.append(place.evolve(answers=word.answers))
    finish()
    return flags, strays


def _is_truth(word: ShellField, *, valued: bool) -> bool:
    """Return whether the word after a switch is the value of the switch."""
    return word.text in ("true", "false") or (
        valued and (bool(word.unread) or word.text.lower() in TRUTHS)
    )


def _is_variable(word: ShellField) -> bool:
    """Return whether a word is a variable or output of unknown value, which may hold flags."""
    return bool(word.unread) and _MANY_WORDS.fullmatch(word.text) is not None


def _option(run: Sequence[ShellField], name: _Namer) -> Option:
    """Return a flag with its values."""
    first, *rest = run
    key, equals, value = first.text.partition("=")
    texts = (*((value,) if equals else ()), *(field.text for field in rest))
    if len(texts) == 1 and name is _name and name(key) in switch_names():
        truth = TRUTHS.get(texts[0].lower())
        texts = texts if truth is None else (str(truth).lower(),)
    adjacent = all(one.end <= two.start for one, two in pairwise(run))
    return Option(
        name=name(key),
        key=key,
        texts=texts,
        start=first.start,
        end=run[-1].end if adjacent else first.end,
        unread=next((field.unread for field in run if field.unread), ""),
        assumption=next((field.assumption for field in run if field.assumption), ""),
        answers=next((field.answers for field in run if field.unread), ()),
    )


def _is_flag(word: ShellField) -> bool:
    """Return whether a word is a flag rather than a negative number."""
    text = word.text
    return text.startswith("--") or (text[:1] == "-" and text[1:2].isalpha())
