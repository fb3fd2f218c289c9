"""Damage to files: bits, chunks, numbers and nesting, with checksums made right again where they hide the damage."""

import gzip
import io
import re
import struct
import zipfile
import zlib

NUMBERS = [
    "0", "-1", "1", "2", "255", "65536", str(2**31 - 1), str(2**31), str(2**32), str(2**53), str(2**63 - 1),
    str(2**63), str(2**64), "1e308", "-1e308", "1e-320", "0.5", "NaN", "null", "1" * 400, '"x"', "[]", "{}", "true",
]
HOSTILE_TEXT = [
    "\x1b[2J\x1b[31m", "\x07\x08", "\u202eabc\u2066", "\x00", "\r", "../../../../etc/passwd", "/etc/passwd", "-",
    "\\u001b]0;title\\u0007", "\\u202e", "\ufeff", "\ud7ff\u0301" * 20, "%s%n", "\x9b31m",
]
WORDS = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1]


def flip_bits(data, numbers):
    data = bytearray(data)
    for _ in range(numbers.choice([1, 1, 1, 2, 4, 16])):
        at = numbers.randrange(len(data))
        data[at] ^= 1 << numbers.randrange(8)
    return bytes(data)


def place_in(data, numbers):
    """A place in a file; headers, where most is decided, more often than the rest."""
    return numbers.randrange(min(len(data), numbers.choice([16, 64, 512, len(data)])) or 1)


def set_number(data, numbers):
    at, width = place_in(data, numbers), numbers.choice([1, 2, 4, 8])
    value = numbers.choice(WORDS) & (1 << 8 * width) - 1
    return data[:at] + value.to_bytes(width, numbers.choice(["little", "big"])) + data[at + width:]


def truncate(data, numbers):
    return data[:numbers.choice([numbers.randrange(len(data)), place_in(data, numbers), max(0, len(data) - 1)])]


def insert(data, numbers):
    at, length = place_in(data, numbers), numbers.choice([1, 4, 64, 4096])
    filling = numbers.choice([numbers.randbytes(length), b"\0" * length, b"\xff" * length])
    return data[:at] + filling + data[at:]


def duplicate(data, numbers):
    at, length = place_in(data, numbers), numbers.choice([1, 8, 64, 1024])
    return data[:at] + data[at:at + length] * numbers.choice([2, 2, 3, 100]) + data[at + length:]


def remove(data, numbers):
    at = place_in(data, numbers)
    return data[:at] + data[at + numbers.choice([1, 2, 8, 64, 1024]):]


def blank(data, numbers):
    at, length = place_in(data, numbers), numbers.choice([4, 64, 1024])
    return data[:at] + numbers.choice([b"\0", b"\xff"]) * len(data[at:at + length]) + data[at + length:]


BYTES = [flip_bits, flip_bits, set_number, set_number, truncate, insert, duplicate, remove, blank]


def bytes_of(data, numbers):
    if not data:
        return numbers.randbytes(8)
    for _ in range(numbers.choice([1, 1, 1, 2, 3])):
        data = numbers.choice(BYTES)(data or b"\0", numbers)
    return data


def text_of(data, numbers):
    """Damage that a text survives as a text: numbers, strings, lines, nesting."""
    text = data.decode("utf-8", "replace")
    kind = numbers.choice(["number", "number", "number", "string", "string", "line", "nest", "long", "repeat", "bytes"])
    if kind == "bytes":
        return bytes_of(data, numbers)
    if kind in ("number", "nest"):
        found = list(re.finditer(r"-?\d+(\.\d+)?(e-?\d+)?", text))
        if found:
            spot = numbers.choice(found)
            depth = numbers.choice([10, 200, 5000, 200_000])
            opening, closing = numbers.choice([("[", "]"), ('{"a":', "}")])
            nested = opening * depth + "1" + closing * depth
            new = numbers.choice(NUMBERS) if kind == "number" else nested
            return (text[:spot.start()] + new + text[spot.end():]).encode("utf-8", "replace")
    if kind in ("string", "long"):
        found = list(re.finditer(r'"([^"\n]*)"', text)) or list(re.finditer(r"([^\s,;|]+)", text))
        if found:
            spot = numbers.choice(found)
            new = numbers.choice(HOSTILE_TEXT) if kind == "string" else "A" * numbers.choice([300, 5000, 200_000])
            if numbers.random() < 0.5:
                new = spot.group(1)[:2] + new
            return (text[:spot.start(1)] + new + text[spot.end(1):]).encode("utf-8", "replace")
    lines = text.splitlines(keepends=True) or [""]
    at = numbers.randrange(len(lines))
    if kind == "repeat":
        lines[at] *= numbers.choice([2, 50, 1000])
    elif numbers.random() < 0.5:
        del lines[at]
    else:
        lines.insert(at, lines[numbers.randrange(len(lines))])
    return "".join(lines).encode("utf-8", "replace")


