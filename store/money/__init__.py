"""Accounts, wallets, leases, codes, books."""
