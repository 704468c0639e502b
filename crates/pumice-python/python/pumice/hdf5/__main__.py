"""``python -m pumice.hdf5``: what programs outside of Python need to use the filter."""

import argparse
import sys

from .. import errors
from . import FILTER_ID, parameters, plugin_path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pumice.hdf5",
        description="Prints what h5repack, nccopy and other programs need to use the Pumice filter.",
        epilog='Example: h5repack -f "$(python -m pumice.hdf5 --rel 1e-3 --print h5repack)" in.h5 out.h5',
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
    parser.add_argument("--range", type=float, nargs=2, metavar=("MIN", "MAX"), help="what --rel refers to")
    parser.add_argument("--fill", type=float, metavar="V", help="the value that means no data")
    parser.add_argument("--variable", default="", metavar="NAME", help="for this dataset or variable only")
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
            value_range=args.range and tuple(args.range),
            fill_value=args.fill,
        )
        numbers = ",".join(map(str, cd_values))
        lines = {
            "plugin-path": plugin_path(),
            "h5repack": (f"{args.variable}:" if args.variable else "") + f"UD={FILTER_ID},0,{len(cd_values)},{numbers}",
            "nccopy": f"{args.variable or '*'},{FILTER_ID},{numbers}",
            "parameters": numbers,
        }
    except errors.PumiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    if args.print:
        print(lines[args.print])
        return 0
    print(f"export HDF5_PLUGIN_PATH={lines['plugin-path']}")
    print(f"h5repack -f '{lines['h5repack']}' in.h5 out.h5")
    print(f"nccopy -F '{lines['nccopy']}' in.nc out.nc")
    print(f"filter id {FILTER_ID}, {len(cd_values)} parameters: {numbers}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
