"""Shell scripts, read as far as they are constant, and never run.

Importers of tools with launch scripts use it in two steps::

    from parcost_formats.tools.shell.launches import launches
    from parcost_formats.tools.shell.scripts import read_script

    script = read_script(file.text, dict(file.options.environment), file.neighbor, file.name)
    for launch in launches(script):
        if launch.name == "verl.trainer.main_ppo":
            ...  # launch.arguments, launch.launcher, launch.environment

``read_script`` follows assignments, arrays, tests, loops, functions, sourced files and commands in
strings. It returns commands, variables, and options of the scheduler. Each word is a
``ShellField``: its *text*, its place in the file, and two notes. *unread* is why a word is not
known, with *answers* to copy, such as ``--set-env DTYPE=fp8``. *assumption* is why a word is
taken: a default of the script.

A test that constants do not decide is no guess. A setting that all branches share holds. Others
are in *conditional*, with the test's own values as answers. ``launches`` finds the program behind
``torchrun``, ``srun``, ``accelerate launch``, ``deepspeed``, ``ray job submit`` and the like.

A script that becomes too much raises ``ShellTextError``. It may have 300,000 words and 8 MB of text
beyond its own size. Commands nest 40 deep, and a ``while`` loop has 1,000 rounds.
"""
