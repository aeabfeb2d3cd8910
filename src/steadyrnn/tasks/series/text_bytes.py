"""Text files: UTF-8 without zero bytes, and nothing else under the name of one."""

import codecs

from steadyrnn.errors import DataError

from .files import Content, name_signature

__all__ = ["text_bytes", "text_lines"]


def text_bytes(content: Content) -> bytes:
    r"""Return the bytes of a text file without its byte order mark, once they are known to be UTF-8.

    Example:
        >>> from pathlib import Path
        >>> from steadyrnn.tasks.series.records import SourceFile
        >>> text_bytes(Content(SourceFile(Path("a.csv"), 6, ""), b"\xef\xbb\xbfx\n1\n"))
        b'x\n1\n'
    """
    data, path = content.data, content.path
    known = name_signature(data[:16])
    if known is not None:
        raise DataError(f"{path} must be text, but is {known}. {_way_out(known)}")
    zero = data.find(b"\0")
    if zero >= 0:
        line = data.count(b"\n", 0, zero) + 1
        raise DataError(f"{path}, line {line} must be text, but byte {zero} is zero: the file is binary. Export it as CSV.")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.isascii():
        _check_utf8(data, content)
    if not data.strip():
        raise DataError(f"{path} must hold series, but has blank lines only.")
    return data


def text_lines(content: Content) -> list[str]:
    """Return the lines of a text file, whose ends may be LF, CR LF or CR."""
    return text_bytes(content).decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _check_utf8(data: bytes, content: Content) -> None:
    """Refuse bytes that are not UTF-8, by line and byte."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        offset = error.start + len(content.data) - len(data)
        raise DataError(
            f"{content.path}, line {line} must be UTF-8, but byte {offset} (0x{data[error.start]:02x}) is not. Save the file "
            "with the encoding UTF-8."
        ) from None


def _way_out(known: str) -> str:
    if "compressed" in known or ("archive" in known and "Excel" not in known):
        return "Unpack it first."
    if "UTF-16" in known:
        return "Save it with the encoding UTF-8."
    return "Export it as CSV." if "Parquet" not in known else "Name it .parquet."
