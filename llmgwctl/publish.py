"""Files that others read while they are written: whole, or as they were before. One writer at a time."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from llmgwctl.model.errors import LlmgwError, UsageError

MARKER = ".llmgwctl-site"
EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS
AT_FDCWD = -100
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class Busy(LlmgwError):
    """Another llmgwctl is at the same file, and will be done with it soon."""


def write_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Written beside and renamed. Readable by others, since it is another account that reads it.

    A device or a pipe (/dev/null, /dev/stdout) gets the text; renaming over it would take it away from everybody.
    """
    try:
        if _is_special(path):
            _put(path, text)
        else:
            _put_in_place(path.resolve(), text, mode)
    except OSError as e:
        raise unwritable(path, e) from e


def unwritable(path: Path, e: OSError) -> LlmgwError:
    """What to raise for it: a path that cannot be is the caller's slip, a disk that is full is not."""
    kind = LlmgwError if e.errno in FULL else UsageError
    return kind(f"{path}: cannot be written: {e.strerror}")


def _is_special(path: Path) -> bool:
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)


def _put(path: Path, text: str) -> None:
    with contextlib.suppress(BrokenPipeError), path.open("w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(text)


def _put_in_place(path: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
            out.flush()
            os.fchmod(out.fileno(), _mode(path, mode))
            os.fsync(out.fileno())
        os.replace(name, path)
        _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _mode(path: Path, mode: int) -> int:
    """As it was, when it was there."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return mode


def _sync_folder(folder: Path) -> None:
    """So that the new name is on the disk too."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One at a time, over processes; the lock is gone with its holder, however that ends. Busy: another has it."""
    lock = path.with_name(f".{path.name}.lock")
    handle = _held(lock, path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()  # still held, so that nobody else can hold this very file
        os.close(handle)


def _held(lock: Path, path: Path) -> int:
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as e:
            raise unwritable(lock, e) from e
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(handle)
            raise Busy(f"another llmgwctl is at {path} now") from e
        if _is(handle, lock):
            return handle
        os.close(handle)  # its holder has removed it since we opened it


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat(follow_symlinks=False))
    except OSError:
        return False


def write_tree(directory: Path, files: Iterable[tuple[str, str]]) -> int:
    """A whole folder, written beside and put in the place of the old one; how many files it has.

    Only an empty folder, or one that this wrote before, is ever replaced. Busy: another one writes it now.
    """
    directory = directory.resolve()
    _may_replace(directory)
    with locked(directory):
        for left in directory.parent.glob(f".{directory.name}.new-*"):  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        beside = _beside(directory)
        try:
            count = _fill(beside, files)
            os.chmod(beside, _mode(directory, 0o755))
            _swap(beside, directory)
        except OSError as e:
            raise unwritable(directory, e) from e
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return count


def _beside(directory: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=f".{directory.name}.new-", dir=directory.parent))
    except OSError as e:
        raise unwritable(directory, e) from e


def _may_replace(directory: Path) -> None:
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        ours = not directory.exists() or (directory / MARKER).exists() or not any(directory.iterdir())
    except OSError as e:
        raise UsageError(f"{directory}: {e.strerror}") from e
    if not ours:
        raise UsageError(f"{directory} holds files that are no site of llmgwctl: give an empty or a new folder")


def _fill(directory: Path, files: Iterable[tuple[str, str]]) -> int:
    count = 0
    tree = directory.resolve()
    for name, text in (*files, (MARKER, "Written by llmgwctl site, and replaced as a whole by it.\n")):
        path = directory / name
        if not path.resolve().is_relative_to(tree) or path.resolve() == tree:
            raise UsageError(f"{name[:200]!r} would be written outside of {directory}: nothing was")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.chmod(path, 0o644)
        count += name != MARKER
    return count


def _swap(new: Path, old: Path) -> None:
    """The two change places at once, so that a reader finds a whole site at any moment."""
    if not old.exists():
        os.rename(new, old)
    elif not _exchanged(new, old):
        aside = new.with_name(f"{new.name}-old")  # a file system that cannot exchange: a moment without a site
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)


def _exchanged(a: Path, b: Path) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        done = libc.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        done = libc.renamex_np(os.fsencode(a), os.fsencode(b), EXCHANGE)
    else:
        return False
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise UsageError(f"{b}: cannot be replaced: {os.strerror(code)} (a mount point? give a folder inside it)")
