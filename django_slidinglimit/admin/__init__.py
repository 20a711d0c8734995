"""The admin's pages; importing them registers them."""

from . import overrides as overrides
from . import rules as rules
from . import usage as usage
