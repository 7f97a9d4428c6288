"""Configurations that a launch script writes, edits or finds in other folders."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile, Translation
from parcost.contract.importers import PLAIN

from ..rows import mark_most, try_each
from .finetuning_files import DEEPSPEED, ON_DISK, TRL, TRL_YAML, importer_of, read
from .translations import assumptions, settings


def test_an_unknown_value_of_a_written_file_leaves_the_others_known() -> None:
    """The date in the name of a folder decides nothing, and a variable of the batch does."""
    script = """cat > sft.yaml <<END
model_name_or_path: Qwen/Qwen3-4B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_length: 2048
dtype: bfloat16
bf16: true
use_peft: true
lora_r: 8
lora_target_modules: all-linear
output_dir: out_$(date +%s)
END
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train_sft.py --config sft.yaml
"""
    found = settings(read("trl", TRL, script))
    assert found["training.micro_batch"] == "2"
    assert found["adapters.rank"] == "8"
    (problem,) = read("trl", TRL, script.replace("size: 2", "size: $BATCH")).problems
    assert problem.message.startswith("`per_device_train_batch_size`: `BATCH` is not set")
    assert "--set-env BATCH=" in problem.help
    engine = """cat > fsdp.yaml <<END
distributed_type: FSDP
num_processes: $RANKS
fsdp_config: {fsdp_sharding_strategy: NO_SHARD}
END
"""
    launch = TRL.replace("--num_processes 8", "--config_file fsdp.yaml")
    known = read("trl", TRL, engine + launch)
    assert not known.questions
    assert settings(known)["layout.zero"] == "0"
    asked = read("trl", TRL, engine.replace("NO_SHARD", "$KIND") + launch).questions
    assert "which the script writes with text" in asked[0].reason


def test_an_unknown_value_of_a_key_that_the_tool_lacks_is_an_unknown_key(
    run_command: Callable[..., Any],
) -> None:
    """A name that decides nothing is listed; one that may decide a cost is asked for."""
    launch = "torchrun --nproc_per_node 2 own.py --model_name_or_path Qwen/Qwen3-4B --bf16 true "
    launch += "--per_device_train_batch_size 2 --max_length 512 --dtype bfloat16"
    found = read("trl", TRL, f"{launch} --answers_file $ANSWERS\n")
    assert "answers_file" in [one.name for one in found.unknown]
    assert not found.problems
    assert not found.questions
    script = f"{launch} --tensor_ranks $RANKS\n"
    done = run_command("check", "run.sh", files={"run.sh": script})
    assert "`layout.tp` is not known: `tensor_ranks`, which is not in" in done.out


def test_files_that_a_script_writes_are_read() -> None:
    """A here-document names another one: ZeRO 3 on 16 processes; one of two is not guessed."""
    files = """cat <<EOF > conf/run.yaml
