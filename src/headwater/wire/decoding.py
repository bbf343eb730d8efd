"""Builds straight-line decoders: for one structure, in one version, one Python function without loops over fields.

Invariants of the functions built here, whatever the bytes: they return a message or raise `Malformed`; they look at
no byte outside the buffer; they allocate no more than a fixed multiple of the buffer's size, and at most
`MAX_ELEMENTS` array elements. Nesting is bounded by the declaration. Unknown tagged fields are skipped.

Consecutive fields of fixed size, with the length of whatever follows them, are read by one `struct` call. A failure
is located by the line of generated code it came from: that costs nothing while there is none.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from headwater.wire import primitives
from headwater.wire.errors import Malformed
from headwater.wire.fields import Struct
from headwater.wire.layout import FIXED, Layout, Slot, carries_records, element, layout, smallest

__all__ = ["Decoder", "build_decoder"]

Decoder = Callable[[bytes | memoryview, int], tuple[Any, int]]
"""From a buffer and a position in it to the message and the position after it."""

_FAILURES: Final = (struct.error, IndexError, ValueError)


def build_decoder(of: type[Struct], version: int, flexible: bool) -> Decoder:
    """A decoder of `of`. Give it bytes, or a memoryview if the structure carries records (they are views then)."""
    return _Build(of, version, flexible).finish()


class _Build:
    """The source of one decoder as it grows. `p` is the position, `b` the buffer, `end` its length."""

    def __init__(self, of: type[Struct], version: int, flexible: bool) -> None:
        self.what = f"{of.__name__} version {version}"
        self.views = carries_records(of)
        self.lines: list[str] = []
        self.paths: list[str] = []  # the field that each line reads, for `Malformed`
        self.depth = 2
        self.path = ""
        self.count = 0
        self.run: list[tuple[str, str, str]] = []  # fixed-size fields not yet read: struct code, variable, line after
        self.names: dict[str, Any] = {
            "unpack_from": struct.unpack_from,
            "uvarint": primitives.read_uvarint,
            "skip_tagged": primitives.skip_tagged,
            "uuid": primitives.read_uuid,
            "ends_early": primitives.ends_early,
            "too_many": primitives.too_many,
            "failures": _FAILURES,
        }
        self.result = self.structure(layout(of, version, flexible))
        self.flush()

    def finish(self) -> Decoder:
        paths = self.paths
        what = self.what

        def located(error: Exception, position: int) -> Malformed:
            line = error.__traceback__.tb_lineno if error.__traceback__ else 0
            reason = str(error) if type(error) in (ValueError, UnicodeDecodeError) else "the message ends early"
            return Malformed(what, paths[min(line - _HEAD_LINES, len(paths)) - 1], position, reason)

        self.names["located"] = located
        source = "\n".join([*_HEAD, *self.lines, f"        return {self.result}, p", *_TAIL])
        exec(compile(source, f"<decoder of {what}>", "exec"), self.names)
        decoder: Decoder = self.names["decode"]
        return decoder

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)
        self.paths.append(self.path)

    def variable(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, value: Any) -> str:
        """An expression for a default."""
        if value is None or value in ("", b"", ()) or isinstance(value, (bool, int, float, str)):
            return repr(value)
        name = f"default{len(self.names)}"
        self.names[name] = value
        return name

    # Fields of fixed size gather in `run` until something else needs the position.

    def later(self, code: str, after: str = "") -> str:
        name = self.variable()
        self.run.append((code, name, after.format(name)))
        if len(self.run) == 1:
            self.run_path = self.path
        return name

    def flush(self) -> None:
        if not self.run:
            return
        path, self.path = self.path, self.run_path
        code = "".join(each for each, _, _ in self.run)
        targets = ", ".join(name for _, name, _ in self.run)
        if code == "B":
            self.line(f"{targets} = b[p]; p += 1")
        else:
            shape = struct.Struct(">" + code)
            read = "read_" + code.replace("?", "t")
            self.names[read] = shape.unpack_from
            single = "," if len(self.run) == 1 else ""
            self.line(f"{targets}{single} = {read}(b, p); p += {shape.size}")
        for _, _, after in self.run:
            if after:
                self.line(after)
        self.run.clear()
        self.path = path

    # Structures

    def structure(self, shape: Layout) -> str:
        """Reads the fields of a structure; returns the expression that makes it."""
        outer = self.path
        values: dict[str, str] = {}
        for slot in shape.plain:
            self.path = f"{outer}.{slot.name}" if outer else slot.name
            values[slot.name] = self.value(slot, shape)
        if shape.flexible:
            self.path = f"{outer}.tagged fields" if outer else "tagged fields"
            self.tagged(shape, values, outer)
        self.path = outer
        name = shape.of.__name__
        self.names[name] = shape.of
        every = [values.get(key) or self.constant(field.default) for key, field in shape.of.wire_fields]
        return f"{name}({', '.join(every)})"

    def tagged(self, shape: Layout, values: dict[str, str], outer: str) -> None:
        count = self.later("B")
        self.flush()
        if not shape.tagged:
            self.line(f"if {count}: p = skip_tagged(b, p - 1)")
            return
        for slot in shape.tagged:
            values[slot.name] = self.variable()
            self.line(f"{values[slot.name]} = {self.constant(slot.default)}")
        self.line(f"if {count}:")
        self.depth += 1
        self.line(f"if {count} > 127: {count}, p = uvarint(b, p - 1)")
        tag, size, stop = self.variable(), self.variable(), self.variable()
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, p = uvarint(b, p)")
        self.line(f"{size}, p = uvarint(b, p); {stop} = p + {size}")
        self.line(f"if {stop} > end: raise ends_early({size}, end - p)")
        for slot in shape.tagged:
            self.line(f"if {tag} == {slot.tag}:")
            self.depth += 1
            self.path = f"{outer}.{slot.name}" if outer else slot.name
            value = self.value(slot, shape)
            self.flush()
            self.line(f"{values[slot.name]} = {value}")
            self.line(f"if p != {stop}: raise ValueError('tagged field is not as long as it says')")
            self.line("continue")
            self.depth -= 1
        self.line(f"p = {stop}")
        self.depth -= 2

    def value(self, slot: Slot, shape: Layout) -> str:
        """Reads one field; returns the expression of its value."""
        if slot.kind in FIXED:
            return self.later(FIXED[slot.kind][0], "{0} = uuid({0})" if slot.kind == "uuid" else "")
        if slot.kind == "struct":
            inner = layout(slot.of, shape.version, shape.flexible)
            return self.optional_structure(inner, slot) if slot.nullable else self.structure(inner)
        if slot.kind == "array":
            return self.array(slot, shape)
        return self.text(slot, shape.flexible)

    def optional_structure(self, inner: Layout, slot: Slot) -> str:
        present, result = self.later("b"), self.variable()
        self.flush()
        null = f"{present} < 0" if slot.tag is None else f"{present} == 0"
        self.line(f"if {null}: {result} = None")
        self.line("else:")
        self.depth += 1
        value = self.structure(inner)
        self.flush()
        self.line(f"{result} = {value}")
        self.depth -= 1
        return result

    # Fields with a length

    def length(self, code: str, flexible: bool) -> str:
        """Reads a length or count; in flexible versions what travels is one more than it. -1 is null."""
        size = self.later("B" if flexible else code)
        self.flush()
        if flexible:
            self.line(f"if {size} > 127: {size}, p = uvarint(b, p - 1)")
            self.line(f"{size} -= 1")
        return size

    def absent(self, size: str, result: str, nullable: bool) -> None:
        """The branch for null; what follows is indented below it."""
        if nullable:
            self.line(f"if {size} < 0: {result} = None")
        else:
            self.line(f"if {size} < 0: raise ValueError('null is not allowed here')")
        self.line("else:")
        self.depth += 1

    def text(self, slot: Slot, flexible: bool) -> str:
        size = self.length("h" if slot.kind == "string" else "i", flexible)
        result, stop = self.variable(), self.variable()
        self.absent(size, result, slot.nullable)
        self.line(f"{stop} = p + {size}")
        self.line(f"if {stop} > end: raise ends_early({size}, end - p)")
        view = f"b[p:{stop}]"
        if self.views and slot.kind != "records":
            view += ".tobytes()"
        self.line(f"{result} = {view}{'.decode()' if slot.kind == 'string' else ''}")
        self.line(f"p = {stop}")
        self.depth -= 1
        return result

    def array(self, slot: Slot, shape: Layout) -> str:
        one = element(slot)
        count = self.length("i", shape.flexible)
        result = self.variable()
        self.absent(count, result, slot.nullable)
        self.line(f"room -= {count}")
        least = max(1, smallest(one, shape.version, shape.flexible))
        self.line(f"if room < 0 or {count} * {least} > end - p: raise too_many({count}, end - p)")
        if one.kind in FIXED and one.kind != "uuid":
            code, size = FIXED[one.kind]
            self.line(f"{result} = unpack_from('>%d{code}' % {count}, b, p); p += {count} * {size}")
        else:
            self.elements(one, shape, count, result)
        self.depth -= 1
        return result

    def elements(self, one: Slot, shape: Layout, count: str, result: str) -> None:
        add = self.variable()
        outer = self.path
        self.line(f"{result} = []; {add} = {result}.append")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.path += "[]"
        value = self.value(one, shape)
        self.flush()
        self.line(f"{add}({value})")
        self.depth -= 1
        self.path = outer
        self.line(f"{result} = tuple({result})")


_HEAD: Final = ("def decode(b, p):", "    end = len(b)", f"    room = {primitives.MAX_ELEMENTS}", "    try:")
_HEAD_LINES: Final = len(_HEAD)
_TAIL: Final = ("    except failures as error:", "        raise located(error, p) from None")
