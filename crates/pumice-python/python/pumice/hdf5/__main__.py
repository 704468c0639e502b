"""``python -m pumice.hdf5``: what programs outside of Python need to use the filter."""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence

from .. import errors
from . import FILTER_ID, MAX_FILLS, parameters, plugin_path
from ._variables import Variable, float_variables

# Stands for the names of variables that were not given. No name may be left out: h5repack and nccopy would then compress
# coordinates too, and fail at the first variable that has no floats.
_PLACEHOLDER = "VARIABLE"

# What nccopy wants a backslash before, in the names of variables.
_SPECIAL = frozenset("!\"#$%&'()*,:;<=>?[]\\^`{|}~")

Parameters = Callable[[Sequence[float]], tuple[int, ...]]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pumice.hdf5",
        description="Prints what h5repack, nccopy and other programs need to use the Pumice filter.",
        epilog='Example: nccopy $(python -m pumice.hdf5 --rel 1e-3 --file in.nc --print nccopy) in.nc out.nc',
    )
    bounds = parser.add_mutually_exclusive_group()
    for name, meaning in [
        ("abs", "no value changes by more than this"),
        ("rel", "no value changes by more than this times the range of its chunk, or --range"),
        ("pwrel", "no value changes by more than this times its own magnitude"),
        ("psnr", "every chunk has a PSNR of at least this many dB"),
        ("l2", "the error of every chunk has at most this L2 norm"),
        ("ratio", "every chunk becomes at least this many times smaller"),
    ]:
        bounds.add_argument(f"--{name}", type=float, metavar="E", help=meaning)
    bounds.add_argument("--lossless", action="store_true", help="no bit changes")
    parser.add_argument("--preset", help="fast, balanced, small (the default), max, …")
    parser.add_argument(
        "--stable",
        action=argparse.BooleanOptionalAction,
        help="values that are compressed again keep their bits, or need not; by default, where that costs little",
    )
    parser.add_argument("--range", type=float, nargs=2, metavar=("MIN", "MAX"), help="what --rel refers to")
    parser.add_argument(
        "--fill",
        type=float,
        action="append",
        metavar="V",
        help="a value that means no data, instead of those of missing_value and _FillValue in --file; up to 4 times",
    )
    names = parser.add_mutually_exclusive_group()
    names.add_argument("--variable", action="append", metavar="NAME", help="a variable to compress; may be repeated")
    names.add_argument(
        "--file", metavar="FILE", help="compress all variables of 32-bit and 64-bit floats in it that are no coordinates"
    )
    what = ["plugin-path", "h5repack", "nccopy", "parameters"]
    parser.add_argument("--print", choices=what, help="only this, for use in scripts")
    args = parser.parse_args()
    bound = {name: getattr(args, name) for name in ("abs", "rel", "pwrel", "psnr", "l2", "ratio")}
    if not any(value is not None for value in bound.values()):
        bound["lossless"] = True

    def parameters_for(declared: Sequence[float]) -> tuple[int, ...]:
        """The parameters for variables that declare these fill values."""
        return parameters(
            **bound,
            preset=args.preset,
            stable=args.stable,
            value_range=args.range and tuple(args.range),
            fill_value=args.fill or declared,
        )

    try:
        for line in _lines(args, parameters_for):
            print(line)
    except errors.PumiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    return 0


