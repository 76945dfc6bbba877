"""Members of zip archives, read one by one without keeping the archive open."""

import struct
import zipfile
import zlib

import attrs

__all__ = ["Member", "members_of"]

_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


@attrs.frozen
class Member:
    """The place of a file in an archive."""

    begin: int
    packed: int
    size: int
    method: int
    checksum: int

    def read(self, path: str) -> bytes:
        """Its content; a ValueError if it is damaged."""
        with open(path, "rb") as file:
            file.seek(self.begin)
            header = file.read(30)
            if len(header) < 30 or header[:4] != b"PK\3\4":
                raise ValueError("the archive has changed, or is truncated")
            name, extra = struct.unpack("<HH", header[26:])
            file.seek(name + extra, 1)
            content = file.read(self.packed)
        if self.method == _DEFLATED:
            try:
                content = zlib.decompressobj(-15).decompress(content, self.size + 1)
            except zlib.error as error:
                raise ValueError(f"it is damaged: {error}") from error
        if len(content) != self.size or zlib.crc32(content) != self.checksum:
            raise ValueError("it is damaged: its size or its checksum is wrong")
        return content


def members_of(path: str) -> dict[str, Member]:
    """The files in an archive, by their names."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.compress_type not in (_STORED, _DEFLATED) or info.flag_bits & 1:
                raise ValueError(
                    f"{info.filename} in it is encrypted, or compressed by another method than "
                    "deflate"
                )
            found[info.filename] = Member(
                info.header_offset, info.compress_size, info.file_size, info.compress_type, info.CRC
            )
    return found