def gzip_of(inner):
    def mutate(data, numbers):
        if numbers.random() < 0.3:
            return bytes_of(data, numbers)
        return gzip.compress(inner(gzip.decompress(data), numbers), 1, mtime=0)
    return mutate


def zip_of(data, numbers):
    """A member is damaged, and the archive around it is sound; or the archive is damaged."""
    if numbers.random() < 0.35:
        return bytes_of(data, numbers)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return bytes_of(data, numbers)
    # The small members say what the large ones are.
    weights = [8 if info.filename.endswith(".pkl") else 1 for info, _ in members]
    hit = numbers.choices(range(len(members)), weights)[0]
    method = numbers.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for index, (info, content) in enumerate(members):
            content = bytes_of(content, numbers) if index == hit else content
            archive.writestr(zipfile.ZipInfo(info.filename), content, method)
    return out.getvalue()


def png_of(data, numbers):
    """A chunk is damaged and its checksum made right."""
    if numbers.random() < 0.35 or data[:8] != b"\x89PNG\r\n\x1a\n":
        return bytes_of(data, numbers)
    chunks, at = [], 8
    while at + 12 <= len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        chunks.append((data[at + 4:at + 8], data[at + 8:at + 8 + length]))
        at += 12 + length
    hit = numbers.randrange(len(chunks))
    name, content = chunks[hit]
    if name == b"IDAT" and numbers.random() < 0.5:
        try:
            content = zlib.compress(bytes_of(zlib.decompress(content), numbers))
        except zlib.error:
            content = bytes_of(content, numbers)
    else:
        content = bytes_of(content or b"\0", numbers)
    chunks[hit] = (name, content)
    if numbers.random() < 0.2:
        chunks.insert(numbers.randrange(len(chunks)), numbers.choice(chunks))
    out = [data[:8]]
    for name, content in chunks:
        out.append(struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content)))
    return b"".join(out)


def safetensors_of(data, numbers):
    """The header is damaged as a text, and its length made right."""
    if numbers.random() < 0.3 or len(data) < 8:
        return bytes_of(data, numbers)
    length = int.from_bytes(data[:8], "little")
    header = text_of(data[8:8 + length], numbers)
    return len(header).to_bytes(8, "little") + header + data[8 + length:]


def tar_of(data, numbers):
    """A field of a member's header is damaged and its checksum made right, or the bytes are damaged."""
    if numbers.random() < 0.4:
        return bytes_of(data, numbers)
    data = bytearray(data)
    starts = [at for at in range(0, len(data) - 511, 512) if data[at + 257:at + 262] == b"ustar"]
    if not starts:
        return bytes_of(bytes(data), numbers)
    at = numbers.choice(starts)
    first, length = numbers.choice([(0, 100), (0, 100), (124, 12), (124, 12), (156, 1), (345, 155), (100, 8)])
    if first in (0, 345):
        new = numbers.choice(HOSTILE_TEXT).encode("utf-8", "replace")[:length - 5] + numbers.choice([b"", b".png", b".cls"])
        new = new.ljust(length, b"\0")
    elif first == 124:
        sizes = [b"77777777777\0", b"00000000000\0", b"\x80" + b"\xff" * 11, b"-0000000001\0", numbers.randbytes(12)]
        new = numbers.choice(sizes)
    else:
        new = numbers.choice([b"xgLKSV012356D"[i:i + 1] for i in range(13)]) if first == 156 else numbers.randbytes(length)
    data[at + first:at + first + length] = new[:length].ljust(length, b"\0")
    data[at + 148:at + 156] = b" " * 8
    data[at + 148:at + 156] = b"%06o\0 " % sum(data[at:at + 512])
    return bytes(data)


def by_name(name):
    """The damage that suits a file."""
    if name.endswith(".gz"):
        return gzip_of(bytes_of)
    for endings, mutate in [
        ((".npz", ".pth", ".pt", ".bin.zip"), zip_of), ((".png",), png_of), ((".safetensors",), safetensors_of),
        ((".tar",), tar_of), ((".json", ".jsonl", ".toml", ".csv", ".tsv", ".txt", ".conll"), text_of),
    ]:
        if name.endswith(endings):
            return mutate
    # PyTorch's .bin is a zip file; CIFAR's .bin is none and is damaged as bytes by the same function.
    return zip_of if name.endswith(".bin") else bytes_of
