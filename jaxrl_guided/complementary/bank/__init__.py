"""The experience bank: entries in text with vectors, durable, and searched exactly."""

from jaxrl_guided.complementary.bank.bank import Bank
from jaxrl_guided.complementary.bank.database import BankError
from jaxrl_guided.complementary.bank.log import open_past
from jaxrl_guided.complementary.bank.records import Draft, Entry, Event, Usage, Write

BANK_FILE = "bank.sqlite"
"""Name of the bank in a run directory."""

__all__ = [
    "BANK_FILE",
    "Bank",
    "BankError",
    "Draft",
    "Entry",
    "Event",
    "Usage",
    "Write",
    "open_past",
]
