"""``parcost docs``: the pages of the documentation, offline; the reference pages are generated
here.
"""
