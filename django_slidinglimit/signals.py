"""Signals that this app sends."""

from __future__ import annotations

from django.dispatch import Signal

# Sent when Redis stops answering (error: the StoreError) and when it answers again (error: None),
# once per change and process, with the sender `Breaker`.
store_changed = Signal()

# Sent after rows of rules were written in bulk, which Django tells nobody about; using: the alias
# of the database that they were written to.
rules_changed = Signal()
