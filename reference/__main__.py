"""Command line of the independent decoder; run it from the repository root.

    python -m reference IN.pum -o OUT.npy         decode (any other suffix than .npy: raw little-endian values)
    python -m reference IN.pum --info             header and index as JSON
    python -m reference IN.pum --compare REF.npy  exit status 1 unless the bits are equal
    python -m reference IN.pum --chunk 3 -o OUT.raw
"""

import argparse
import json
import sys

import numpy as np

from . import FormatError, decode, decode_chunk, info


def compare(array, path):
    """Whether the file holds the same bits (and, for .npy, the same type and shape), and a sentence about it."""
    if path.endswith(".npy"):
        other = np.load(path)
        if (other.dtype, other.shape) != (array.dtype, array.shape):
            return False, f"different: {array.dtype} {array.shape} here, {other.dtype} {other.shape} in {path}"
    else:
        other = np.fromfile(path, np.uint8)
        if other.size != array.nbytes:
            return False, f"different: {array.nbytes} bytes here, {other.size} in {path}"
    uint = np.dtype(f"<u{array.itemsize}")
    ours, theirs = (np.frombuffer(a.tobytes(), uint) for a in (array, other))
    wrong = np.flatnonzero(ours != theirs)
    if wrong.size == 0:
        return True, f"equal: {array.size} values"
    i = wrong[0]
    return False, (f"different: {wrong.size} of {array.size} values; first at flat index {i}: "
                   f"{ours[i]:#x} here, {theirs[i]:#x} in {path}")


def main():
    parser = argparse.ArgumentParser("python -m reference", description="Decode a Pumice stream (independent decoder).")
    parser.add_argument("input")
    parser.add_argument("-o", "--output", help="OUT.npy, or any other suffix for raw little-endian values")
    parser.add_argument("--info", action="store_true", help="print header and index as JSON")
    parser.add_argument("--chunk", type=int, metavar="N", help="decode chunk N only")
    parser.add_argument("--compare", metavar="FILE", help=".npy or raw values; exit status 1 unless bits are equal")
    args = parser.parse_args()
    with open(args.input, "rb") as file:
        data = file.read()
    try:
        if args.info:
            print(json.dumps(info(data), indent=2))
            if not (args.output or args.compare):
                return 0
        array = decode(data) if args.chunk is None else decode_chunk(data, args.chunk)
    except (FormatError, IndexError) as error:
        print(f"{args.input}: {error}", file=sys.stderr)
        return 2
    if args.output and args.output.endswith(".npy"):
        np.save(args.output, array)
    elif args.output:
        array.tofile(args.output)
    if args.compare:
        equal, sentence = compare(array, args.compare)
        print(sentence)
        return 0 if equal else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
