"""Defaults of a tool: assumed if all keys of a file are known; otherwise the import asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from parcost_formats.tools.collector import SettingCollector
from parcost_formats.tools.drafts import Draft, Option
from parcost_formats.tools.tables import table

_DOUBTS = table("megatron")["doubts"]
#: All topics, for options that may affect any attribute.
EVERYTHING: Sequence[str] = _DOUBTS["topics"]
_ANSWERS: Mapping[str, Sequence[str]] = table("megatron")["answers"]
#: Options with a usual value of attributes that are asked for.
_NEAR = {"model.kv_heads": "num_attention_heads", "model.expert_ffn": "ffn_hidden_size"}
#: Options of switches whose value is stated, and may be changed elsewhere.
_ON = {
    "use_distributed_optimizer": {"true": "--set layout.zero=1"},
    "use_megatron_fsdp": {"true": "--set layout.zero=3"},
    "use_torch_fsdp2": {"true": "--set layout.zero=3"},
}
#: Placeholders of values in suggested options.
_QUESTIONS = {"training.precision": "precision"}


def topic(path: str) -> str:
    """Return the topic of an attribute, such as ``model`` or ``layout``; "" for none."""
    return str(_DOUBTS["attributes"].get(path) or _DOUBTS["attributes"].get(_block(path), ""))


class ToolOptions(SettingCollector):
    """The options of a file, and which of its settings are uncertain.

    *tool* is the tool with its version, as written in assumptions. *has_engine* says that the
    configuration of DeepSpeed is read; *usual_recipe* is the precision of its bf16 jobs, "" for
    Megatron-LM's. *reasons* say why files named by options cannot be read. A default is assumed
    only if no key makes the attribute uncertain.
    """

    def __init__(self, draft: Draft, options: Mapping[str, Option], tool: str) -> None:
        super().__init__(options, draft=draft)
        self.tool = tool
        self.usual_recipe = ""
        self.has_engine = False
        self.reasons: dict[str, str] = {}  # why a file that an option names is not read
        self._doubts: dict[str, tuple[Option, str]] = {}
        self._asked: set[str] = set()

    def add_engine(self, options: Mapping[str, Option], recipe: str) -> None:
        """Add the options of an engine, which override flags, and its *recipe* for bf16."""
        for name in options:
            flag = self.lookup(name)
            if flag is not None and flag.unread:
                self.ignore(flag, "the configuration of DeepSpeed has the value")
        self._entries = {**self._entries, **options}
        self.usual_recipe, self.has_engine = recipe, True

    def doubt(self, option: Option, reason: str, about: Iterable[str]) -> None:
        """Mark the topics or attributes *about* as uncertain: *option* may set them."""
        for one in about:
            self._doubts.setdefault(one, (option, reason))

    def get(self, name: str) -> Option | None:
        """Return an option with a known value; ask for it if its value is unknown and
        affects cost.
        """
        option = self.lookup(name)
        path = _DOUBTS["decides"].get(name, "")
        if option is None or not option.unread or not path:
            return super().get(name)
        self._keys.add(name)
        self.ask_for(path, option, option.unread)
        return None

    def ask_for(self, path: str, option: Option, reason: str) -> None:
        """Ask for an attribute, once."""
        if path in self._asked:
            return
        self._asked.add(path)
        near = self.lookup(_NEAR.get(path, "")) or option
        number = near.text if near.text.isdecimal() else "VALUE"
        settings = _ANSWERS.get(path, (f"--set {path}={number}",))
        if option.text.isdecimal() and _DOUBTS["decides"].get(option.name) == path:
            whole = path == "training.global_batch"
            value = f"'{path}={option.text} sequences'" if whole else f"{path}={option.text}"
            settings = (f"--set {value}", *settings)
        elif option.name in _ON:
            settings = (_ON[option.name].get(option.text, settings[0]), *settings)
        answers = dict.fromkeys([*option.answers, *settings])
        shown = " ".join([option.key, *option.texts])[:60]
        why = f"`{shown}`: {reason}"
        self.ask(_QUESTIONS.get(path, path), why, [*answers], option)

    def check_default(self, path: str) -> bool:
        """Return whether the default of an attribute may be used; ask for it if it is uncertain."""
        if path in self._asked:
            return False
        found = self._doubts.get(path) or self._doubts.get(topic(path))
        if found is None:
            return True
        self.ask_for(path, *found)
        return False

    def default(self, name: str, path: str, value: str, why: str) -> None:
        """Assume the tool's default if the file does not state a value, or ask for it."""
        option = self.lookup(name)
        if option is not None and option.unread:
            self.ask_for(path, option, option.unread)
        elif self.check_default(path):
            self.assume(path, value, self.why(why))

    def require_micro_batch(self) -> None:
        """Ask for the micro-batch, which has no default in the tool."""
        name, path = "micro_batch_size", "training.micro_batch"
        option = self.lookup(name)
        if option is not None and option.unread:
            self.ask_for(path, option, option.unread)
        elif path not in self._asked and (option is None or not option.texts):
            self._asked.add(path)
            answers = _ANSWERS.get(path, (f"--set {path}=VALUE",))
            self.ask(path, f"the file has no {name}, and {self.tool} has no default", answers)

    def why(self, fact: str) -> str:
        """Return an assumption: the tool, its version and the *fact*."""
        return f"{self.tool}: {fact}"


def _block(path: str) -> str:
    return path.partition(".")[0]
