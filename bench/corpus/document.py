"""The table of arrays in docs/data.md, between two marks."""

START, END = "<!-- arrays: written by `cargo xtask corpus --table` -->\n", "<!-- end of arrays -->\n"
HEADING = ("array", "type", "shape", "shows", "origin", "licence", "sha256")


class DocumentError(Exception):
    """docs/data.md does not show the table."""


def table(arrays):
    """Markdown."""
    rows = [HEADING, ("---",) * len(HEADING), *map(row, arrays)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(array):
    origin = f"{array.package}: `{array.path}`" if array.package else f"`{array.origin}`"
    return array.name, array.dtype, array.dims, array.shows, origin, array.licence, f"`{array.sha256[:12]}`"


def with_table(text, arrays):
    """The document with the table as it should be."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise DocumentError(f"there is no place for the table: {START.strip()} and {END.strip()} are missing")
    return f"{before}{START}\n{table(arrays)}\n{END}{after}"


def check(text, arrays):
    if with_table(text, arrays) != text:
        raise DocumentError("the table is not that of bench/corpus/table.py; run `cargo xtask corpus --table`")