def _lines(args: argparse.Namespace, parameters_for: Parameters) -> list[str]:
    """What to print."""
    cd_values = parameters_for(())
    variables = [_only_named(path) for path in args.variable or []]
    if args.file is not None:
        variables = [v._replace(fills=[]) if args.fill else v for v in float_variables(args.file)]
        if not variables:
            raise errors.InvalidArgumentError(f"{args.file} has no variable of 32-bit or 64-bit floats to compress")
    elif not variables and args.print in ("h5repack", "nccopy"):
        raise errors.InvalidArgumentError(
            f"name what to compress: --file IN for all floats that are no coordinates, or --variable NAME; "
            f"{args.print} would otherwise change coordinates, and fail at integers"
        )
    variables = variables or [_only_named(_PLACEHOLDER)]
    match args.print:
        case "plugin-path":
            return [plugin_path()]
        case "parameters":
            return [_joined(cd_values)]
        case "h5repack":
            return [_for_h5repack(variables, parameters_for)]
        case "nccopy":
            return [" ".join(f"-F {spec}" for spec in _for_nccopy(variables, parameters_for))]
    lines = [f"export HDF5_PLUGIN_PATH={shlex.quote(plugin_path())}"]
    try:
        spec = shlex.quote(_for_h5repack(variables, parameters_for))
        lines.append(f"h5repack -f {spec} {shlex.quote(args.file or 'in.h5')} out.h5")
    except errors.InvalidArgumentError as error:
        lines.append(f"# not for h5repack: {error}")
    try:
        specs = " ".join(f"-F {shlex.quote(spec)}" for spec in _for_nccopy(variables, parameters_for))
        lines.append(f"nccopy {specs} {shlex.quote(args.file or 'in.nc')} out.nc")
    except errors.InvalidArgumentError as error:
        lines.append(f"# not for nccopy: {error}")
    return [*lines, f"filter id {FILTER_ID}, {len(cd_values)} parameters: {_joined(cd_values)}"]


def _only_named(path: str) -> Variable:
    """A variable of which only the path is known."""
    path = path.removeprefix("/")
    return Variable(path, path, None, (), False, [], False, False)


def _joined(cd_values: tuple[int, ...]) -> str:
    return ",".join(map(str, cd_values))


def _for_h5repack(variables: list[Variable], parameters_for: Parameters) -> str:
    """The argument of `-f`. There are only one for all variables, which names the fill values of all: a value that means
    nothing in another variable is kept exactly there.
    """
    _refuse([v.stored_path for v in variables if {",", ":"} & {*v.stored_path}], "h5repack ends names at commas and colons")
    fills = list({fill: None for v in variables for fill in v.fills})
    if len(fills) > MAX_FILLS:
        _refuse([v.path for v in variables if v.fills], f"h5repack has room for {MAX_FILLS} fill values, not {len(fills)}")
    cd_values = parameters_for(fills)
    names = ",".join(v.stored_path for v in variables)
    return f"{names}:UD={FILTER_ID},0,{len(cd_values)},{_joined(cd_values)}"


def _for_nccopy(variables: list[Variable], parameters_for: Parameters) -> list[str]:
    """The arguments of `-F`: one for each variable, since nccopy 4.9 ignores lists of names."""
    _refuse(
        [v.path for v in variables if any(map(str.isspace, v.path))],
        "the shell takes the printed options apart at the spaces of names",
    )
    copy_first = "first `nccopy -F none IN PLAIN`, then give the name of that file"
    _refuse([v.path for v in variables if v.is_deflated], "nccopy ignores filters for deflated variables", copy_first)
    _refuse([v.path for v in variables if v.has_checksums], "nccopy puts fletcher32 before other filters", copy_first)
    return [f"{_escaped(v.path)},{FILTER_ID},{_joined(parameters_for(v.fills))}" for v in variables]


def _refuse(names: list[str], why: str, advice: str = "name the others by --variable, or use `pumice convert`") -> None:
    if names:
        raise errors.InvalidArgumentError(f"{why}: {', '.join(map(repr, names))}; {advice}")


def _escaped(path: str) -> str:
    """A path as nccopy knows it: with a slash at its start if the variable is in a group, and the name as in CDL."""
    group, slash, name = path.rpartition("/")
    escaped = "".join("\\" * (c in _SPECIAL) + c for c in name)
    return ("/" + group + slash if group else "") + "\\" * name[:1].isdigit() + escaped


if __name__ == "__main__":
    sys.exit(main())
