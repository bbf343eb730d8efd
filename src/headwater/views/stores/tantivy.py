"""Views as a full-text index on this machine: `tantivy:FOLDER`.

Version 3 of the view `users` is the index `FOLDER/users/v3`; one document for each row. Options:

    fields     column → text (searched by words), keyword (searched whole, counted in facets), int, float, bool, date
    language   of the words of text columns, for stemming: english, german, french ...; none unless given

Without `fields` all texts of a row are searched together. A document holds its row as it is, so what is found is the
row. The bookmark is a document of its own, which a commit replaces together with the rows' documents: they become
searchable at once.

The index has one writer: the follower that has it open holds a lock, which a newer follower asks it to give up (by a
higher epoch in `v3.epoch`, looked at for every batch and twice a second).
"""

from __future__ import annotations

import datetime
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import tantivy

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, Fenced, RecordRefused
from headwater.views.rows import Batch, Row, key_text
from headwater.views.stores import Catalog, Wants, check_options
from headwater.views.stores.folders import CatalogFile, FileLock, replace_file
from headwater.views.stores.fresh import FreshKeys
from headwater.views.stores.tantivy_reading import (
    ALL_TEXT,
    BOOKMARK,
    ID,
    IS_ROW,
    KIND,
    PREFIX,
    ROW,
    FieldKind,
    Hit,
    SearchResult,
    TantivyReader,
    TantivySnapshot,
    bookmark_of,
    tantivy_available,
)

__all__ = ["Hit", "SearchResult", "TantivySnapshot", "TantivyStore", "open_store"]

BATCH_RECORDS = 200_000  # of one commit, when behind
COMMIT_INTERVAL_MS = 500  # a commit makes a segment: fewer, larger ones search faster
HEAP_BYTES = 128 << 20  # of documents waiting to be written as a segment
THREADS = 1  # that index; documents of one batch keep their order


_encode = msgspec.json.Encoder().encode

# Writers of this process by the index they have open: a newer one takes the index from an older
_writers: dict[str, TantivyWriter] = {}
_opening = threading.Lock()


def open_store(address: str, view: str, options: dict[str, Any]) -> TantivyStore:
    check_options(view, "tantivy", options, ("fields", "language"))
    path = address.partition(":")[2]
    if not path:
        raise BadView(f"view {view}: say where the folder is: tantivy:FOLDER")
    fields = options.get("fields", {})
    for name, kind in fields.items():
        if kind not in get_args(FieldKind):
            raise BadView(f"view {view}: field {name} is {kind!r}; it is one of {', '.join(get_args(FieldKind))}")
        if name.startswith("_"):
            raise BadView(f"view {view}: the field {name!r} cannot be indexed: names with _ are the index's own")
    return TantivyStore(Path(path) / view, view, fields, options.get("language", ""))


