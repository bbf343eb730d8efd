"""What each query must give: SQL over the tables `person`, `auction` and `bid`, evaluated by DuckDB over all events.

`REFERENCES`: name -> the query and the columns that are compared. Written apart from the queries on Spark, with none of
our code: windows are joins and buckets here, sessions are sums over gaps, first rows are row_number().
"""

from __future__ import annotations

__all__ = ["DAY_PART", "LETTERS", "RANKS", "REFERENCES", "STAT_COLUMNS"]

RANKS = {"low": "price < 10000", "middle": "price >= 10000 AND price < 1000000", "high": "price >= 1000000"}
STAT_COLUMNS = (
    "bids",
    *(f"{r}_bids" for r in RANKS),
    *(f"{p}{w}s" for w in ("bidder", "auction") for p in ("", *(f"{r}_" for r in RANKS))),
)
LETTERS = "length(extra) - length(replace(extra, 'c', ''))"
DAY_PART = """CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'day'
              WHEN hour(date_time) <= 6 THEN 'night' ELSE 'other' END"""
_CHANNEL_ID = """CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                 WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END"""
_DAY = "strftime(date_time, '%Y-%m-%d')"
_PRICED = ", ".join(f"count(*) FILTER ({condition}) AS {rank}_bids" for rank, condition in RANKS.items())
_DISTINCT = ", ".join(
    f"count(DISTINCT {what}) {f'FILTER ({RANKS[rank]})' if rank else ''} AS {f'{rank}_' if rank else ''}{what}s"
    for what in ("bidder", "auction")
    for rank in ("", *RANKS)
)


def _ten(column: str) -> str:
    """The start of the ten seconds that a time is in."""
    return f"time_bucket(INTERVAL 10 SECOND, {column})"


# every auction with its bids, the highest first; n = 1 is the winner
_WON = """
    SELECT a.id, a.seller, a.category, a.expires, b.bidder, b.price, b.date_time AS bid_at,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS n
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"""

_HOPS = """
    SELECT auction, count(*) AS n, w AS window_start FROM (
        SELECT auction, unnest([time_bucket(INTERVAL 2 SECOND, date_time) - to_seconds(2 * i) for i in range(5)]) AS w
        FROM bid)
    GROUP BY auction, w"""

_SESSIONS = """
    SELECT bidder, count(*) AS n, min(date_time) AS window_start, max(date_time) + INTERVAL 10 SECOND AS window_end
    FROM (
        SELECT bidder, date_time,
               sum(fresh) OVER (PARTITION BY bidder ORDER BY date_time ROWS UNBOUNDED PRECEDING) AS number
        FROM (
            SELECT bidder, date_time, CASE WHEN date_time - lag(date_time) OVER (
                       PARTITION BY bidder ORDER BY date_time) < INTERVAL 10 SECOND THEN 0 ELSE 1 END AS fresh
            FROM bid))
    GROUP BY bidder, number"""

REFERENCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "q0": ("SELECT * FROM bid", ("auction", "bidder", "price", "date_time", "extra")),
    "q1": (
        "SELECT *, price * 908 AS thousandths FROM bid",
        ("auction", "bidder", "thousandths", "date_time", "extra"),
    ),
    "q2": ("SELECT * FROM bid WHERE auction % 123 = 0", ("auction", "price")),
    "q3": (
        """SELECT a.id AS auction, p.name, p.city, p.state FROM auction a JOIN person p ON a.seller = p.id
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        ("auction", "name", "city", "state"),
    ),
    "q4": (
        f"SELECT category, avg(price) AS price FROM ({_WON}) WHERE n = 1 GROUP BY category",
        ("category", "price"),
    ),
    "q5": (
        f"""SELECT * FROM (SELECT *, max(n) OVER (PARTITION BY window_start) AS most FROM ({_HOPS}))
            WHERE n = most""",
        ("auction", "n", "window_start"),
    ),
    "q6": (
        f"""SELECT seller, avg(price) AS price FROM (
                SELECT *, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS place
                FROM ({_WON}) WHERE n = 1)
            WHERE place <= 10 GROUP BY seller""",
        ("seller", "price"),
    ),
    "q7": (
        f"""SELECT * FROM (SELECT *, max(price) OVER (PARTITION BY {_ten("date_time")}) AS most FROM bid)
            WHERE price = most""",
        ("auction", "bidder", "price", "date_time"),
    ),
    "q8": (
        f"""SELECT DISTINCT p.id, p.name, {_ten("p.date_time")} AS start FROM person p JOIN auction a
            ON p.id = a.seller AND {_ten("p.date_time")} = {_ten("a.date_time")}""",
        ("id", "name", "start"),
    ),
    "q9": (
        f"SELECT * FROM ({_WON}) WHERE n = 1",
        ("id", "seller", "category", "bidder", "price", "bid_at"),
    ),
    "q10": (
        "SELECT *, strftime(date_time, '%Y-%m-%d %H:%M') AS folder FROM bid",
        ("auction", "bidder", "price", "date_time", "folder"),
    ),
    "q11": (_SESSIONS, ("bidder", "n", "window_start", "window_end")),
    "q12": ("SELECT bidder, count(*) AS n FROM bid GROUP BY bidder", ("bidder", "n")),
    "q13": (
        "SELECT *, 'side ' || (auction % 1000) AS value FROM bid",
        ("auction", "bidder", "price", "value"),
    ),
    "q14": (
        f"SELECT *, {DAY_PART} AS part, {LETTERS} AS cs FROM bid WHERE price BETWEEN 1100000 AND 55000000",
        ("auction", "price", "part", "cs"),
    ),
    "q15": (
        f"SELECT {_DAY} AS day, count(*) AS bids, {_PRICED}, {_DISTINCT} FROM bid GROUP BY 1",
        ("day", *STAT_COLUMNS),
    ),
    "q16": (
        f"SELECT channel, {_DAY} AS day, count(*) AS bids, {_PRICED}, {_DISTINCT} FROM bid GROUP BY 1, 2",
        ("channel", "day", *STAT_COLUMNS),
    ),
    "q17": (
        f"""SELECT auction, {_DAY} AS day, count(*) AS bids, {_PRICED}, min(price) AS min, max(price) AS max,
                   avg(price) AS mean, sum(price) AS sum
            FROM bid GROUP BY 1, 2""",
        ("auction", "day", "bids", *(f"{rank}_bids" for rank in RANKS), "min", "max", "mean", "sum"),
    ),
    "q18": (
        """SELECT * FROM (
               SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS n FROM bid)
           WHERE n = 1""",
        ("auction", "bidder", "price", "date_time"),
    ),
    "q19": (
        """SELECT * FROM (
               SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS place
               FROM bid)
           WHERE place <= 10""",
        ("auction", "bidder", "price", "place"),
    ),
    "q20": (
        """SELECT b.auction, b.bidder, b.price, b.date_time, a.item, a.seller
           FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
        ("auction", "bidder", "price", "date_time", "item", "seller"),
    ),
    "q21": (
        f"SELECT *, {_CHANNEL_ID} AS channel_id FROM bid WHERE {_CHANNEL_ID} <> ''",
        ("auction", "channel", "channel_id"),
    ),
    "q22": (
        """SELECT *, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
                  split_part(url, '/', 6) AS dir3
           FROM bid""",
        ("auction", "channel", "dir1", "dir2", "dir3"),
    ),
}
