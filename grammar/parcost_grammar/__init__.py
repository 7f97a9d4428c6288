"""The grammar of the .par language, as data."""

from importlib.resources import files

PAR = files(__package__).joinpath("par.lark").read_text(encoding="utf-8")
