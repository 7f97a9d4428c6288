"""All blocks, formulas and algorithms of parcost, a folder per subject.

``vocabulary`` declares the blocks and records that several plugins share; every other module
imports ``parcost`` and ``vocabulary`` and nothing from its neighbours. So each can be removed
(``--without``) or replaced from outside.
"""
