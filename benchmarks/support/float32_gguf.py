"""A GGUF file with the weights of another in float32, so that llama.cpp computes with the numbers that torch does."""

from pathlib import Path

import gguf
import numpy as np


def write_float32(source: Path, into: Path) -> Path:
    """Write all tensors of a GGUF file in float32, and what it says of the model as it says it."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(into, architecture)
    for name, each in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = each.types[0]
        inner = each.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = int(gguf.LlamaFileType.ALL_F32) if name == "general.file_type" else each.contents()
        writer.add_key_value(name, value, kind, sub_type=inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return into
