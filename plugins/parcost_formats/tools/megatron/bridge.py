"""Recipes of Megatron-Bridge: Python functions that return a configuration, parsed but not run."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from attrs import field

from parcost import did_you_mean, record
from parcost_formats.tools.drafts import Option
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.megatron.adapters import SCHEMES, find_fields, make_scheme
from parcost_formats.tools.megatron.flags import PATTERNS
from parcost_formats.tools.python_code import (
    BUILTINS,
    OPTIONS,
    PARSED,
    Cell,
    CodeCall,
    CodeLibrary,
    Entity,
    Follower,
    UnreadValue,
    doubt_cells,
    option_defaults,
)
from parcost_formats.tools.python_values import (
    DottedName,
    Function,
    PythonText,
    PythonTextError,
    UnreadError,
    choose_function,
    dotted_name,
)
from parcost_formats.tools.tables import is_listed, table

#: The release that the tables of this module are made for.
VERSION = "Megatron-Bridge 0.6"
_TABLE: Mapping[str, Any] = table("megatron")["bridge"]
_CLASSES: Mapping[str, Any] = table("bridge_classes")
_SECTIONS: Mapping[str, Sequence[str]] = _TABLE["sections"]
_TYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "half": "fp16", "uint8": "fp8"}
_LAYOUT = "pipeline_model_parallel_layout"
_MODULES = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_DEVICES = re.compile(r"(?:^|_)(\d{1,7})gpu(?:s)?_")
_CONTAINER = "ConfigContainer"
_GIVEN = ("cfg", "config", "recipe")  # a configuration that a function changes
_PRECISION = "MixedPrecisionConfig"
_PRECISIONS: Mapping[str, Any] = _TABLE["precisions"]
#: Sections in the order in which a later one wins.
_ORDER = ("model", "train", "optimizer", "dist", "ddp", "comm_overlap")
_HUB_KEYS = (("model", "hf_path"), ("model", "hf_model_id"))  # of the model at Hugging Face
_TRAINING = ("megatron.bridge.training.pretrain", "megatron.bridge.training.finetune")
_SIZES = ("model.num_layers", "model.hidden_size")
_WHOLE = ("model._target_", "model.provider", *(".".join(one) for one in _HUB_KEYS))
_WORKLOADS: Mapping[str, Any] = table("bridge_recipes")["workloads"]
_ELSEWHERE = "it is set in another file"


@record(frozen=False)
class BridgeRecipe:
    """The settings of a recipe.

    *options* have the names of flags. *ignored* keys have no effect on cost, and *unread* keys have
    an unknown value. *model* is the Hugging Face model that it starts from. *adapters* are the
    fields of the class of adapters, and its name as ``class``; none for a full fine-tuning.
    *doubts* are calls of functions that may set anything. *precision* is the reason why the
    precision is unknown. *errors* are rejected settings. *devices* is the device count in the name
    of the recipe.
    """

    options: dict[str, Option] = field(factory=dict)
    ignored: list[Option] = field(factory=list)
    unread: list[Option] = field(factory=list)
    doubts: list[Option] = field(factory=list)
    errors: list[tuple[Option, str, str]] = field(factory=list)
    adapters: dict[str, Option] = field(factory=dict)
    model: Option | None = None
    devices: Option | None = None
    precision: Option | None = None


def read_recipe(
    text: str, name: str = "", neighbor: Callable[[str], str | None] = lambda _: None
) -> BridgeRecipe:
    """Return the settings of the recipe called *name* in a Python file, or of the only one.

    *neighbor* returns files beside it: a workload of a performance run is in one of them.

    Raises:
        PythonTextError: The file is not Python, or has several recipes or none of that name.
    """
    python = PythonText(text)
    training = _training_functions(python.tree)
    library = _BridgeLibrary(neighbor, training, option_defaults(python.tree))
    free = Entity(_CONTAINER, python.tree)
    follower = Follower(python.tree, library, {"cfg": free})
    recipe = _select_recipe(python, follower, name)
    if recipe is not None:
        made = follower.call_function(recipe, _configurations(recipe))
    else:
        made = follower.run_file(python.tree, _is_configuration)
    if made is None:
        started = list(dict.fromkeys(library.started))
        made = started[0] if len(started) == 1 else free if free.cells else None
    if isinstance(made, UnreadValue):
        start, end = python.place(recipe or python.tree)
        raise PythonTextError(f"the recipe cannot be read: {made.why}", start, min(end, start + 3))
    if not isinstance(made, Entity) or not (made.cells or made.kind.startswith("?")):
        raise PythonTextError("the file has no recipe of Megatron-Bridge", 0, 1)
    found = _RecipeReader(python.place, made, library.doubts).recipe()
    if library.devices is not None:
        start, end = python.place(library.devices.node)
        texts = (str(library.devices.value),)
        why = library.devices.why
        found.devices = Option(
            name="devices", key="num_gpus", texts=texts, start=start, end=end, assumption=why
        )
        return found
    stated = _DEVICES.search(recipe.name) if recipe is not None else None
    if recipe is not None and stated is not None:
        start, _ = python.place(recipe)
        start = text.find(recipe.name, start)
        end = start + len(recipe.name)
        found.devices = Option(
            name="devices",
            key=recipe.name,
            texts=(stated[1],),
            start=start,
            end=end,
            assumption=f"{VERSION}: the number of devices is part of the name of the recipe",
        )
    return found


def _training_functions(tree: ast.Module) -> Collection[str]:
    """Return the functions of Megatron-Bridge that start a job, such as ``pretrain``."""
    modules = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
    started = [one for one in modules if (one.module or "").startswith(_TRAINING)]
    return {name.name for one in started for name in one.names}


def recipe_names(tree: ast.Module) -> Sequence[str]:
    """Return the names of the recipes of a file."""
    found = [one for one in tree.body if isinstance(one, Function) and _is_recipe(one)]
    makers = [one for one in found if not _changes_its_argument(one)] or found
    public = [one.name for one in makers if not one.name.startswith("_")]
    return public or [one.name for one in makers]


def _changes_its_argument(function: Function) -> bool:
    """Return whether a function modifies a configuration argument and creates none."""
    plain = function.args.args
    required = plain[: len(plain) - len(function.args.defaults)]
    return any(
        one.arg in _GIVEN
        or (one.annotation is not None and _CONTAINER in ast.unparse(one.annotation))
        for one in required
    )


def read_sections(
    entries: Mapping[str, JsonEntry],
    start: str = "",
    names: Mapping[str, str] = MappingProxyType({}),
    assumed: Mapping[str, str] = MappingProxyType({}),
) -> BridgeRecipe:
    """Return the settings of a YAML configuration, by ``section.attribute`` of a ConfigContainer.

    *start* is the library recipe that it modifies, "" if none. *names* are the keys of the file
    where they differ; keys in *assumed* have a reason instead of a line.
    """
    places: dict[ast.AST, tuple[int, int]] = {}

    def node_of(entry: JsonEntry) -> ast.AST:
        node = ast.Pass()
        places[node] = entry.start, entry.end
        return node

    top = node_of(JsonEntry(None, 0, 0))
    base = _base(start)
    made = Entity(_CONTAINER, top)
    if base is not None:
        made = _BridgeLibrary().make_container(start, base, top)
    for key, entry in entries.items():
        section, _, attribute = key.partition(".")
        name = names.get(key, key)
        cell = Cell(entry.value, node_of(entry), name, assumed.get(name, ""))
        if not attribute:
            if section != "recipe":  # the name of the function that it is of
                made.cells[section] = cell
            continue
        before = made.cells.get(section)
        if before is not None and isinstance(before.value, str) and before.value in _PRECISIONS:
            part = _precision_entity(before.value, top, before.key, before.why)
            made.cells[section] = Cell(part, top, before.key, before.why)
        elif before is None or not isinstance(before.value, Entity):
            made.cells[section] = Cell(Entity(section, cell.node), cell.node, section)
        part = made.cells[section].value
        if (section, attribute) == ("model", "provider"):
            part.kind = str(entry.value)
        else:
            part.cells["hf" if (section, attribute) in _HUB_KEYS else attribute] = cell
    return _RecipeReader(lambda node: places[node], made).recipe()


def read_overrides(
    entries: Mapping[str, JsonEntry], recipe: str = "", file: str = ""
) -> BridgeRecipe:
    """Return the settings of a YAML file, which states a whole configuration or changes a recipe.

    *recipe* is the name that ``--recipe`` gives. A file without model sizes changes a recipe:
    missing values are those of the recipe. If the recipe is unknown, the import asks for them.
    Words of the name of the *file* suggest a recipe.
    """
    whole = all(one in entries for one in _SIZES) or any(one in entries for one in _WHOLE)
    stated = entries.get("recipe")
    named = recipe or str(stated.value if stated is not None and not whole else "")
    if named in library_recipes() or (whole and not recipe):
        return read_sections(entries, named)
    found = read_sections(entries)
    first = next(iter(entries.values()))
    words = {*re.findall(r"[a-z0-9]+", (named or file.rpartition("/")[2]).lower())}
    near = {one: len(words.intersection(one.split("_"))) for one in library_recipes()}
    best = max(near, key=lambda one: (near[one], -len(one)))
    why = f"the file changes a recipe, which must be named with --recipe; {_ELSEWHERE}"
    if named:
        why = f"`{named}` is not in parcost's table of recipes, and {_ELSEWHERE}"
        reject_recipe(found, named, first.start, first.end)
    doubt = Option(name="", key=named or "recipe", start=first.start, end=first.end, unread=why)
    found.doubts.append(doubt.evolve(answers=[f"--recipe {best}"] if near[best] > 1 else []))
    return found


def reject_recipe(found: BridgeRecipe, name: str, start: int, end: int) -> None:
    """Add an error if the *name* of an unknown recipe says that it is not supported."""
    if why := _rejection(name):
        option = Option(name="", key=name, start=start, end=end)
        found.errors.append((option, why, ""))


def _select_recipe(python: PythonText, follower: Follower, name: str) -> Function | None:
    recipes = {one: follower.functions[one] for one in recipe_names(python.tree)}
    if name in follower.functions:
        return follower.functions[name]
    return choose_function(python, recipes, list(recipes), name) if recipes or name else None


def _is_recipe(function: Function) -> bool:
    """Return whether a function creates or modifies a configuration."""
    if function.returns is not None and _CONTAINER in ast.unparse(function.returns):
        return True
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                parts = dotted_name(target).split(".")
                if len(parts) >= 2 and parts[1] in (*_ORDER, "mixed_precision"):
                    return True
        elif isinstance(node, ast.Call):
            name = dotted_name(node.func)
            if name.endswith(_CONTAINER) or _base(name.rpartition(".")[2]) is not None:
                return True
    return False


def _configurations(function: Function) -> dict[str, Any]:
    """Return a configuration for each parameter called ``cfg`` or ``config``."""
    names = [one.arg for one in function.args.args]
    return {name: Entity(_CONTAINER, function) for name in names if name in ("cfg", "config")}


def _is_configuration(value: Any) -> bool:
    return isinstance(value, Entity) and (value.kind == _CONTAINER or "model" in value.cells)


class _BridgeLibrary(CodeLibrary):
    """The effects of functions and classes of Megatron-Bridge."""

    def __init__(
        self,
        neighbor: Callable[[str], str | None] = lambda _: None,
        training: Collection[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Read files beside a recipe by *neighbor*; functions of *training* start the job."""
        self.options = options or {}
        self.started: list[Entity] = []
        self.doubts: list[tuple[str, ast.AST]] = []
        self.devices: Cell | None = None
        self._neighbor = neighbor
        self._training = training

    def call(self, follower: Follower, call: CodeCall) -> Any:
        """Return the result of a function of another module, by the tables."""
        name, node, arguments, keywords = call
        last = call.last
        base = _base(last)
        if base is not None:
            made = self.make_container(last, base, node)
            self._pass_arguments(follower, made, call._replace(name=last))
            return made
        workload = self._call_workload(follower, call._replace(name=last))
        if workload is not None:
            return workload
        if last in _TABLE["nothing"]:
            return [None] * int(_TABLE["nothing"][last])
        if last in _TABLE["precisions"]:
            return _precision_entity(last, node)
        if last in ("get_mixed_precision_config", *_TABLE["perf_functions"]):
            return self._precision(last, node, arguments)
        if last in _TABLE["helpers"]:
            return self._help(follower, last, node, arguments)
        if last in SCHEMES:
            return make_scheme(node, arguments, keywords)
        if last in ("from_hf_pretrained", "from_hf_config"):
            found = arguments[0] if arguments else keywords.get("hf_model_id")
            value = found.value if isinstance(found, Cell) else found
            return Entity("hf", node, {"hf": Cell(value, node, "from_hf_pretrained")})
        if last.startswith("distributed_") and ("adam" in last or "muon" in last):
            return _optimizer_entities(last, node)
        if last in BUILTINS:
            return super().call(follower, call._replace(name=last))
        if last[:1].isupper():
            return Entity(last, node, {**_class_cells(last, node), **keywords})
        given = [*arguments, *(one.value for one in keywords.values())]
        found = [one for one in given if isinstance(one, Entity)]
        if name in self._training:
            self.started += filter(_is_configuration, found)
        harmless = last in _TABLE["harmless"]["functions"] or name in self._training
        if harmless or name.startswith(("os.", "logging.")):
            return UnreadValue("it is code, which parcost does not run")
        if found:
            self.doubts.append((last, node))
        for one in found:
            if one.kind == _CONTAINER or one.kind in _SECTIONS["read"]:
                doubt_cells(
                    follower,
                    one,
                    f"`{last}`, a function of another file, may change it",
                    _PRECISION,
                )
        return Entity(f"?{last}", node)

    def _call_workload(self, follower: Follower, call: CodeCall) -> Entity | None:
        """Return the workload of a performance run, or the configuration that applies it."""
        name, node, arguments, keywords = call
        first = arguments[0] if arguments else None
        if name == _WORKLOADS["finds"]:
            parts = dict(zip(_WORKLOADS["parameters"], arguments, strict=False))
            parts |= {one: cell.value for one, cell in keywords.items()}
            return self._find_workload(node, parts)
        if name == "replace" and isinstance(first, Entity) and first.kind == _WORKLOADS["class"]:
            return Entity(first.kind, node, {**first.cells, **keywords})
        given = arguments[1] if len(arguments) > 1 else None
        if name != _WORKLOADS["applies"] or not isinstance(first, Entity):
            return None
        if not isinstance(given, Entity) or given.kind != _WORKLOADS["class"]:
            return None
        values = {one: cell.value for one, cell in given.cells.items()}
        why = next(iter(given.cells.values())).why
        paths = {path: values.get(one) for one, path in _WORKLOADS["always"].items()}
        paths["model.sequence_parallel"] = (values.get("tensor_model_parallel_size") or 1) > 1
        for one, path in _WORKLOADS["stated"].items():
            if values.get(one) not in (None, False):
                more = _WORKLOADS["with"].get(one, {})
                paths |= {path: values[one], **more}
        for path, value in paths.items():
            section, _, attribute = path.partition(".")
            target = self._section(first, section, node)
            if isinstance(target, Entity):
                follower.put(target, attribute, Cell(value, node, f"{name}()", why))
        if isinstance(values.get("num_gpus"), int):
            self.devices = Cell(values["num_gpus"], node, "num_gpus", why)
        return first

    def _find_workload(self, node: ast.Call, parts: Mapping[str, Any]) -> Entity | None:
        """Return the workload named by the arguments, from a file in the recipe's folder."""
        words = [parts.get(one, default) for one, default in _WORKLOADS["name"]]
        if not all(isinstance(one, str) for one in words):
            return None
        wanted = "_".join(words).upper()
        family = str(parts.get("model_family_name", ""))
        stems = [family, *_beginnings(str(parts.get("model_recipe_name", "")))]
        for file in [f"{one}{_WORKLOADS['ending']}" for one in stems]:
            text = self._neighbor(file)
            if text is None:
                continue
            tree = PythonText(text).tree
            follower = Follower(tree, _BridgeLibrary(), {})
            names: dict[str, Any] = {}
            follower.run(tree.body, names)
            found = names.get(wanted)
            if isinstance(found, Entity):
                why = f"`{wanted}` of {file}"
                values = dict(_WORKLOADS["defaults"])
                values |= dict.fromkeys(_WORKLOADS["without"])
                if not found.cells.keys() <= values.keys():
                    return None  # a field of another release may set anything
                values |= {one: cell.value for one, cell in found.cells.items()}
                cells = {one: Cell(value, node, one, why) for one, value in values.items()}
                return Entity(found.kind, node, cells)
        return None

    def make_container(self, name: str, base: Mapping[str, Any], node: ast.AST) -> Entity:
        """Return the configuration that a library function creates."""
        made = Entity(_CONTAINER, node)
        why = f"{base.get('version', VERSION)}: {name}"
        unread = UnreadValue(f"it is code of {name}, which is not in parcost's table")
        for path, value in [*base.items(), *((one, unread) for one in base.get("unread", ()))]:
            section, _, attribute = path.partition(".")
            if path in ("unread", "version"):
                continue
            cell = Cell(value, node, f"{name}()", why)
            if not attribute:
                if section == "model":
                    parts = {"hf": Cell(value, node, f"{name}()", why)}
                    cell = Cell(Entity("hf", node, parts), node, f"{name}()", why)
                elif section == "peft":
                    cell = Cell(Entity(str(value), node), node, f"{name}()", why)
                made.cells[section] = cell
                continue
            owner = made.cells.get(section)
            if owner is None or not isinstance(owner.value, Entity):
                kind = _PRECISION if section == "mixed_precision" else section
                owner = made.cells[section] = Cell(Entity(kind, node), node, section, why)
            owner.value.cells[attribute] = cell
        return made

    def _pass_arguments(self, follower: Follower, made: Entity, call: CodeCall) -> None:
        """Apply the arguments of a library recipe; an unknown one makes all settings uncertain."""
        name, _, arguments, keywords = call
        rules = _TABLE["recipe_arguments"]
        for keyword, cell in keywords.items():
            path = rules["paths"].get(keyword)
            if path is not None and cell.value is not None:
                section, _, attribute = path.partition(".")
                if attribute:
                    target = self._section(made, section, cell.node)
                    if isinstance(target, Entity):
                        follower.put(target, attribute, Cell(cell.value, cell.node, keyword))
                else:
                    follower.put(made, section, Cell(cell.value, cell.node, keyword))
            elif path is None and not is_listed(keyword, rules["harmless"]):
                self.doubts.append((f"{name}({keyword}=...)", cell.node))
                doubt_cells(follower, made, f"`{keyword}` of {name} may change it", _PRECISION)
        if arguments:
            self.doubts.append((f"{name}(...)", made.node))
            doubt_cells(follower, made, f"arguments of {name} may change it", _PRECISION)

    def _precision(self, name: str, node: ast.Call, arguments: Sequence[Any]) -> Any:
        """Return the precision that a function creates from a name."""
        word = arguments[0] if arguments else None
        if isinstance(word, Entity):
            return word
        if not isinstance(word, str):
            return UnreadValue(word.why if isinstance(word, UnreadValue) else "its name is unknown")
        if name == "get_mixed_precision_config":
            found = word.replace("-", "_")
            if found in _TABLE["precisions"]:
                return _precision_entity(found, node)
            return UnreadValue(f"`{word}` is not a recipe of mixed precision of {VERSION}")
        known = _TABLE["perf_precisions"]
        if word not in known:
            return UnreadValue(f"`{word}` is unknown; supported: {', '.join(known)}")
        made = _precision_entity(known[word], node)
        why = f"{VERSION}: {name}"
        for attribute in ("grad_reduce_in_fp32", "first_last_layers_bf16"):
            made.cells[attribute] = Cell(False, node, f"{name}()", why)
        return made

    def _help(self, follower: Follower, name: str, node: ast.AST, arguments: Sequence[Any]) -> Any:
        """Modify a configuration like the library function *name*."""
        helper = _TABLE["helpers"][name]
        made = arguments[0] if arguments else None
        if not isinstance(made, Entity):
            return made
        why = f"{VERSION}: {name}"
        values = dict(helper.get("sets", {}))
        for place, path in enumerate(helper.get("arguments", []), 1):
            if len(arguments) > place:
                values[path] = arguments[place]
        for path, value in values.items():
            owner, _, attribute = path.rpartition(".")
            target = self._section(made, owner, node) if owner else made
            if isinstance(target, Entity):
                follower.put(target, attribute, Cell(value, node, f"{name}()", why))
        if helper.get("backend") and len(arguments) > 1:
            backend = arguments[1]
            if isinstance(backend, str):
                word = Cell("flex", node, f"{name}()", why)
                follower.put(made, "moe_token_dispatcher_type", word)
                chosen = Cell(backend, node, f"{name}()", why)
                follower.put(made, "moe_flex_dispatcher_backend", chosen)
        return made

    @staticmethod
    def _section(owner: Entity, name: str, node: ast.AST) -> Any:
        """Return a section of a configuration; sections exist before anything is set in them."""
        cell = owner.cells.get(name)
        if cell is None:
            cell = owner.cells[name] = Cell(Entity(name, node), node, name)
        return cell.value

    def method(self, owner: Entity, call: CodeCall) -> Any:
        """Return the result of a method of an entity."""
        if owner.kind == "hf":
            return Entity("hf", owner.node, dict(owner.cells))
        if call.last in _TABLE["harmless"]["methods"]:
            return None
        if call.last in PARSED:
            return super().method(owner, call)
        self.doubts.append((call.last, call.node))
        return Entity(f"?{call.last}", call.node)

    def attribute(self, follower: Follower, owner: Entity, node: ast.Attribute) -> Any:
        """Return an attribute of an entity; a missing section of a configuration is created."""
        if owner.kind == OPTIONS:
            return super().attribute(follower, owner, node)
        cell = owner.cells.get(node.attr)
        if cell is not None:
            return cell.value
        if owner.kind == _CONTAINER or owner.kind.startswith("?") or "model" in owner.cells:
            return self._section(owner, node.attr, node)
        raise UnreadError(f"`{dotted_name(node) or node.attr}` has no value in this file")


