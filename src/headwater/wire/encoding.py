"""Builds straight-line encoders: for one structure, in one version, one Python function without loops over fields.

Consecutive fields of fixed size are written by one `struct` call. Record batches are not copied: they become chunks of
their own. Fields that the version does not have are left out. Values that do not fit their type are
a mistake of the caller and raise what `struct` raises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from headwater.wire import primitives
from headwater.wire.fields import Payload, Struct
from headwater.wire.layout import FIXED, Layout, Slot, element, layout

__all__ = ["Encoder", "build_encoder"]

Encoder = Callable[[Any, bytearray, list[Payload]], bytearray]
"""`encode(message, out, chunks)` appends to `out`; where records travel, `out` and they move to `chunks`. Returns
the buffer with the rest, which the caller appends to `chunks` or goes on filling."""


def build_encoder(of: type[Struct], version: int, flexible: bool) -> Encoder:
    """An encoder of `of`."""
    return _Build(of, version, flexible).finish()


class _Build:
    """The source of one encoder as it grows. `out` names the buffer being filled."""

    def __init__(self, of: type[Struct], version: int, flexible: bool) -> None:
        self.what = f"{of.__name__} version {version}"
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.out = "out"
        self.run: list[tuple[str, str]] = []  # fixed-size values not yet written: struct code, expression
        self.names: dict[str, Any] = {
            "pack": struct.pack,
            "small": primitives.SMALL_UVARINTS,
            "uvarint": primitives.unsigned_varint,
            "add_payload": primitives.add_payload,
            "tagged_fields": _tagged_fields,
        }
        self.structure(layout(of, version, flexible), "m")
        self.flush()

    def finish(self) -> Encoder:
        source = "\n".join(["def encode(m, out, chunks):", *self.lines, "    return out"])
        exec(compile(source, f"<encoder of {self.what}>", "exec"), self.names)
        encoder: Encoder = self.names["encode"]
        return encoder

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def variable(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def later(self, code: str, value: str) -> None:
        self.run.append((code, value))

    def flush(self) -> None:
        if not self.run:
            return
        code = "".join(each for each, _ in self.run)
        write = "write_" + code.replace("?", "t")
        self.names[write] = struct.Struct(">" + code).pack
        self.line(f"{self.out} += {write}({', '.join(value for _, value in self.run)})")
        self.run.clear()

    # Structures

    def structure(self, shape: Layout, source: str) -> None:
        for slot in shape.plain:
            self.value(slot, shape, f"{source}.{slot.name}")
        if shape.flexible:
            self.tagged(shape, source)

    def tagged(self, shape: Layout, source: str) -> None:
        if not shape.tagged:
            self.later("B", "0")
            return
        self.flush()
        found = self.variable()
        self.line(f"{found} = []")
        for slot in shape.tagged:
            value, content = self.variable(), self.variable()
            self.line(f"{value} = {source}.{slot.name}")
            self.line(f"if {self.travels(value, slot)}:")
            self.depth += 1
            self.line(f"{content} = bytearray()")
            outer, self.out = self.out, content
            self.value(slot, shape, value)
            self.flush()
            self.out = outer
            self.line(f"{found}.append(({slot.tag}, {content}))")
            self.depth -= 1
        self.line(f"if {found}: {self.out} += tagged_fields({found})")
        self.line(f"else: {self.out}.append(0)")

    def travels(self, value: str, slot: Slot) -> str:
        """Whether a tagged field has to travel: it is left out when it has its default."""
        if slot.default is None:
            return f"{value} is not None"
        name = f"default{len(self.names)}"
        self.names[name] = slot.default
        return f"{value} is not {name} and {value} != {name}"

    def value(self, slot: Slot, shape: Layout, source: str) -> None:
        if slot.kind == "uuid":
            self.later("16s", f"{source}.bytes")
        elif slot.kind in FIXED:
            self.later(FIXED[slot.kind][0], source)
        elif slot.kind == "struct":
            inner = layout(slot.of, shape.version, shape.flexible)
            if slot.nullable:
                self.optional_structure(inner, source, slot)
            else:
                self.structure(inner, source)
        elif slot.kind == "array":
            self.array(slot, shape, source)
        else:
            self.text(slot, shape.flexible, source)

    def optional_structure(self, inner: Layout, source: str, slot: Slot) -> None:
        self.flush()
        value = self.variable()
        self.line(f"{value} = {source}")
        self.line(f"if {value} is None: {self.out}.append({255 if slot.tag is None else 0})")
        self.line("else:")
        self.depth += 1
        self.later("b", "1")
        self.structure(inner, value)
        self.flush()
        self.depth -= 1

    # Fields with a length

    def length(self, code: str, flexible: bool, size: str) -> None:
        """Writes a length or count (-1 is null); in flexible versions one more than it travels."""
        if not flexible:
            self.later(code, size)
            self.flush()
            return
        self.flush()
        self.line(f"{size} += 1")
        self.line(f"{self.out} += small[{size}] if {size} < 128 else uvarint({size})")

    def text(self, slot: Slot, flexible: bool, source: str) -> None:
        value, size = self.variable(), self.variable()
        convert = ".encode()" if slot.kind == "string" else ""
        if slot.nullable:
            self.line(f"{value} = {source}")
            self.line(f"if {value} is None: {value} = b''; {size} = -1")
            self.line(f"else: {value} = {value}{convert}; {size} = len({value})")
        else:
            self.line(f"{value} = {source}{convert}; {size} = len({value})")
        self.length("h" if slot.kind == "string" else "i", flexible, size)
        if slot.kind == "records":
            self.line(f"{self.out} = add_payload(chunks, {self.out}, {value})")
        else:
            self.line(f"{self.out} += {value}")

    def array(self, slot: Slot, shape: Layout, source: str) -> None:
        one = element(slot)
        value, count = self.variable(), self.variable()
        if slot.nullable:
            self.line(f"{value} = {source}")
            self.line(f"if {value} is None: {value} = (); {count} = -1")
            self.line(f"else: {count} = len({value})")
        else:
            self.line(f"{value} = {source}; {count} = len({value})")
        self.length("i", shape.flexible, count)
        if one.kind in FIXED and one.kind != "uuid":
            self.line(f"{self.out} += pack('>%d{FIXED[one.kind][0]}' % len({value}), *{value})")
            return
        each = self.variable()
        self.line(f"for {each} in {value}:")
        self.depth += 1
        before = len(self.lines)
        self.value(one, shape, each)
        self.flush()
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1


def _tagged_fields(found: list[tuple[int, bytearray]]) -> bytes:
    out = bytearray(primitives.unsigned_varint(len(found)))
    for tag, content in found:
        out += primitives.unsigned_varint(tag)
        out += primitives.unsigned_varint(len(content))
        out += content
    return bytes(out)
