"""``python -m pumice.hdf5``: what programs outside of Python need to use the filter."""

import argparse
import sys

from .. import errors
from . import FILTER_ID, parameters, plugin_path
from ._variables import float_variables

# Stands for the names of variables that were not given. No name may be left out: h5repack and nccopy would then compress
# coordinates too, and fail at the first variable that has no floats.
_PLACEHOLDER = "VARIABLE"


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
        "--fill", type=float, action="append", metavar="V", help="a value that means no data; up to 4 times"
    )
    names = parser.add_mutually_exclusive_group()
    names.add_argument("--variable", action="append", metavar="NAME", help="a variable to compress; may be repeated")
    names.add_argument(
        "--file", metavar="FILE", help="compress all variables of 32-bit and 64-bit floats in it that are no coordinates"
    )
    what = ["plugin-path", "h5repack", "nccopy", "parameters"]
    parser.add_argument("--print", choices=what, help="only this, for use in scripts")
    args = parser.parse_args()
    options = {name: getattr(args, name) for name in ("abs", "rel", "pwrel", "psnr", "l2", "ratio", "preset")}
    if not any(value is not None for name, value in options.items() if name != "preset"):
        args.lossless = True
    try:
        cd_values = parameters(
            **options,
            lossless=args.lossless,
            stable=args.stable,
            value_range=args.range and tuple(args.range),
            fill_value=args.fill,
        )
        variables = args.variable or []
        if args.file is not None:
            variables = float_variables(args.file)
            if not variables:
                raise errors.InvalidArgumentError(f"{args.file} has no variable of 32-bit or 64-bit floats to compress")
        elif not variables and args.print in ("h5repack", "nccopy"):
            raise errors.InvalidArgumentError(
                f"name what to compress: --file IN for all floats that are no coordinates, or --variable NAME; "
                f"{args.print} would otherwise change coordinates, and fail at integers"
            )
        variables = variables or [_PLACEHOLDER]
        numbers = ",".join(map(str, cd_values))
        lines = {
            "plugin-path": plugin_path(),
            "h5repack": f"{','.join(variables)}:UD={FILTER_ID},0,{len(cd_values)},{numbers}",
            # One option for each: nccopy 4.9 ignores lists of names. It knows variables of groups by their whole path.
            "nccopy": " ".join(
                f"-F {'/' if '/' in name else ''}{name.removeprefix('/')},{FILTER_ID},{numbers}" for name in variables
            ),
            "parameters": numbers,
        }
    except errors.PumiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    if args.print:
        print(lines[args.print])
        return 0
    hdf5, netcdf = (args.file, args.file) if args.file else ("in.h5", "in.nc")
    print(f"export HDF5_PLUGIN_PATH={lines['plugin-path']}")
    print(f"h5repack -f '{lines['h5repack']}' {hdf5} out.h5")
    print(f"nccopy {lines['nccopy']} {netcdf} out.nc")
    print(f"filter id {FILTER_ID}, {len(cd_values)} parameters: {numbers}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
