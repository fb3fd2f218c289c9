"""Writes Whisper's two vocabularies compactly, from the files of openai-whisper (MIT licence, OpenAI):

    python make.py ASSETS        (a folder with gpt2.tiktoken and multilingual.tiktoken)

A file is deflated: how many tokens there are (u32), the 256 bytes in the order of their tokens, and for each further token the two tokens
that it is merged of (u16 each; both 65535 for a token without bytes).
"""

import base64
import pathlib
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent


def parts_of(token, ranks):
    """The last merge of a token: merges of lower rank come first."""
    parts = [bytes([byte]) for byte in token]
    limit = ranks[token]
    while len(parts) > 2:
        pairs = [(ranks.get(a + b, limit), place) for place, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, place = min(pairs)
        assert rank < limit, token
        parts[place:place + 2] = [parts[place] + parts[place + 1]]
    return parts


def main():
    for name in ("gpt2", "multilingual"):
        lines = (pathlib.Path(sys.argv[1]) / f"{name}.tiktoken").read_text().splitlines()
        ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
        by_rank = sorted(ranks, key=ranks.get)
        assert [ranks[token] for token in by_rank] == list(range(len(by_rank)))
        assert all(len(token) == 1 for token in by_rank[:256])
        file = struct.pack("<I", len(by_rank)) + b"".join(by_rank[:256])
        for token in by_rank[256:]:
            left, right = map(ranks.get, parts_of(token, ranks)) if token else (0xFFFF, 0xFFFF)
            file += struct.pack("<HH", left, right)
        (HERE / f"{name}.bin").write_bytes(zlib.compress(file, 9))
        print(name, len(by_rank), [token for token in by_rank[256:] if len(token) < 2])


main()