distributed_type: DEEPSPEED
deepspeed_config: {deepspeed_config_file: ./ds.json}
num_processes: 16
mixed_precision: bf16
EOF
STAGE=${STAGE:-3}
tee ds.json <<EOF
{"bf16": {"enabled": true}, "zero_optimization": {"stage": $STAGE}}
EOF
"""
    launch = TRL.replace("--num_processes 8", "--config_file conf/run.yaml")
    one = importer_of("trl")
    found = one.read(ImportFile("run.sh", files + launch))
    assert not found.questions
    values = settings(found)
    assert (values["layout.zero"], values["cluster.devices"]) == ("3", "16")
    other = files.replace('"stage": $STAGE', '"stage": 2').replace("STAGE=${STAGE:-3}\n", "")
    either = f"if [ $BIG = 1 ]; then\n{files}else\n{other}fi\n"
    (asked,) = one.read(ImportFile("run.sh", either + launch)).questions
    assert asked.attribute == "layout.zero"
    assert (
        "`./ds.json`, which the script writes with text that depends on a condition" in asked.reason
    )


WRITTEN = """cat > ds.json <<EOF
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}
EOF
"""


@try_each(
    "command",
    [
        *("sed -i s/2/$Q/ ds.json", "python gen.py > ds.json", "cp zero3.json ds.json"),
        *("mv t ds.json", "curl -o ds.json https://a.b/c", "curl -ods.json https://a.b/c"),
        *("wget https://a.b/ds.json", "jq .x ds.json > t && mv t ds.json", "cp conf/ds.json ."),
        *("python gen.py --out=ds.json", "jq .x t | tee ds.json", "(sed -i s/2/$Q/ ./ds.json)"),
        *("printf '{}' > ds.json", "{ cat a; cat b; } > ds.json", "cp t $DIR/ds.json", "> ds.json"),
        *(
            "python - <<E\nopen('ds.json', 'w')\nE",
            "bash -c 'cat t > ds.json'",
            "cp -t . x/ds.json",
        ),
        *(
            "sed -i s/2/3/ $F",
            'sed -i s/2/3/ "$D/$N.json"',
            "patch -p1 < a.diff",
            "git apply a.diff",
        ),
        *("git checkout ds.json", "ed ds.json <<E\n1d\nE", "sd 2 3 ds.json", "git stash"),
        *("git checkout -- .", "git reset --hard", "git restore .", "rm -f ds.json"),
        "python - <<E\np = 'ds.json'\njson.dump(c, open(p, 'w'))\nE",
        *("f() { sed -i s/2/$Q/ $1; }\nf ds.json", "for i in 1 2; do cat $i >> ds.json; done"),
        *("if [ $X = 1 ]; then sed -i s/2/3/ ds.json; fi", "sed -i 's/2/3/' *.json"),
    ],
)
def test_a_written_file_that_a_later_command_may_change_is_not_read(command: str) -> None:
    """The stage that the here-document has may be another one at the launch."""
    one = importer_of("trl")
    beside = {"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}}'}
    file = ImportFile("run.sh", f"{WRITTEN}{command}\n{DEEPSPEED}", PLAIN, beside.get)
    found = one.read(file)
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "ds.json`, " in asked.reason
    if "if" not in command:
        assert re.search(r" in line [4-6] may change it$", asked.reason)
    again = one.read(ImportFile("run.sh", f"{command}\n{WRITTEN}{DEEPSPEED}", PLAIN, beside.get))
    assert settings(again)["layout.zero"] == "2"


@try_each(
    "command",
    [
        *(
            "cat ds.json",
            "echo ds.json",
            "ls -l ds.json",
            "[ -f ds.json ] || exit 1",
            "jq . ds.json",
        ),
        *("cp ds.json out/", "cp ds.json $OUT/ds.json", "sed -n 1p ds.json", "python gen.py > log"),
        *("git checkout main", "patch src/a.py < a.diff", "sed -i s/2/3/ $DIR/run.py"),
        *(
            "rm -rf out *.pt",
            "timeout 5 cat log",
            "python -c \"print('a.json'.replace('a', 'b'))\"",
        ),
        *("cp t out/ds.json", "chmod 644 ds.json", "python gen.py my_ds.json ds.json.bak"),
        *("for i in 1 2; do cat ds.json; done", "cat ds.json | tee log", "sed s/2/3/ ds.json > t"),
    ],
)
def test_a_command_that_only_reads_a_written_file_leaves_it(command: str) -> None:
    one = importer_of("trl")
    script = f"{WRITTEN}{command}\n{DEEPSPEED}mv ds.json out\nrm -f ds.json\n"
    assert settings(one.read(ImportFile("run.sh", script)))["layout.zero"] == "2"


@try_each(
    "command, zero",
    [
        *(("cd conf", "3"), ("cd other", "2"), ("cd conf\ncd ..", "2")),
        *(("cp conf/ds.json ./", "3"), ("cp -f conf/ds.json new\ncd new", "3")),
        *(("cp conf/ds.json new/", "2"), ("cp conf/ds.json new/\ncd new", "3")),
    ],
)
def test_a_launch_reads_a_file_in_its_folder_before_one_beside_the_script(
    command: str, zero: str
) -> None:
    one = importer_of("trl")
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": STAGE}}'
    beside = {f"{at}ds.json": text.replace("STAGE", n) for at, n in (("", "2"), ("conf/", "3"))}
    found = one.read(ImportFile("run.sh", f"{command}\n{DEEPSPEED}", PLAIN, beside.get))
    assert settings(found)["layout.zero"] == zero


@try_each(
    "command, why",
    [
        *(
            (one, f"`{shown}` in line 1 changes to an unknown folder")
            for one, shown in (
                ("[ -d conf ] && cd conf", "cd conf"),
                ("if [ $BIG = 1 ]; then cd conf; fi", "cd conf"),
                *((one, one) for one in ("cd con*", "cd $X", "cd", "cd $PWD/$X")),
                ("for i in *; do cd $i; done", "cd $i"),
            )
        ),
        *(
            (f"{one}\n{then}", f"`{one}` in line 1 may change it")
            for one in (
                *("tar xf a.tar -C conf", "unzip a.zip -d conf", "ln -sfn $Z conf", "mv z3 conf"),
                *("cp -r z3/. conf/", "rsync -a z3/ conf", "aws s3 sync s3://a/b conf"),
                *("cp -r $X/conf .", "rm -rf conf", "mv conf old"),
            )
            for then in ("cd conf", ":")
        ),
        *(
            (one, f"`{one}` in line 1 may change it")
            for one in ("tar xzf a.tgz", "unzip a.zip", "curl -LO https://a.b/ds.json")
        ),
    ],
)
def test_a_folder_that_is_not_known_or_changes_has_no_known_file(command: str, why: str) -> None:
    """The file beside the script may be another one, so the stage is asked for."""
    one = importer_of("trl")
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    beside = {"ds.json": text, "conf/ds.json": text}
    place = "conf/ds.json" if command.endswith(":") else "ds.json"
    launch = DEEPSPEED.replace("ds.json", place)
    found = one.read(ImportFile("run.sh", f"{command}\n{launch}", PLAIN, beside.get))
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert asked.reason == f"`deepspeed` names `{place}`, and {why}"


@try_each(
    "command, zero",
    [
        *(("cd $SLURM_SUBMIT_DIR", "2"), ("cd $PWD/conf", "3"), ("(cd $X; make)", "2")),
        *(("pushd $X; popd", "2"), ("tar cf a.tar conf", "2"), ("cd conf; cd ../conf", "3")),
        *(("tar xf a.tar -C data", "2"), ("mv log out/; cd conf", "3"), ("mv conf old", "2")),
        *(("ln -s /data/x data", "2"), ("tar xf a.tar a.txt", "2"), ("rm -rf out", "2")),
    ],
)
def test_a_folder_that_is_known_has_its_file(command: str, zero: str) -> None:
    one = importer_of("trl")
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": STAGE}}'
    beside = {f"{at}ds.json": text.replace("STAGE", n) for at, n in (("", "2"), ("conf/", "3"))}
    found = one.read(ImportFile("run.sh", f"{command}\n{DEEPSPEED}", PLAIN, beside.get))
    assert settings(found)["layout.zero"] == zero
    assert "layout.zero" not in assumptions(found)


@try_each("named", ["cd /opt/x\n", "cd other\n", "cd ~\n", "other/"])
def test_a_file_that_stands_in_for_another_is_an_assumption(named: str) -> None:
    """The named file is in a folder that is not beside the script; one of its name is."""
    one = importer_of("trl")
    beside = {"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'}
    launch = DEEPSPEED if "cd" in named else DEEPSPEED.replace("ds.json", f"{named}ds.json")
    script = f"{named if 'cd' in named else ''}{launch}"
    found = one.read(ImportFile("run.sh", script, PLAIN, beside.get))
    assert settings(found)["layout.zero"] == "2"
    assert "beside" in assumptions(found)["layout.zero"]


def read_on_disk(command: str) -> Translation:
    """Return the job of a script that runs *command* on files beside it ahead of the launch."""
    one = importer_of("trl")
    return one.read(ImportFile("run.sh", f"{command}\n{DEEPSPEED}", PLAIN, ON_DISK.get))


@try_each(
    "command",
    [
        'sed -i \'s/"stage": [0-9]/"stage": 3/\' ds.json',
        'S=3\nsed -i.bak -E "s#(x)?2#$S#g; s/true/true/" ./ds.json'.replace("(x)?", ""),
        *("cp zero3.json ds.json", "mv -f zero3.json ./ds.json", "cat zero3.json > ds.json"),
        "export STAGE=3\nenvsubst < form.json > ds.json",
        "STAGE=3 envsubst '$STAGE' < form.json > ds.json",
        "jq '.zero_optimization.stage = 3 | .a.b = \"c\"' ds.json > t && mv t ds.json",
        "jq --argjson s 3 '.zero_optimization.stage=$s' ds.json > t.json; cp t.json ds.json",
        "f() { sed -i s/2/3/ $1; }\nf ds.json",
        "S=3\nsed 's/${STAGE}/STAGE/' form.json |\n  sed \"s/STAGE/$S/\" | cat > ds.json",
        "sed s/2/4/ < ds.json | sed -e s/4/3/ > t.json; cat t.json > ds.json",
        *(
            "sed 's/2/3/' ds.json > t && mv t ds.json",
            "sed s/2/3/ < ds.json > new.json; mv new.json ds.json",
        ),
    ],
)
def test_a_file_beside_a_script_is_read_behind_a_constant_edit(command: str) -> None:
    """The file has stage 2, and the launch gets stage 3."""
    values = settings(read_on_disk(command))
    assert values["layout.zero"] == "3"


@try_each(
    "command",
    [
        *("sed -i s/2/$Q/ ds.json", "sed -i 's/\\(2\\)/\\1/' ds.json", "sed -i 's/2/3/' *.json"),
        *("cp $DIR/a.json ds.json", "cp conf/ds.json .", "jq '.a += 1' zero3.json > ds.json"),
        *("envsubst < form.json > ds.json", "python gen.py > ds.json", "yq -i '.a = 2' ds.json"),
        *("curl -o ds.json https://a.b/c", "perl -pi -e s/2/3/ ds.json", "cat t | tee ds.json"),
        *("if [ $X = 1 ]; then cp zero3.json ds.json; fi", "jq -S . ds.json > ds.json"),
        *("cat zero3.json >> ds.json", "cat < zero3.json form.json > ds.json"),
        *("jq --argjson s x '.a=$s' ds.json > ds.json", "jq '.a=$s' ds.json > ds.json"),
        *("sed s/2/3/ ds.json | sed s/3/$Q/ > ds.json", "sort ds.json | sed s/2/3/ > ds.json"),
        *("sed s/2/3/ | sed s/3/2/ > ds.json", "sed s/2/3/ ds.json | sed s/3/1/ ds.json > ds.json"),
        *("python -c \"open('ds.json', 'w')\"", "python <<E\nopen('./ds.json', mode='w')\nE"),
        *("python gen.py --output-file ds.json", "gen --out=ds.json", "gen -o ./ds.json"),
        *('for f in *.json; do\nsed -i s/2/3/ "$f"\ndone', "sed -i 's/x*/3/g' ds.json"),
        *("find . -name '*.json' -exec sed -i s/2/3/ {} +", "ls *.json | xargs sed -i s/2/3/"),
        *("sudo sed -i s/2/3/ ds.json", "srun cp a ds.json", "install -m 644 zero3.json ds.json"),
        *("scp host:a/ds.json .", "docker exec c tee ds.json", "f() { cat t; }\nf > ds.json"),
        *("cp a/ds.json ./", "cp -t . a/ds.json", "cp --target-directory=. a/ds.json"),
        *("cp a/ds.json $PWD/", "cp -r conf/. .", "rm -f ds.json", "dd if=t of=ds.json"),
        *("nice cp t ds.json", "timeout 5 cp t ds.json", "sed -i s/2/3/ [d]s.json"),
        *("python <<E\nshutil.copy('a/ds.json', 'ds.json')\nE", "python -c \"dump(f'{n}.json')\""),
        *("sed -i 1d ds.json", "sed -i -n s/2/3/ ds.json", "sed -i 's/2**/3/' ds.json"),
    ],
)
def test_a_file_beside_that_a_command_may_change_is_a_question(command: str) -> None:
    found = read_on_disk(command)
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "`ds.json`, " in asked.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("python - <<E\n" + "open(a," * 30_000 + "\nE", "2"),
        (
            "\n".join(f"cp ds.json f{i}.json" for i in range(3000)),
            ["references and loops in this file expand to too much text"],
        ),
    ],
)
def test_many_words_and_files_are_compared_in_a_moment(command: str, answer: Any) -> None:
    """The first read the rest of a text at each word, the second each file at each command."""
    start = time.process_time()
    found = read_on_disk(command)
    assert time.process_time() - start < 5
    assert ([one.message for one in found.problems] or settings(found)["layout.zero"]) == answer


EDIT = "sed -i s/2/3/ ds.json"

LONG_WORD = "x" * 60_000


@pytest.mark.parametrize(
    "command",
    mark_most(
        [
            *("sed s/2/3/ ds.json | sponge ds.json", "mv ds.json old.json", "mv ds.json old/"),
            *("mv -t old ds.json", 'sed -i \'s/"stage": [0-9]\\{1\\}/"stage": 3/\' ds.json'),
            *(
                'sed -i "s/}\\\\\'/}/" ds.json',
                "sed -i 's/$/,/' ds.json",
                "sed -i 's/[9-0]/3/' ds.json",
            ),
            f"sed -i {'-e s/e/ee/g ' * 30}ds.json",
            f"echo '{'a' * 60_000}' > ds.json\nsed -i 's/a*b*Z/3/' ds.json",
            f"sed -i 's/2/{LONG_WORD}/g' ds.json",
            f"sed -i {'-e s/a.*b.*Z/3/ ' * 9000}ds.json",
            f"for i in {{1..900}}; do {EDIT}; done",
            f"export X={LONG_WORD}\necho '{'$X ' * 20_000}' > t.json\nenvsubst < t.json > ds.json",
        ],
        7,
    ),
)
def test_an_edit_that_is_not_followed_is_a_question_soon(command: str) -> None:
    """Other edits, and edits that take long or make long texts, are asked for in a moment."""
    start = time.process_time()
    found = read_on_disk(command)
    assert time.process_time() - start < 5
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "`ds.json`, " in asked.reason


@try_each(
    "command, path, stage",
    [
        (f"cd conf; {EDIT}; cd ..", "ds.json", "2"),
        (f"cd conf; {EDIT}; cd ..", "conf/ds.json", "3"),
        (f"cd conf; {EDIT}; cd -", "./conf/ds.json", "3"),
        (f"pushd conf; {EDIT}; popd", "ds.json", "2"),
        (f"(cd conf && {EDIT})", "conf/ds.json", "3"),
        (f"cp ds.json conf/ds.json; cd conf && {EDIT}; cd ..", "conf/ds.json", "3"),
        ("mkdir conf; cp zero3.json conf/ds.json; cd conf", "ds.json", "3"),
        (f"cd conf; {EDIT}", "ds.json", "3"),
        (f"cd conf; {EDIT}", "../ds.json", "2"),
        (f"{EDIT}; cd conf", "ds.json", "2"),
        (f"{EDIT}; cd conf", "../ds.json", "3"),
        ("cd conf; sed -i s/2/3/ ../ds.json; cd ..", "ds.json", "3"),
        (f"cd $DIR; {EDIT}; cd -", "ds.json", ""),
        (f"[ -d $DIR ] && cd conf; {EDIT}", "ds.json", ""),
        (f"if [ $X = 1 ]; then cd conf; {EDIT}; fi; cd ..", "ds.json", ""),
        (f"cd conf; {EDIT}; cd $DIR", "ds.json", ""),
        ("cd conf; sed -i s/2/$Q/ *.json; cd ..", "conf/ds.json", ""),
        ("find . -name '*.json' -exec sed -i s/2/3/ {} +; cd conf", "ds.json", ""),
        ("mv zero3.json t.json; cp zero3.json ds.json", "ds.json", ""),
        ("cat zero3.json > /w/ds.json; cd /w", "ds.json", "3"),
        ("cat zero3.json > /w/ds.json; cd /w", "/w/ds.json", "3"),
        ("cat zero3.json > /w/ds.json; cd /w; gen > /w/ds.json", "ds.json", ""),
        ("cat zero3.json > /w/ds.json; cd /w; cp $DIR/a /w/ds.json", "ds.json", ""),
        ("cat zero3.json > ds.json; cd $DIR", "ds.json", "3"),
        (f"cat zero3.json > ds.json; (cd $DIR; {EDIT})", "ds.json", ""),
        ("cd $DIR; cat > ds.json <<E\n" + ON_DISK["zero3.json"] + "\nE", "ds.json", "3"),
        ("for i in $LIST; do cd conf; done; " + EDIT, "ds.json", ""),
    ],
)
def test_an_edited_file_is_the_one_in_its_folder(command: str, path: str, stage: str) -> None:
    """Both files have stage 2 ahead of the edit; a folder that is not known is a question."""
    one = importer_of("trl")
    beside = {**ON_DISK, "conf/ds.json": ON_DISK["ds.json"]}
    launch = DEEPSPEED.replace("--deepspeed ds.json", f"--deepspeed {path}")
    found = one.read(ImportFile("run.sh", f"{command}\n{launch}", PLAIN, beside.get))
    asked = [one for one in found.questions if one.attribute == "layout.zero"]
    assert ("" if asked else settings(found)["layout.zero"]) == stage


@try_each(
    "command",
    [
        *("cp ds.json out/", "cp ds.json $OUT/ds.json", "sed -n 1p ds.json", "jq . ds.json"),
        *("cat ds.json | tee log", "python show.py ds.json", "sed s/2/3/ ds.json > t.json"),
        *(
            "python -c \"open('ds.json', 'r')\"",
            "python a.py --output_dir ds.json.d",
            "sort ds.json",
        ),
        *("for f in *.json; do cat $f; done", "find . -name '*.json' -exec cat {} +"),
        *(
            "sudo cat ds.json",
            "srun sed s/2/3/ ds.json",
            "find . -name '*.py' -exec sed -i s/2/3/ {} +",
        ),
        *("cp zero3.json $OUT", "mv zero3.json other.json", "envsubst < ds.json"),
    ],
)
def test_a_file_beside_a_script_that_is_only_read_stays(command: str) -> None:
    assert settings(read_on_disk(command))["layout.zero"] == "2"


@try_each(
    "command",
    [
        "cat > ds.json <<EOF\n{DS}\nEOF".replace("{DS}", ON_DISK["form.json"]),
        "export STAGE\nenvsubst < form.json > ds.json",
        'sed -i "s/2/$STAGE/" ds.json',
        "jq --argjson s $STAGE '.zero_optimization.stage = $s' ds.json > t && mv t ds.json",
        "cp zero$STAGE.json ds.json",
    ],
)
def test_a_default_in_a_written_file_is_an_assumption(command: str) -> None:
    found = read_on_disk(f"STAGE=${{STAGE:-3}}\n{command}")
    assert settings(found)["layout.zero"] == "3"
    (stage,) = [
        one for block in found.blocks for one in block.settings if one.key.endswith(".stage")
    ]
    assert stage.assumption.startswith("`STAGE` is not set in the file")


def test_a_default_marks_only_its_own_keys_of_a_written_configuration() -> None:
    one = importer_of("trl")
    text = TRL_YAML.replace("max_length: 4096", "max_length: ${LENGTH:-4096}")
    script = f"cat > run.yaml <<EOF\n{text}EOF\ntrl sft --config run.yaml\n"
    found = one.read(ImportFile("run.sh", script))
    marked = {
        one.name
        for block in found.blocks
        for one in block.settings
        if one.assumption.startswith("`LENGTH`")
    }
    assert marked == {"sequence"}


def test_a_script_beside_that_may_change_is_not_read() -> None:
    one = importer_of("trl")
    beside = {"run.sh": TRL}
    changed = "sed -i 's/processes 8/processes 16/' run.sh\nbash run.sh\n"
    found = one.read(ImportFile("job.sh", changed, PLAIN, beside.get))
    assert settings(found)["cluster.devices"] == "16"
    unread = f"if [ $X = 1 ]; then\n{changed.splitlines()[0]}\nfi\nbash run.sh\n"
    assert one.read(ImportFile("job.sh", unread, PLAIN, beside.get)).problems
    written = TRL.replace("--bf16", "--bf16 --seed $SEED")
    script = f"cat > run.sh <<EOF\n{written}EOF\nbash run.sh\n"
    assert settings(one.read(ImportFile("job.sh", script)))["cluster.devices"] == "8"


def test_a_written_script_or_launcher_that_is_changed_is_not_read() -> None:
    """Neither the file of the same name that TRL ships nor the text of before is read."""
    one = importer_of("trl")
    written = f"cat > run.sh <<'EOF'\n{TRL}EOF\n"
    assert settings(one.read(ImportFile("job.sh", f"{written}bash run.sh\n")))["cluster.devices"]
    changed = f"{written}sed -i s/8/$Q/ run.sh\nbash run.sh\n"
    assert one.read(ImportFile("job.sh", changed)).problems
    name = "accelerate_configs/zero3.yaml"
    written = f"cat > {name} <<EOF\nnum_processes: 4\nEOF\nsed -i s/4/$Q/ {name}\n"
    launch = TRL.replace("--num_processes 8", f"--config_file {name}")
    found = one.read(ImportFile("run.sh", written + launch))
    assert "layout.zero" in {one.attribute for one in found.questions}
    conf = f"cat > run.yaml <<EOF\n{TRL_YAML}EOF\nsed -i s/2/$Q/ run.yaml\n"
    found = one.read(ImportFile("run.sh", f"{conf}trl sft --config run.yaml\n"))
    (problem,) = found.problems
    assert problem.message.endswith("`sed -i s/2/$Q/ run.yaml` in line 10 may change it")
