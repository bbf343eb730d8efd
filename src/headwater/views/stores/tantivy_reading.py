"""Reading and searching a view's tantivy index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import tantivy

from headwater.views.bookmark import Bookmark
from headwater.views.errors import BadView, StoreUnavailable
from headwater.views.rows import Row, key_text, normalise_key
from headwater.views.stores import Catalog

__all__ = ["FieldKind", "Hit", "SearchResult", "TantivyReader", "TantivySnapshot", "bookmark_of", "tantivy_available"]

SNIPPET_CHARACTERS_MAX = 160
FACET_VALUES_MAX = 20  # the most frequent, unless the caller asks for more
SCAN_DOCUMENTS = 10_000  # read at once

FieldKind = Literal["text", "keyword", "int", "float", "bool", "date"]

ID, KIND, ROW, ALL_TEXT = "_id", "_kind", "_row", "_all"  # the index's own fields
BOOKMARK, IS_ROW = "bookmark", "row"
PREFIX = {BOOKMARK: "b:", IS_ROW: "r:"}  # of `_id`, so that no key can be taken for the bookmark

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Indexes(Protocol):
    """What reading needs of the store."""

    view: str
    fields: dict[str, FieldKind]

    def catalog(self) -> Catalog: ...

    def path(self, version: int) -> Path: ...

    def index(self, version: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One row that was found; `highlights`: HTML of the passages, matches in <b>, by column."""

    row: Row
    score: float
    highlights: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`total` rows match; `hits` are those asked for; `facets` count all matching rows by value."""

    total: int
    hits: Sequence[Hit]
    facets: Mapping[str, Mapping[str, int]]


class TantivyReader:
    """Searches what was committed last; indexes are opened once."""

    poll_s = 0.01

    def __init__(self, store: Indexes, version: int | None) -> None:
        self._store, self._version = store, version
        self._indexes: dict[int, Any] = {}

    def bookmark(self) -> Bookmark:
        _, _, searcher = self._found()
        return Bookmark() if searcher is None else bookmark_of(searcher)

    @contextmanager
    def snapshot(self) -> Iterator[TantivySnapshot]:
        version, index, searcher = self._found()
        yield TantivySnapshot(self._store, version, index, searcher)

    def close(self) -> None:
        self._indexes.clear()

    def _found(self) -> tuple[int, Any, Any]:
        version = self._store.catalog().active if self._version is None else self._version
        with tantivy_available():
            if version not in self._indexes:
                path = self._store.path(version)
                if not version or not path.exists() or not tantivy.Index.exists(str(path)):
                    return version, None, None
                self._indexes[version] = self._store.index(version)
            index = self._indexes[version]
            index.reload()
            return version, index, index.searcher()


class TantivySnapshot:
    """One version as of one commit."""

    def __init__(self, store: Indexes, version: int, index: Any, searcher: Any) -> None:
        self.version = version
        self.bookmark = Bookmark() if searcher is None else bookmark_of(searcher)
        self._store, self._index, self._searcher = store, index, searcher

    def get(self, key: object) -> Row | None:
        if self._searcher is None:
            return None
        name = PREFIX[IS_ROW] + key_text(normalise_key(key, self.bookmark.key))
        with tantivy_available():
            return next(self._rows(self._term(ID, name), 1), None)

    def scan(self) -> Iterator[Row]:
        if self._searcher is not None:
            with tantivy_available():
                yield from self._rows(self._term(KIND, IS_ROW), max(self.count(), 1))

    def count(self) -> int:
        if self._searcher is None:
            return 0
        with tantivy_available():
            return int(self._searcher.search(self._term(KIND, IS_ROW), 1, count=True).count)

    def search(
        self,
        text: str,
        *,
        limit: int = 10,
        offset: int = 0,
        facets: Sequence[str] = (),
        highlight: Sequence[str] | None = None,
        order_by: str = "",
        facet_values: int = FACET_VALUES_MAX,
    ) -> SearchResult:
        """Rows that match: `rust engine`, `title:"event log" +country:CH`, `price:[10 TO 20]`, the best first.

        `facets`: keyword columns to count by. `highlight`: text columns to show passages of (all, unless given).
        `order_by`: an int, float, date or keyword column, the largest first, instead of the best.
        """
        if self._searcher is None:
            return SearchResult(0, [], {})
        query = self._parse(text)
        try:
            found = self._searcher.search(query, max(limit, 1), offset=offset, order_by_field=order_by or None)
            counts = {name: self._facet(query, name, facet_values) for name in facets}
        except ValueError as error:
            raise BadView(f"view {self._store.view}: cannot search for {text!r}: {error}") from error
        snippets = self._snippets(query, highlight)
        hits = [self._hit(score, address, snippets) for score, address in found.hits[:limit]]
        return SearchResult(int(found.count), hits, counts)

    def _parse(self, text: str) -> Any:
        words = [name for name, kind in self._store.fields.items() if kind == "text"]
        defaults = words or ([ALL_TEXT] if not self._store.fields else [*self._store.fields])
        try:
            asked = self._index.parse_query(text, defaults) if text.strip() else tantivy.Query.all_query()
        except ValueError as error:
            raise BadView(f"view {self._store.view}: {text!r} is not a query: {error}") from error
        must = tantivy.Occur.Must
        only_rows = tantivy.Query.const_score_query(self._term(KIND, IS_ROW), 0.0)
        return tantivy.Query.boolean_query([(must, asked), (must, only_rows)])

    def _facet(self, query: Any, name: str, size: int) -> dict[str, int]:
        if self._store.fields.get(name) != "keyword":
            raise BadView(f"view {self._store.view}: facets are counted of keyword columns, which {name!r} is not")
        found = self._searcher.aggregate(query, {"f": {"terms": {"field": name, "size": size}}})
        return {str(each["key"]): int(each["doc_count"]) for each in found["f"]["buckets"]}

    def _snippets(self, query: Any, wanted: Sequence[str] | None) -> dict[str, Any]:
        words = [name for name, kind in self._store.fields.items() if kind == "text"] or [ALL_TEXT]
        names = words if wanted is None else [name for name in wanted if name in words]
        found = {}
        for name in names:
            generator = tantivy.SnippetGenerator.create(self._searcher, query, self._index.schema, name)
            generator.set_max_num_chars(SNIPPET_CHARACTERS_MAX)
            found[name] = generator
        return found

    def _hit(self, score: Any, address: Any, snippets: Mapping[str, Any]) -> Hit:
        document = self._searcher.doc(address)
        passages = {name: made.snippet_from_doc(document).to_html() for name, made in snippets.items()}
        shown = {"" if name == ALL_TEXT else name: html for name, html in passages.items() if "<b>" in html}
        row: Row = _decode(document.get_first(ROW))
        return Hit(row, float(score) if isinstance(score, int | float) else 0.0, shown)

    def _rows(self, query: Any, limit: int) -> Iterator[Row]:
        for start in range(0, limit, SCAN_DOCUMENTS):
            found = self._searcher.search(query, min(SCAN_DOCUMENTS, limit - start), offset=start, count=False)
            for _, address in found.hits:
                yield _decode(self._searcher.doc(address).get_first(ROW))

    def _term(self, field: str, value: str) -> Any:
        return tantivy.Query.term_query(self._index.schema, field, value)


def bookmark_of(searcher: Any) -> Bookmark:
    query = tantivy.Query.term_query(_own_schema(), ID, PREFIX[BOOKMARK])
    found = searcher.search(query, 1, count=False).hits
    return Bookmark.from_json(searcher.doc(found[0][1]).get_first(ROW)) if found else Bookmark()


def _own_schema() -> Any:
    """A schema in which the index's own fields have the numbers that they have in every index: they come first."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(ID, tokenizer_name="raw", index_option="basic")
    return builder.build()


@contextmanager
def tantivy_available() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:
        raise StoreUnavailable(f"tantivy: {error}") from error
