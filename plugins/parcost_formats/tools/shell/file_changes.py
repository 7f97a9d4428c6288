"""The files that a command of a shell script may write, by the words of the command."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

_READING = {
    *("cat", "head", "tail", "less", "more", "grep", "egrep", "fgrep", "ls", "test", "[", "stat"),
    *("wc", "diff", "cmp", "md5sum", "sha256sum", "file", "du", "jq", "echo", "printf", "source"),
    *(".", "chmod", "chown", "touch", "mkdir", "cd", "basename", "dirname", "realpath", "exit"),
    *("readlink", "torchrun", "deepspeed", "axolotl", "swift", "llamafactory-cli", "trl"),
}
#: Programs that write a file only with one of these words.
_WRITING_WORDS = {
    **dict.fromkeys(("sed", "yq", "awk", "gawk"), r"-[a-zA-Z]*i.*|--in-?place.*|inplace"),
    "accelerate": "config",
    "tune": "cp",
}
_IN_PLACE = ("sed", "perl", "yq", "awk", "gawk")
_OUTPUTS = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document")}
_OUTPUT = re.compile(r"-o|of|--(?:out(?:put)?|dest(?:ination)?|dst|save|write)(?:[_-]\w+)*")
_OPENED = re.compile(
    r"open\(\s*[rf]?([\"'])([^\"'\n]+)\1\s*,\s*(?:mode\s*=\s*)?[\"'][wa]"
)  # in Python
#: Endings of files that decide a job: configurations and scripts.
DECIDING = (".json", ".yaml", ".yml", ".toml", ".sh", ".bash", ".sbatch", ".slurm")
_CONFIGURATIONS = tuple(f"*{one}" for one in DECIDING if "y" in one or one in (".json", ".toml"))
#: Editors that write all files that they name, from which word on.
_EDITORS = {"ed": 0, "ex": 0, "sd": 2, "patch": 0}
_RESTORING = ("checkout", "restore")  # of git: files that they name
_CHANGING = ("apply", "am", "stash")  # of git: files that they do not name
_OPENED_BY_NAME = re.compile(
    r"open\(\s*\w[^,()]*,[^()]*[\"'][wa]|\.write_text\(|\bdump\(|\bshutil\.\w+\(|\bos\.(?:rename|replace)\("
)
_STRING = re.compile(r"([\"'])([^\"'\n]+)\1")
_PREFIXES = {
    *("sudo", "srun", "pdsh", "docker", "xargs", "find", "mpirun", "ssh", "time", "env"),
    *("nice", "ionice", "timeout", "stdbuf", "setsid", "aws", "gsutil", "gcloud", "rclone"),
}
_COPYING = ("cp", "mv", "install", "ln", "rsync", "scp", "sync", "copy")
#: Programs that unpack an archive: words without which they do not, and options before a folder.
_UNPACKING = {
    "tar": (r"-?[a-zA-Z]*x[a-zA-Z]*|--extract|--get", ("-C", "--directory")),
    "bsdtar": (r"-?[a-zA-Z]*x[a-zA-Z]*|--extract", ("-C", "--directory")),
    "unzip": (r".*", ("-d",)),
    **dict.fromkeys(("7z", "7za", "7zz"), (r"[ex]", ("-o",))),
    "cpio": (r"-[a-z]*i[a-z]*|--extract", ("-D", "--directory")),
}
_ARCHIVE = re.compile(r".*\.(?:tar(?:\.\w+)?|t[gbx]z2?|zip|7z|cpio)|-")
_LONG = 1000  # characters of a line in which no command is looked for
_SAVING = ("tee", "sponge", "rm", "unlink")  # write their input into files, or remove them
_HERE = re.compile(r"^\$\{?PWD\b\}?(?=/|$)")
_WRITING = {*_IN_PLACE, *_COPYING, *_SAVING}


def may_change(path: str, words: Sequence[str], document: str = "") -> bool:
    """Return whether a command may write a file: its words or its here-document name the file.

    >>> may_change("ds.json", ["sed", "-i", "s/2/3/", "ds.json"])
    True
    >>> may_change("ds.json", ["cat", "ds.json"]), may_change("ds.json", ["cp", "ds.json", "out/"])
    (False, False)
    """
    program, rest = posixpath.basename(words[0]), words[1:]
    if program in _READING:
        return False
    writing = _WRITING_WORDS.get(program)
    if writing is not None and not any(re.fullmatch(writing, one) for one in rest):
        return False
    if program in _COPYING and ("-t" not in rest or program == "rsync"):
        return _copies_to(path, program, operands_of(program, rest))
    if program == "git" and {".", "--hard"} & {*rest} and {*_RESTORING, "reset"} & {*rest}:
        return True
    name = posixpath.basename(path)
    named = rf"(?:^-\w|(?<![\w.-])){re.escape(name)}(?![\w-]|\.\w)"
    if any(name in one and re.search(named, one) for one in (*rest, document)):
        return True
    patterns = (posixpath.basename(one) for one in rest if re.search(r"[*?]", one))
    return any(fnmatchcase(name, one) for one in patterns)


def written_paths(words: Sequence[str], document: str = "") -> Sequence[str]:
    """Return the files, by path or pattern, that a program writes according to its words.

    >>> written_paths(["tee", "a.json"]), written_paths(["cp", "conf/b.json", "."])
    (['a.json'], ['b.json'])
    >>> written_paths(["cp", "-r", "a", "old"]), written_paths(["tar", "xf", "a.tar", "-C", "b"])
    (['old/'], ['b/'])
    """
    program, rest = posixpath.basename(words[0]), words[1:]
    if program in _PREFIXES:
        return _paths_behind(program, rest, document)
    plain = [one for one in rest if not one.startswith("-")]
    if program in _IN_PLACE:
        writing = _WRITING_WORDS.get(program, r"-[a-zA-Z]*i.*")
        is_written = any(re.fullmatch(writing, one) for one in rest)
        return _widen(plain) if is_written else []
    if program in _EDITORS:
        named = plain[_EDITORS[program] :]
        return _widen(named) or _CONFIGURATIONS
    if program == "git":
        return _paths_of_git(plain)
    if program in _SAVING:
        return [*plain, *_folders(plain)]
    if program in _UNPACKING:
        return _unpacked_paths(program, rest)
    if program.startswith("python"):
        texts = (*rest, document)
        opened = [one[1] for text in texts for one in _OPENED.findall(text)]
        if any(_OPENED_BY_NAME.search(text) for text in texts):
            strings = [one[1] for text in texts for one in _STRING.findall(text)]
            opened += [one for one in (*strings, *rest) if one.endswith(DECIDING)]
        return [*map(_pattern_of_python, opened), *_output_files(rest)]
    if program in _OUTPUTS:
        named = [other for one, other in pairwise(rest) if one in _OUTPUTS[program]]
        return named or [posixpath.basename(one) for one in plain if "://" in one]
    if program not in _COPYING:
        return _output_files(rest)
    operands = operands_of(program, rest)
    copied = _copied_paths(program, operands) if len(operands) > 1 else []
    moved = [*plain, *_folders(plain)] if program == "mv" else []
    return [*moved, *copied]


def operands_of(program: str, words: Sequence[str]) -> Sequence[str]:
    """Return the operands of a program that copies files, the target last.

    >>> operands_of("cp", ["-t", ".", "a.json"]), operands_of("rsync", ["-t", "a.json", "."])
    (['a.json', '.'], ['a.json', '.'])
    """
    plain = [one for one in words if not one.startswith("-")]
    for flag, value in (*pairwise(words), *(one.partition("=")[::2] for one in words)):
        if program != "rsync" and flag in ("-t", "--target-directory"):
            return [*(one for one in plain if one != value), value]
    return plain


def _pattern_of_python(text: str) -> str:
    """Return the path or pattern of a string in Python.

    >>> _pattern_of_python("{n}.json"), _pattern_of_python(".json"), _pattern_of_python("a.json")
    ('*.json', '*.json', 'a.json')
    """
    return f"*{text}" if text in DECIDING else re.sub(r"\{[^}]*\}", "*", text)


def _widen(paths: Sequence[str]) -> Sequence[str]:
    """Return the paths, with a pattern of all configurations for an unknown name.

    >>> _widen(["ds.json"]), _widen(["$f"])[1:]
    (['ds.json'], ('*.yaml', '*.yml', '*.toml'))
    """
    names = [posixpath.basename(one) for one in paths]
    if any("$" in one and not one.endswith(DECIDING) for one in names):
        return _CONFIGURATIONS
    parts = zip(paths, names, strict=True)
    return [
        f"*{posixpath.splitext(name)[1]}"
        if "$" in name
        else posixpath.join(posixpath.dirname(one), re.sub(r"\[[^]]*\]|\?", "*", name))
        for one, name in parts
    ]


def _paths_of_git(words: Sequence[str]) -> Sequence[str]:
    """Return the files that a command of git may change."""
    if words[:1] and words[0] in _CHANGING:
        return _CONFIGURATIONS
    named = words[1:] if words[:1] and words[0] in _RESTORING else []
    return _widen([one for one in named if one.endswith(DECIDING)])


def _paths_behind(program: str, words: Sequence[str], document: str) -> Sequence[str]:
    """Return the files that a command behind a prefix such as ``sudo`` or ``find`` writes."""
    at = next((at for at, one in enumerate(words) if one in _WRITING), len(words))
    if at == len(words):
        return []
    found = written_paths(words[at:], document)
    if program in ("find", "xargs") and words[at] in _IN_PLACE and found:
        names = [other for one, other in pairwise(words) if one in ("-name", "-iname")]
        return names or [f"*{ending}" for ending in DECIDING]
    return found


def _copied_paths(program: str, operands: Sequence[str]) -> Sequence[str]:
    """Return the files that a command copies to a known path, or into this folder."""
    *sources, target = operands
    if target.endswith(DECIDING):
        is_same = "$" in target and posixpath.basename(sources[-1]) == posixpath.basename(target)
        return [] if is_same else [target]
    if posixpath.normpath(_HERE.sub(".", target)) != ".":
        return _folders([target])
    whole = (".", "*", *([""] if program == "rsync" else []))
    if any(posixpath.basename(one) in whole and one[0] not in "/~$" for one in sources):
        return _CONFIGURATIONS
    names = [posixpath.basename(one.rpartition(":")[2]) for one in sources]
    return [*names, *_folders(names)]


def _unpacked_paths(program: str, words: Sequence[str]) -> Sequence[str]:
    """Return the folder into which an archive is unpacked, or all configurations for this one."""
    sign, options = _UNPACKING[program]
    if not any(re.fullmatch(sign, one) for one in words) or "-l" in words:
        return []
    pairs = (*pairwise(words), *((one[: len(o)], one[len(o) :]) for one in words for o in options))
    target = next((path for flag, path in pairs if flag in options and path), ".").lstrip("=")
    if posixpath.normpath(_HERE.sub(".", target)) != ".":
        return _folders([target])
    archive = next((at for at, one in enumerate(words) if _ARCHIVE.fullmatch(one)), len(words))
    members = [one for one in words[archive + 1 :] if one[:1] != "-"]
    return [*members, *_folders(members)] or _CONFIGURATIONS


def _folders(paths: Sequence[str]) -> Sequence[str]:
    """Return the paths that may be folders, with a slash, because all files in them may change."""
    return [
        f"{one.rstrip('/')}/" for one in paths if one.strip("./") and not one.endswith(DECIDING)
    ]


def may_write(text: str, name: str) -> bool:
    """Return whether commands in *text* may write the file that a variable names.

    >>> may_write('sed -i s/2/3/ "$f"', "f"), may_write("cat $f", "f")
    (True, False)
    """
    value = rf"[\"']?\$\{{?{re.escape(name)}\b"
    forms = (
        rf"\b(?:sed|perl|yq|awk|gawk)\b.*\s-[\w-]*i.*{value}",
        rf">\s*{value}",
        rf"\b(?:cp|mv|tee|install|rsync)\b.*{value}",
    )
    lines = [line for line in text.split("\n") if f"${name}" in line or f"${{{name}" in line]
    return any(len(line) > _LONG or re.search(one, line) for line in lines for one in forms)


def _output_files(words: Sequence[str]) -> Sequence[str]:
    """Return the output files of options, if a job may read these files."""
    pairs = (*pairwise(words), *(one.partition("=")[::2] for one in words))
    return [path for flag, path in pairs if _OUTPUT.fullmatch(flag) and path.endswith(DECIDING)]


def is_target(path: str, target: str, *, is_read: bool) -> bool:
    """Return whether *target* is the file *path*; compare only the names if it is not read."""
    if is_read:
        return posixpath.normpath(target) == path
    return posixpath.basename(target) == posixpath.basename(path)


def _copies_to(path: str, program: str, operands: Sequence[str]) -> bool:
    """Return whether a command that copies or moves files writes *path*, or moves it away."""
    *sources, target = operands or [""]
    if path in map(posixpath.normpath, sources):
        return program == "mv"
    known = "$" not in target
    if is_target(path, target, is_read=known):
        return True
    inside = not known or posixpath.normpath(target) == (posixpath.dirname(path) or ".")
    name = posixpath.basename(path)
    names = [posixpath.basename(one) for one in sources]
    return inside and any(one in ("", ".") or fnmatchcase(name, one) for one in names)
