"""Texts: files of lines, and of words with their vocabulary."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.public import public
from fdbr.train.data.files.finding import find, folder_of
from fdbr.train.data.sequences import View

__all__ = ["ptb_words", "read_words", "text_lines"]


@attrs.frozen(eq=False)
class Lines(View):
    """The lines of a text file, read when they are asked for."""

    path: str
    encoding: str
    starts: Any = attrs.field(repr=False)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def example(self, index: int) -> str:
        begin, end = self.starts[index], self.starts[index + 1]
        with open(self.path, "rb") as file:
            file.seek(begin)
            content = file.read(end - begin)
        if len(content) != end - begin:
            raise ValueError(
                f"fdbr.train.text_lines: {self.path} is shorter than it was: line {index} is gone"
            )
        try:
            return content.decode(self.encoding).rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"fdbr.train.text_lines: line {index} of {self.path} is no text in "
                f"{self.encoding}: {error}"
            ) from error


@public("fdbr.train")
def text_lines(path: str | os.PathLike[str], encoding: str = "utf-8") -> Any:
    r"""The lines of a text file, as a dataset of strings.

    Each line is read when it is asked for; what is kept is where they begin.  `zip_examples` puts
    lines of several files side by side, `subset` leaves some out.

    Parameters
    ----------
    path
        The file.
    encoding
        That of the text, one in which lines end with the byte 10.

    Returns
    -------
    sequence
        The lines, without their ends.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is empty; when a line is read, if it is no text in that encoding.

    >>> import pathlib, tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "poem")
    ...     _ = path.write_text("so much depends\nupon\n")
    ...     list(train.text_lines(path))
    ['so much depends', 'upon']
    """
    "".encode(encoding)
    starts, end = [0], 0
    with open(path, "rb") as file:
        for line in file:
            end += len(line)
            starts.append(end)
    if not end:
        raise ValueError(f"fdbr.train.text_lines: {path} is empty")
    return Lines(str(path), encoding, lock(np.array(starts, np.int64)))


@public("fdbr.train")
def read_words(
    path: str | os.PathLike[str],
    vocabulary: Mapping[str, int] | None = None,
    end: str | None = "<eos>",
    unknown: str | None = None,
) -> tuple[Any, Mapping[str, int]]:
    r"""The words of a text file as numbers.

    Parameters
    ----------
    path
        A file of words with white space between them.
    vocabulary
        The numbers of words that are known already; new ones are numbered on from the largest, by
        their first appearance.
    end
        A word for the end of each line; `None` for none.
    unknown
        The word that stands for all that are not in ``vocabulary``, so that none is added.

    Returns
    -------
    tuple
        The words, int32 of one axis, and the vocabulary with all of them.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no text in UTF-8, has no word, or ``unknown`` is not in the vocabulary.

    >>> import pathlib, tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "poem")
    ...     _ = path.write_text("so much\nso good\n")
    ...     words, vocabulary = train.read_words(path)
    >>> words, dict(vocabulary)
    (array([0, 1, 2, 0, 3, 2], dtype=int32), {'so': 0, 'much': 1, '<eos>': 2, 'good': 3})
    """
    numbers = dict(vocabulary or {})
    if unknown is not None and unknown not in numbers:
        raise ValueError(f"fdbr.train.read_words: unknown={unknown!r} is not in the vocabulary")
    try:
        # Not splitlines(), for which separators of other kinds end lines, too.
        lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"fdbr.train.read_words: {path} is no text in UTF-8: {error}") from error
    words: Iterable[str] = (
        word for line in lines for word in (*line.split(), *([end] if end else []))
    )
    if unknown is None:
        fresh = max([-1, *numbers.values()]) + 1
        found = []
        for word in words:
            number = numbers.setdefault(word, fresh)
            fresh += number == fresh
            found.append(number)
    else:
        found = [numbers.get(word, numbers[unknown]) for word in words]
    if not any(line.split() for line in lines):
        raise ValueError(f"fdbr.train.read_words: {path} has no word in it")
    return lock(np.array(found, np.int32)), MappingProxyType(numbers)


@public("fdbr.train")
def ptb_words(directory: str | os.PathLike[str]) -> tuple[Any, Any, Any, Mapping[str, int]]:
    """The words of the Penn Treebank as numbers, in Mikolov's version.

    Parameters
    ----------
    directory
        The folder with ``ptb.train.txt``, ``ptb.valid.txt`` and ``ptb.test.txt``.

    Returns
    -------
    tuple
        The words to train with, to validate and to test with, int32 of one axis each, with
        ``<eos>`` at the end of lines; and the vocabulary, from words to numbers.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is no text or has no word.
    """
    folder = folder_of("ptb_words", directory)
    vocabulary: Mapping[str, int] = {}
    texts = []
    for part in ("train", "valid", "test"):
        path = find("ptb_words", folder, [f"ptb.{part}.txt"])
        words, vocabulary = read_words(path, vocabulary)
        texts.append(words)
    return texts[0], texts[1], texts[2], vocabulary
