"""The subcommands that `cargo xtask corpus` uses.

    plan OUTPUT [NAME...]         what is needed for the arrays that the folder does not have, a line each
    make CACHE OUTPUT [NAME...]   makes them from the archives and simulated fields of a folder
    check OUTPUT                  docs/data.md shows the table, and the arrays that are there have the right bytes
    table                         writes the table into docs/data.md
"""

import sys
import tempfile
from pathlib import Path

from . import archives, build, document
from .table import ARRAYS

DOCUMENT = Path(__file__).parents[2] / "docs/data.md"


def select(names):
    """The arrays of these names, with or without extents; all if none is named."""
    known = {name: array for array in ARRAYS for name in (array.name, array.file)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise build.CorpusError(f"no array {', '.join(unknown)}; docs/data.md lists all")
    wanted = {known[name].name for name in names}
    return [array for array in ARRAYS if not names or array.name in wanted]


def plan(output, names):
    missing = [array for array in select(names) if not build.is_made(array, output)]
    packages = dict.fromkeys(array.package for array in missing if array.package)
    for package in packages:
        print(package.kind, package.name, package.version, archives.file_name(package), sep="\t")
    for simulator in dict.fromkeys(array.simulator for array in missing if array.simulator):
        print("simulate", simulator, sep="\t")


def make(cache, output, names):
    output.mkdir(parents=True, exist_ok=True)
    arrays = select(names)
    missing = [array for array in arrays if not build.is_made(array, output)]
    for package in dict.fromkeys(array.package for array in missing):
        of_package = [array for array in missing if array.package == package]
        if package:
            make_from(package, of_package, cache, output)
        else:
            for array in of_package:
                finish(array, (cache / array.file).read_bytes(), output)
    n_made = build.write_index(ARRAYS, output)
    print(f"{len(missing)} made, {len(arrays) - len(missing)} were there; {output}/INDEX.tsv lists {n_made}")


def make_from(package, arrays, cache, output):
    archive = cache / archives.file_name(package)
    try:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            archives.unpack(package, archive, {array.path for array in arrays}, folder)
            for array in arrays:
                finish(array, build.extract(array, folder), output)
    except (archives.ArchiveError, build.CorpusError) as error:
        raise build.CorpusError(f"{error}; remove {archive} to fetch it again") from error


def finish(array, data, output):
    build.check(array, data)
    build.write(output / array.file, data)
    print(f"{array.file}: {array.sha256[:12]}", flush=True)


def check(output):
    document.check(DOCUMENT.read_text(encoding="utf-8"), ARRAYS)
    print(f"docs/data.md shows all {len(ARRAYS)} arrays")
    there = [array for array in ARRAYS if (output / array.file).exists()]
    for array in there:
        build.check(array, (output / array.file).read_bytes())
    print(f"{output}: {len(there)} of {len(ARRAYS)} arrays are there and have the right sha256")


def main(arguments):
    match arguments:
        case ["plan", output, *names]:
            plan(Path(output), names)
        case ["make", cache, output, *names]:
            make(Path(cache), Path(output), names)
        case ["check", output]:
            check(Path(output))
        case ["table"]:
            text = DOCUMENT.read_text(encoding="utf-8")
            build.write(DOCUMENT, document.with_table(text, ARRAYS).encode())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (build.CorpusError, document.DocumentError) as error:
        sys.exit(f"error: {error}")
