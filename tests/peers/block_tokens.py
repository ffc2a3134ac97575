"""The tokens of every whole block in a capture, read without kvbridge's own code.

    block_tokens.py FILE    ->  {"<content hash>": [token, ...], ...}
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))
from derive_vllm import content, fields_of, frames_of, unpack  # noqa: E402

blocks = {}
for _, socket, _, payload in frames_of(Path(sys.argv[1])):
    for event in unpack(payload)[1] if socket == "sub" else []:
        tag, fields, _ = fields_of(event)
        if tag != "BlockStored":
            continue
        tokens, size = fields["tokens"], fields["size"]
        for at in range(0, len(tokens) - size + 1, size):
            block = tokens[at : at + size]
            blocks[content(block)] = block
json.dump(blocks, sys.stdout)