class TantivyStore:
    """One view's indexes."""

    commit_interval_ms = COMMIT_INTERVAL_MS
    batch_records = BATCH_RECORDS

    def __init__(self, folder: Path, view: str, fields: Mapping[str, FieldKind], language: str) -> None:
        self.folder, self.view, self.fields = folder, view, dict(fields)
        self._tokenizer = f"headwater_{language}" if language else "default"
        self._analyzer = _analyzer(view, language) if language else None
        self._catalog = CatalogFile(folder)

    def catalog(self) -> Catalog:
        return self._catalog.read()

    def change_catalog(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        return self._catalog.change(change)

    def writer(self, version: int, epoch: int | None = None) -> TantivyWriter:
        return TantivyWriter(self, version, self._claim(version, epoch))

    def reader(self, version: int | None = None) -> TantivyReader:
        return TantivyReader(self, version)

    def drop(self, version: int) -> None:
        shutil.rmtree(self.path(version), ignore_errors=True)
        self.epoch_file(version).unlink(missing_ok=True)
        if not self.catalog().versions:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._catalog = CatalogFile(self.folder)

    def close(self) -> None:
        """Nothing is kept open."""

    def path(self, version: int) -> Path:
        return self.folder / f"v{version}"

    def epoch_file(self, version: int) -> Path:
        return self.folder / f"v{version}.epoch"

    def epoch(self, version: int) -> int:
        try:
            return int(self.epoch_file(version).read_text())
        except FileNotFoundError:
            return 0

    def index(self, version: int) -> Any:
        """The index, made if it is not there yet."""
        path = self.path(version)
        path.mkdir(parents=True, exist_ok=True)
        found = tantivy.Index(self._schema(), path=str(path), reuse=True)
        if self._analyzer is not None:
            found.register_tokenizer(self._tokenizer, self._analyzer)
        return found

    def _claim(self, version: int, epoch: int | None) -> int:
        with self._catalog.locked():
            stored = self.epoch(version)
            if epoch is not None and stored > epoch:
                raise Fenced(
                    f"view {self.view}: a newer follower of version {version} has taken over, or it was dropped"
                )
            claimed = stored + 1 if epoch is None else epoch
            replace_file(self.epoch_file(version), str(claimed))
            return claimed

    def _schema(self) -> Any:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field(ID, tokenizer_name="raw", index_option="basic")
        builder.add_text_field(KIND, tokenizer_name="raw", index_option="basic")
        builder.add_bytes_field(ROW, stored=True, indexed=False)
        if not self.fields:
            builder.add_text_field(ALL_TEXT, tokenizer_name=self._tokenizer, stored=True)
        for name, kind in self.fields.items():
            match kind:
                case "text":
                    builder.add_text_field(name, tokenizer_name=self._tokenizer, stored=True)
                case "keyword":
                    builder.add_text_field(name, tokenizer_name="raw", index_option="basic", fast=True)
                case "int":
                    builder.add_integer_field(name, indexed=True, fast=True)
                case "float":
                    builder.add_float_field(name, indexed=True, fast=True)
                case "bool":
                    builder.add_boolean_field(name, indexed=True, fast=True)
                case "date":
                    builder.add_date_field(name, indexed=True, fast=True)
        return builder.build()


class TantivyWriter:
    """Adds and deletes documents; holds the index's lock as long as it is open."""

    wants = Wants()

    def __init__(self, store: TantivyStore, version: int, epoch: int) -> None:
        self.epoch = epoch
        self._store, self._version = store, version
        self._busy = threading.Lock()  # held from `begin` to `commit` or `abort`
        self._changed = False
        place = os.path.realpath(store.path(version))
        with _opening:
            older = _writers.pop(place, None)
        if older is not None:
            older._release()
        with tantivy_available():
            self._index = store.index(version)
            self._lock = FileLock(store.folder / f"v{version}.lock")
            try:
                self._writer = self._index.writer(HEAP_BYTES, THREADS)
            except BaseException:
                self._lock.release()
                raise
        self._fresh = FreshKeys(empty=self._index.searcher().num_docs == 0)
        with _opening:
            _writers[place] = self

    def bookmark(self) -> Bookmark:
        with tantivy_available():
            self._index.reload()
            return bookmark_of(self._index.searcher())

    def begin(self) -> None:
        self._busy.acquire()
        try:
            if self._store.epoch(self._version) != self.epoch or self._writer is None:
                raise Fenced(
                    f"view {self._store.view}: a newer follower of version {self._version} has taken over, or it "
                    "was dropped"
                )
        except BaseException:
            self._busy.release()
            raise

    def delete(self, batch: Batch) -> None:
        with tantivy_available():
            for key in batch.keys:
                self._writer.delete_documents_by_term(ID, PREFIX[IS_ROW] + key_text(key))
        self._changed = self._changed or len(batch) > 0

    def upsert(self, batch: Batch) -> None:
        raws = map(_encode, batch.rows) if batch.raws is None else batch.raws
        prefix = PREFIX[IS_ROW]
        documents = [
            self._document(prefix + (key if type(key) is str else key_text(key)), row, raw)
            for key, row, raw in zip(batch.keys, batch.rows, raws, strict=True)
        ]
        self._changed = self._changed or len(batch) > 0
        with tantivy_available():
            delete, add = self._writer.delete_documents_by_term, self._writer.add_document
            for (name, document), new in zip(documents, self._fresh.is_new(batch.keys), strict=True):
                if not new:
                    delete(ID, name)
                add(document)
        self._fresh.add(batch.keys)

    def commit(self, bookmark: Bookmark) -> None:
        document = tantivy.Document()
        document.add_text(ID, PREFIX[BOOKMARK])
        document.add_text(KIND, BOOKMARK)
        document.add_bytes(ROW, bookmark.to_json().encode())
        with tantivy_available():
            self._writer.delete_documents_by_term(ID, PREFIX[BOOKMARK])
            self._writer.add_document(document)
            self._writer.commit()
        self._changed = False
        self._busy.release()

    def abort(self) -> None:
        if not self._busy.locked():
            return
        try:
            if self._changed:
                with tantivy_available():
                    self._writer.rollback()
            self._changed = False
        finally:
            self._busy.release()

    def close(self) -> None:
        self.abort()
        with _opening:
            place = os.path.realpath(self._store.path(self._version))
            if _writers.get(place) is self:
                del _writers[place]
        self._release()

    def _release(self) -> None:
        with self._busy:
            self._writer = None  # dropping it ends its threads and frees tantivy's own lock
            self._lock.release()

    def _document(self, name: str, row: Row, raw: bytes) -> tuple[str, Any]:
        document = tantivy.Document()
        document.add_text(ID, name)
        document.add_text(KIND, IS_ROW)
        document.add_bytes(ROW, raw)
        try:
            if not self._store.fields:
                document.add_text(ALL_TEXT, "\n".join(_texts(row)))
            for column, kind in self._store.fields.items():
                value = row.get(column)
                if type(value) is str and kind in ("text", "keyword"):
                    document.add_text(column, value)
                    continue
                for each in value if isinstance(value, list) else [] if value is None else [value]:
                    _ADD[kind](document, column, each)
        except (TypeError, ValueError, OverflowError) as error:
            raise RecordRefused(f"the row cannot be indexed: {error}") from error
        return name, document


def _add_date(document: Any, name: str, value: Any) -> None:
    if isinstance(value, int | float):  # milliseconds since 1970, as change events have them
        moment = datetime.datetime.fromtimestamp(value / 1_000, datetime.UTC)
    else:
        moment = datetime.datetime.fromisoformat(value)
    document.add_date(name, moment)


_ADD: dict[FieldKind, Callable[[Any, str, Any], None]] = {
    "text": lambda document, name, value: document.add_text(name, key_text(value)),
    "keyword": lambda document, name, value: document.add_text(name, key_text(value)),
    "int": lambda document, name, value: document.add_integer(name, value),
    "float": lambda document, name, value: document.add_float(name, value),
    "bool": lambda document, name, value: document.add_boolean(name, value),
    "date": _add_date,
}


def _texts(value: Any) -> Iterator[str]:
    """All texts in a row, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _analyzer(view: str, language: str) -> Any:
    try:
        builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        return builder.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.stemmer(language)).build()
    except ValueError as error:
        raise BadView(f"view {view}: language {language!r}: {error}") from error
