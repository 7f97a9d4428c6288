"""Shell scripts, evaluated as far as they are constant, and never executed.

Importers of tools with launch scripts use it in two steps::

    from parcost_formats.tools.shell.launches import launches
    from parcost_formats.tools.shell.script_files import read_script_file

    script = read_script_file(file)
    for launch in launches(script):
        if launch.name == "verl.trainer.main_ppo":
            ...  # launch.arguments, launch.launcher, launch.environment

It follows assignments, arrays, tests, loops, functions, sourced files and commands in
strings. It returns commands, variables, and options of the scheduler. Each word is a
``ShellField``: its *text*, its place in the file, and two notes. *unread* is the reason why a word
is unknown, with *answers* to copy, such as ``--set-env DTYPE=fp8``. *assumption* is the reason why
a word is assumed: a default of the script.

If the result of a test does not follow from constants, it is undecided. Settings common to all
branches are certain. Others are in *conditional*, with the values of the test as answers.
``launches`` finds the program behind ``torchrun``, ``srun``, ``accelerate launch``, ``deepspeed``,
``ray job submit`` and the like.

A script whose expansion is too large raises ``ShellTextError``. The limits are 300,000 words and 8
MB of text beyond its own size; 40 levels of nesting; and 1,000 rounds of a ``while`` loop.
"""