class _RecipeReader:
    """Converts a configuration into options."""

    def __init__(
        self,
        place: Callable[[ast.AST], tuple[int, int]],
        made: Entity,
        doubts: Sequence[tuple[str, ast.AST]] = (),
    ) -> None:
        """Read the attributes of *made*; *place* returns the span of a syntax node."""
        self._place = place
        self._made = made
        self._found = BridgeRecipe()
        for name, node in doubts:
            self._doubt(name, node)

    def recipe(self) -> BridgeRecipe:
        """Return the options that were read."""
        found = self._found
        if self._made.kind.startswith("?"):
            name = self._made.kind[1:]
            if why := _rejection(name):
                option = self._option("model", Cell(None, self._made.node, name))
                found.errors.append((option, why, ""))
            self._doubt(name, self._made.node)
        sections = self._made.cells
        for name in (*_ORDER, *(one for one in sections if one not in _ORDER)):
            cell = sections.get(name)
            if cell is None or name == "mixed_precision":
                continue
            self._section(name, cell)
        self._precision(sections.get("mixed_precision"))
        self._complete()
        return found

    def _section(self, name: str, cell: Cell) -> None:
        value = cell.value
        if name == "peft":
            made = find_fields(cell, self._option, _texts)
            self._found.adapters.update(made)
            if value is None and not cell.why:
                self._found.ignored.append(self._option("", cell))
        elif isinstance(value, Entity):
            if name == "model":
                self._start_model(value, cell)
            if value.kind.startswith("?") and name in _SECTIONS["read"]:
                self._doubt(value.kind[1:], value.node)
            for attribute, inner in value.cells.items():
                parts = inner.value.cells if isinstance(inner.value, Entity) else {}
                if name == "model" and attribute == "transformer":
                    for one, part in parts.items():
                        self._attribute(name, one, part)
                elif attribute != "hf":
                    self._attribute(name, attribute, inner)
        elif name in _SECTIONS["read"] and value is not None:
            why = (
                value.why
                if isinstance(value, UnreadValue)
                else "it is code, which parcost does not run"
            )
            self._found.doubts.append(self._option("", cell).evolve(unread=why))
        elif not cell.why:
            self._found.ignored.append(self._option("", cell))

    def _start_model(self, model: Entity, cell: Cell) -> None:
        """Store the model that a provider starts from: a Hugging Face model, or a class."""
        start = model.cells.get("hf")
        named = start.value if start is not None else model.kind
        why = _rejection(named if isinstance(named, str) else "")
        if why:
            option = self._option("model", cell)
            self._found.errors.append((option, f"`{named}`: {why}", ""))
            return
        if start is not None:
            one = self._option("hf", start)
            if isinstance(start.value, str):
                self._found.model = one.evolve(texts=(start.value,), assumption=start.why)
            else:
                why = start.value.why if isinstance(start.value, UnreadValue) else "not known"
                self._found.doubts.append(one.evolve(unread=why))
            return
        kind = model.kind
        for attribute, inner in _class_cells(kind, cell.node).items():
            model.cells.setdefault(attribute, inner)
        classes = table("nemo")["classes"]
        entry = _CLASSES["models"].get(kind) or classes.get(kind.replace("ModelProvider", "Config"))
        if entry:
            one = self._option("hf", cell).evolve(key=kind, texts=(entry,))
            self._found.model = one
        elif not (
            kind.startswith("?")
            or kind == "model"
            or kind in _TABLE["plain_models"]
            or kind in _CLASSES["classes"]
        ):
            why = f"the defaults of the class {kind} are unknown"
            self._found.doubts.append(self._option("model", cell).evolve(unread=why))

    def _precision(self, cell: Cell | None) -> None:
        """Read the mixed-precision recipe; it overrides precision keys of other sections."""
        options = self._found.options
        value = cell.value if cell is not None else None
        if isinstance(value, str):
            word = value.replace("-", "_")
            if word not in _TABLE["precisions"]:
                assert cell is not None
                known = list(_TABLE["precisions"])
                hint = did_you_mean(word, known) or f"known: {', '.join(known[:6])}"
                option = self._option("", cell)
                message = f"`{value}` is not a recipe of mixed precision of {VERSION}"
                self._found.errors.append((option, message, hint))
                return
            assert cell is not None
            value = _precision_entity(word, cell.node, cell.key, cell.why)
        if not isinstance(value, Entity):
            if isinstance(value, UnreadValue) or not _has_precision(options):
                reason = value.why if isinstance(value, UnreadValue) else "the file has none"
                place = cell or Cell(None, self._made.node, "mixed_precision")
                self._found.precision = self._option("", place).evolve(unread=reason)
            return
        for name in _TABLE["of_precision"]["names"]:
            if name in options and not options[name].assumption:
                why = "mixed precision overrides it"
                self._found.ignored.append(options[name].evolve(assumption=why))
            options.pop(name, None)
        if value.kind.startswith("?"):
            place = cell or Cell(None, value.node, "mixed_precision")
            why = f"{value.kind[1:]} is defined in another file"
            self._found.precision = self._option("", place).evolve(unread=why)
        if value.kind == "mixed_precision":  # attributes alone, of a recipe that is not known
            assert cell is not None
            self._found.precision = self._option("", cell).evolve(
                unread="its recipe is in another file"
            )
        for attribute, inner in value.cells.items():
            self._attribute("mixed_precision", attribute, inner)
        if "fp8_format" not in options:
            for name in ("fp8_recipe", "fp8_param_gather", "first_last_layers_bf16"):
                options.pop(name, None)
        elif "fp8_recipe" not in options:
            one = options["fp8_format"]
            options["fp8_recipe"] = one.evolve(
                name="fp8_recipe", texts=("tensorwise",), assumption=f"{VERSION}: tensorwise"
            )

    def _complete(self) -> None:
        """Add options implied by others."""
        options = self._found.options
        groups = options.get("num_query_groups")
        if groups is not None and not groups.unread:  # Megatron-Core has no switch for it
            options["group_query_attention"] = groups.evolve(name="group_query_attention", texts=())
        self._pad_vocabulary()
        hidden = options.get("hidden_size")
        if (
            hidden is not None
            and "ffn_hidden_size" not in options
            and hidden.text.isdecimal()
            and len(hidden.text) < 10
        ):
            options["ffn_hidden_size"] = hidden.evolve(
                name="ffn_hidden_size",
                texts=(str(4 * int(hidden.text)),),
                assumption="Megatron-Core 0.14 to 0.19: 4 x hidden",
            )
        tp, sequence = options.get("tensor_model_parallel_size"), options.get("sequence_parallel")
        overlap = options.get("tp_comm_overlap")
        if overlap is not None and overlap.text == "true":
            alone = tp is None or tp.text == "1"
            if alone or sequence is None or sequence.text != "true":
                options.pop("tp_comm_overlap")
                why = (
                    "Megatron-Bridge turns it off unless tp is at least 2 with sequence parallelism"
                )
                self._found.ignored.append(overlap.evolve(assumption=why))
        if self._found.model is not None:
            for name in ("hidden_dropout", "attention_dropout"):
                options.setdefault(
                    name,
                    self._found.model.evolve(
                        name=name,
                        texts=("0.0",),
                        assumption=f"{VERSION}: dropout of the model of Hugging Face, 0",
                    ),
                )

    def _pad_vocabulary(self) -> None:
        """Remove the padding of an explicit vocabulary size: only that of a tokenizer has it."""
        options, multiple = self._found.options, "make_vocab_size_divisible_by"
        size = options.get("vocab_size")
        if size is None and self._found.model is None:
            return
        if size is not None and "tokenizer" in size.key:
            return
        why = f"{VERSION}: the stated vocabulary of the model is not padded"
        beside = options.pop(multiple, None)
        if beside is not None and not beside.assumption:
            self._found.ignored.append(beside.evolve(assumption=why))
        if size is not None:
            options[multiple] = size.evolve(name=multiple, texts=("1",), unread="", assumption=why)

    def _attribute(self, section: str, attribute: str, cell: Cell) -> None:
        """Read one attribute of a section."""
        found = self._found
        read = section in _SECTIONS["read"]
        if not read and (section, attribute) != ("tokenizer", "vocab_size"):
            if (section, attribute) == ("dataset", "seq_length"):
                option = self._option("seq_length", cell)
                texts, unread = _texts("seq_length", cell.value)
                if "seq_length" not in found.options:
                    found.options["seq_length"] = option.evolve(texts=texts, unread=unread)
            elif not cell.why:
                known = section in (*_SECTIONS["ignored"], "dataset", "tokenizer", "peft")
                option = self._option("", cell)
                (found.ignored if known else found.unread).append(option)
            return
        if section == "optimizer" and attribute in _TABLE["of_precision"]["attributes"]:
            found.ignored.append(self._option("", cell))
            return
        renamed = _TABLE["renames"].get(attribute, attribute)
        plain = renamed.removeprefix("not ")
        name = str(table("megatron")["aliases"].get(plain, plain))
        option = self._option(name, cell).evolve(assumption=cell.why)
        if is_listed(attribute, _TABLE["ignored"]["names"]):
            if not cell.why:
                value = cell.value.name if isinstance(cell.value, DottedName) else cell.value
                found.ignored.append(option.evolve(value=value))
            return
        value = cell.value
        if isinstance(value, DottedName) and value.name in _TABLE["constants"]:
            option = option.evolve(assumption=f"{VERSION}: {value.name}")
            value = _TABLE["constants"][value.name]
        if isinstance(value, Entity) and value.kind.startswith("?"):
            value = UnreadValue(f"`{value.kind[1:]}` is a function of another file")
        if isinstance(value, Entity):
            if not cell.why:
                found.ignored.append(option)
            return
        if value is None:
            found.options.pop(name, None)
            if not cell.why:
                found.ignored.append(option)
            return
        before = found.options.get(name)
        if name == "use_distributed_optimizer" and before is not None and before.text == "true":
            return  # one of both sections turns it on
        texts, unread = _texts(name, value)
        if section == "tokenizer" and (found.model is not None or before is not None):
            why = "the vocabulary of the model is used"
            found.ignored.append(option.evolve(assumption=why))
            return
        if renamed.startswith("not ") and texts in (("true",), ("false",)):
            texts = ("false",) if texts == ("true",) else ("true",)
        found.options[name] = option.evolve(texts=texts, value=value, unread=unread)

    def _option(self, name: str, cell: Cell) -> Option:
        start, end = self._place(cell.node)
        return Option(name=name, key=cell.key, start=start, end=end)

    def _doubt(self, name: str, node: ast.AST) -> None:
        start, end = self._place(node)
        one = Option(name="", key=name, start=start, end=end, unread=_ELSEWHERE)
        if one not in self._found.doubts:
            self._found.doubts.append(one)


