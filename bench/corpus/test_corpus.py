"""The table, the archives, the checks and docs/data.md; needs the standard library only."""

import contextlib
import hashlib
import io
import tarfile
import tempfile
import unittest
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

from . import __main__ as program
from . import archives, build, document
from .model import Array, Package
from .table import ARRAYS

DATA = bytes(8)
ARRAY = Array("zeros", "f32", (2,), "zeros", simulator="zeros --seed 1", sha256=hashlib.sha256(DATA).hexdigest())


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Table(unittest.TestCase):
    def test_every_array_is_complete_and_named_once(self):
        self.assertEqual(len({array.name for array in ARRAYS}), len(ARRAYS))
        for array in ARRAYS:
            with self.subTest(array.name):
                self.assertRegex(array.sha256, "^[0-9a-f]{64}$")
                self.assertRegex(array.file, r"^[A-Za-z0-9_]+_\d+(x\d+)*\.f(32|64)$")
                self.assertNotEqual(bool(array.package), bool(array.simulator))
                self.assertEqual(bool(array.package), bool(array.path and array.read))
                self.assertFalse(set("\t\n|") & set(array.shows + array.licence + array.origin))

    def test_names_select_with_or_without_extents(self):
        first, second = ARRAYS[:2]
        self.assertEqual(program.select([second.file, first.name]), [first, second])
        self.assertEqual(program.select([]), ARRAYS)
        with self.assertRaisesRegex(build.CorpusError, "no array nothing"):
            program.select([first.name, "nothing"])


class Document(unittest.TestCase):
    def test_docs_data_md_shows_the_table(self):
        document.check(program.DOCUMENT.read_text(encoding="utf-8"), ARRAYS)

    def test_another_table_is_an_error(self):
        text = document.with_table(f"before\n{document.START}{document.END}after\n", [ARRAY])
        document.check(text, [ARRAY])
        self.assertIn("zeros --seed 1", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        for other in ([], [replace(ARRAY, shows="ones")]):
            with self.assertRaisesRegex(document.DocumentError, "--table"):
                document.check(text, other)
        with self.assertRaisesRegex(document.DocumentError, "no place"):
            document.check("", [ARRAY])


class Checks(Folder):
    def test_other_bytes_are_an_error_with_both_hashes(self):
        build.check(ARRAY, DATA)
        with self.assertRaises(build.CorpusError) as caught:
            build.check(ARRAY, b"12345678")
        for part in (ARRAY.file, ARRAY.sha256, hashlib.sha256(b"12345678").hexdigest()):
            self.assertIn(part, str(caught.exception))

    def test_a_file_is_written_as_a_whole(self):
        path = self.folder / ARRAY.file
        self.assertFalse(build.is_made(ARRAY, self.folder))
        path.write_bytes(b"broken")
        self.assertFalse(build.is_made(ARRAY, self.folder))
        build.write(path, DATA)
        self.assertTrue(build.is_made(ARRAY, self.folder))
        self.assertEqual([file.name for file in self.folder.iterdir()], [ARRAY.file])


class Make(Folder):
    def test_a_simulated_array_is_checked_and_listed(self):
        """`make` with a table of one array: the second run finds it there; other bytes are an error."""
        cache, output = self.folder, self.folder / "out"
        with mock.patch.object(program, "ARRAYS", [ARRAY]), mock.patch.object(build, "index_row", lambda *_: ("row",)):
            (cache / ARRAY.file).write_bytes(b"12345678")
            with self.assertRaisesRegex(build.CorpusError, ARRAY.sha256):
                program.main(["make", str(cache), str(output)])
            self.assertFalse((output / ARRAY.file).exists())
            (cache / ARRAY.file).write_bytes(DATA)
            for summary in ("1 made, 0 were there", "0 made, 1 were there"):
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    program.main(["make", str(cache), str(output)])
                self.assertIn(summary, printed.getvalue())
        self.assertEqual((output / "INDEX.tsv").read_text().splitlines()[1:], ["row"])


class Archives(Folder):
    def test_an_sdist_is_unpacked_without_its_top_folder(self):
        package = Package("sdist", "some", "1.0", "MIT")
        archive = self.folder / archives.file_name(package)
        with tarfile.open(archive, "w:gz") as file:
            for name in ("some-1.0/data/a.bin", "some-1.0/b.bin"):
                member = tarfile.TarInfo(name)
                member.size = len(DATA)
                file.addfile(member, io.BytesIO(DATA))
        archives.unpack(package, archive, {"data/a.bin"}, self.folder / "out")
        self.assertEqual((self.folder / "out/data/a.bin").read_bytes(), DATA)
        self.assertFalse((self.folder / "out/b.bin").exists())
        with self.assertRaisesRegex(archives.ArchiveError, "some 1.0 has no file c"):
            archives.unpack(package, archive, {"data/a.bin", "c"}, self.folder / "out")
        archive.write_bytes(archive.read_bytes()[:40])
        with self.assertRaisesRegex(archives.ArchiveError, "damaged"):
            archives.unpack(package, archive, {"data/a.bin"}, self.folder / "out")

    def test_a_wheel(self):
        package = Package("wheel", "some", "1.0", "MIT")
        archive = self.folder / archives.file_name(package)
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("some/a.bin", DATA)
        archives.unpack(package, archive, {"some/a.bin"}, self.folder)
        self.assertEqual((self.folder / "some/a.bin").read_bytes(), DATA)


if __name__ == "__main__":
    unittest.main()
