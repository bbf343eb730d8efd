"""Producer ids and transactions.

`machine.py` is the life of one transactional id; `driver.py` gives machines their disk, their clock and their clients.
"""
