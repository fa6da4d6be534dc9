"""The examples that are scripts, by plain loops over inputs of their own."""

import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

from oracle.told import Text, Told, write_csv

CENT = Decimal("0.01")
DAYS = ["2025-11-01", "2025-11-02", "2025-11-03"]
ORDERS = {
    "2025-11-01": [("1001", "Ada", "12.50"), ("1002", "Ben", "7.25"), ("1003", "Cleo", "30.00")],
    "2025-11-02": [("1004", "Ada", "3.10"), ("1005", "Dora", "18.00")],
    "2025-11-03": [
        ("1006", "Ben", "5.40"),
        ("1007", "Ada", "0.05"),
        ("1008", "Eve", "100.00"),
        ("1009", "Eve", "0.35"),
    ],
}


def load_file(folder: Path) -> Told:
    """A day's orders are counted and added up."""
    made = {}
    for day in DAYS:
        write_csv(folder / f"inbox/{day}.csv", ("id", "customer", "amount"), ORDERS[day])
        (folder / f"inbox/{day}.done").touch()
        total = Decimal(0)
        for _, _, amount in ORDERS[day]:
            total += Decimal(amount)
        text = f"{day}: {len(ORDERS[day])} orders, {total:.2f} in all\n"
        made["loaded", day] = Text(path=f"out/{day}.txt", text=text)
    return Told(jobs={"load": DAYS}, made=made, arrive=[["scan"]], tools=("awk",))


PRICED = {
    "2025-11-01": [("1", "USD", "10.00"), ("2", "GBP", "20.00"), ("3", "EUR", "5.50"), ("4", "USD", "0.30")],
    "2025-11-02": [("5", "USD", "100.00"), ("6", "EUR", "1.20"), ("7", "GBP", "7.77")],
}
RATES = {
    "2025-11-01": [("EUR", "1"), ("GBP", "1.14"), ("USD", "0.87")],
    "2025-11-02": [("EUR", "1"), ("GBP", "1.13"), ("USD", "0.86")],
}


def two_inputs(folder: Path) -> Told:
    """Each order at its own day's rate."""
    made = {}
    for day, orders in PRICED.items():
        write_csv(folder / f"data/orders/{day}.csv", ("id", "currency", "amount"), orders)
        write_csv(folder / f"data/rates/{day}.csv", ("currency", "eur"), RATES[day])
        lines = ["id,eur"]
        for number, currency, amount in orders:
            for other, rate in RATES[day]:
                if other == currency:
                    lines.append(f"{number},{(Decimal(amount) * Decimal(rate)).quantize(CENT, ROUND_HALF_EVEN)}")
        made["priced", day] = Text(path=f"data/priced/{day}.csv", text="\n".join(lines) + "\n")
    days = list(PRICED)
    arrive = [["ready", "orders", *days], ["ready", "rates", *days]]
    return Told(jobs={"price": days}, made=made, arrive=arrive, tools=("awk",))


STOCK = [("bolt", 120), ("hinge", 8), ("lamp", 0), ("nail", 5000), ("screw", 10), ("washer", 9)]
REORDER_BELOW = 10


def validate_extract(folder: Path) -> Told:
    """The list as it is today, and of it what is to be ordered again."""
    write_csv(folder / "stock.csv", ("item", "quantity"), STOCK)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    all_of_it, few = "item,quantity\n", "item,quantity\n"
    for item, quantity in STOCK:
        all_of_it += f"{item},{quantity}\n"
        if quantity < REORDER_BELOW:
            few += f"{item},{quantity}\n"
    made = {
        ("validated", day): Text(path=f"data/validated/{day}.csv", text=all_of_it),
        ("reorder", day): Text(path=f"data/reorder/{day}.csv", text=few),
    }
    return Told(jobs={"validate": [day], "extract": [day]}, made=made, tools=("awk",))


# The rows of the example's setup.sql.
SHOP = [
    (1001, "2025-11-01", "Ada", "12.50"),
    (1002, "2025-11-01", "Ben", "7.25"),
    (1003, "2025-11-02", "Cleo", "30.00"),
    (1004, "2025-11-02", 'Ada "the first", Countess', "3.10"),
    (1005, "2025-11-02", "Dora", "18.00"),
    (1006, "2025-11-03", "Ben", "5.40"),
]


def extract_postgres(_folder: Path) -> Told:
    """The rows of each day, in the order of their numbers."""
    made = {}
    for day in DAYS:
        text = "id,customer,amount\n"
        for number, ordered_on, customer, amount in sorted(SHOP):
            if ordered_on == day:
                name = '"' + customer.replace('"', '""') + '"' if '"' in customer or "," in customer else customer
                text += f"{number},{name},{amount}\n"
        made["extract", day] = Text(path=f"data/extract/{day}.csv", text=text)
    return Told(jobs={"extract_orders": DAYS}, made=made, arrive=[["ready", "orders", *DAYS]], tools=("psql",))