def _beginnings(name: str) -> Sequence[str]:
    """Return the prefixes of a name that end at a word, longest first.

    >>> _beginnings("llama3_70b")
    ['llama3_70b', 'llama3']
    """
    words = name.split("_")
    return ["_".join(words[:count]) for count in range(len(words), 0, -1)]


def _class_cells(name: str, node: ast.AST) -> dict[str, Cell]:
    """Return the attributes that a provider class sets, if the table has them."""
    values = _CLASSES["classes"].get(name, {})
    return {one: Cell(it, node, name, f"{VERSION}: {name}") for one, it in values.items()}


def _rejection(name: str) -> str:
    """Return the reason why a model is not supported, by the words of its name; "" if it is."""
    words = [one.lower() for one in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    known = _TABLE["rejected_models"]
    named = (why for pattern, why in _CLASSES["rejected"].items() if fnmatchcase(name, pattern))
    return next((str(known[one]) for one in words if one in known), "") or next(named, "")


def library_recipes() -> Sequence[str]:
    """Return the names of the recipes whose settings are known."""
    return [name for name in table("bridge_recipes") if name.endswith("_config")]


def _base(name: str, depth: int = 0) -> Mapping[str, Any] | None:
    """Return the settings of a library function, by section and attribute; None if unknown."""
    found = _TABLE["bases"].get(name) or table("bridge_recipes").get(name)
    if found is None or depth > 4:
        return None
    start = _base(found["extends"], depth + 1) if "extends" in found else {}
    return {**(start or {}), **{path: one for path, one in found.items() if path != "extends"}}


def _precision_entity(name: str, node: ast.AST, key: str = "", why: str = "") -> Entity:
    """Return the configuration of a named mixed-precision recipe."""
    parts = _TABLE["precisions"][name]
    shown = key or f"{name}()"
    return Entity(_PRECISION, node, {one: Cell(v, node, shown, why) for one, v in parts.items()})


def _has_precision(options: Mapping[str, Option]) -> bool:
    return any(name in options for name in ("bf16", "fp16", "fp8_format", "fp4_format"))


def _optimizer_entities(name: str, node: ast.Call) -> list[Entity]:
    """Return the two configurations that a function of distributed optimizers returns."""
    set_here: Mapping[str, Any] = {"use_distributed_optimizer": True}
    if "muon" in name:
        set_here = {"optimizer": "dist_muon"}
    why = f"{VERSION}: {name}"
    parts = {one: Cell(it, node, f"{name}()", why) for one, it in set_here.items()}
    return [Entity("OptimizerConfig", node, parts), Entity("SchedulerConfig", node)]


def _texts(name: str, value: Any) -> tuple[Sequence[str], str]:
    """Return a value as the texts of a flag, and the reason if it is unknown.

    >>> _texts("bf16", True), _texts("recompute_modules", ["mlp"]), _texts("seq_length", 8)
    ((('true',), ''), (('mlp',), ''), (('8',), ''))
    """
    if isinstance(value, UnreadValue):
        before, _ = _texts(name, value.before) if value.before is not None else ((), "")
        return before, value.why
    if isinstance(value, DottedName):
        last = value.name.rpartition(".")[2]
        if last.isupper():
            return (), f"`{last}` is a constant of another file"
        return (_TYPES.get(last, last),), ""
    if isinstance(value, bool):
        return ("true" if value else "false",), ""
    if isinstance(value, list):
        unread = next(_unread_reasons(value), "")
        if name == _LAYOUT and value and all(isinstance(one, list) for one in value):
            return (_stage_letters(value),), unread
        if name in PATTERNS:
            return (f"[{','.join(str(one) for one in value)}]",), unread
        return tuple(str(one) for one in value), unread
    if isinstance(value, (int, float, str)):
        return (str(value),), ""
    return (), "it is code, which parcost does not run"


def _stage_letters(stages: Sequence[Sequence[Any]]) -> str:
    """Return lists of the modules of each stage in the notation of Megatron-LM.

    >>> _stage_letters([["embedding", "decoder"], ["decoder", "mtp", "loss"]])
    'Et|tmL'
    """
    return "|".join("".join(_MODULES.get(str(one), "?") for one in stage) for stage in stages)


def _unread_reasons(values: Sequence[Any]) -> Iterator[str]:
    for one in values:
        if isinstance(one, UnreadValue):
            yield one.why
        elif not isinstance(one, (int, float, str, list)):
            yield "it is code, which parcost does not run"
