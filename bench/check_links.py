"""Checks that every relative link of the Markdown pages leads to a file, and every #anchor to a heading.

`python -m bench.check_links` prints each broken link as page:line, and fails if there is one.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def blank(match: re.Match) -> str:
    """As many lines without code in them."""
    return "\n" * match[0].count("\n")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub(blank, page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def main() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pages = [ROOT / name for name in listed.split()]
    n_links, broken = 0, []
    for page in pages:
        text = FENCE.sub(blank, page.read_text())
        for match in LINK.finditer(text):
            target = match[1] or match[2]
            if re.match(r"[a-z]+:", target):
                continue
            n_links += 1
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            is_fine = found.exists() and (not anchor or (found.suffix == ".md" and anchor in anchors(found)))
            if not is_fine:
                line = text.count("\n", 0, match.start()) + 1
                broken.append(f"{page.relative_to(ROOT)}:{line}: {target}")
    print("\n".join([*broken, f"{len(pages)} pages, {n_links} relative links, {len(broken)} broken"]))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
